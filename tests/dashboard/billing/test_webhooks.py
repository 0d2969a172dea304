"""What billing tells an organisation's receivers."""

import pytest

from catalog.models import Organisation
from dashboard.webhooks.models import Endpoint, Message


@pytest.fixture(autouse=True)
def receiver(organisation):
    return Endpoint.objects.create(organisation=organisation, url="https://example.com/hooks")


def told(kind):
    return [row.data for row in Message.objects.filter(event_type=kind).order_by("pk")]


def test_charges_are_told_once_a_lookup(ask, put, price):
    for length in (1, 2, 3):
        put(length, "tvm", 2.0)
    price(0.01)
    ask(1, 2, 3)
    ask(1)
    first, second = told("ledger.charged")
    assert (first["hits"], first["amount_micros"], first["balance_micros"]) == (3, 30_000, -30_000)
    assert len(first["entries"]) == 3
    assert (second["hits"], second["balance_micros"]) == (1, -40_000)


def test_credit_is_told_and_a_correction_is_not(credit):
    credit(5)
    credit(-1)
    (event,) = told("credit.added")
    assert (event["amount_micros"], event["balance_micros"]) == (5_000_000, 5_000_000)


def test_what_is_withheld_is_told_once_a_day(ask, put, price):
    for length in (1, 2):
        put(length, "tvm", 2.0)
    price(0.01, mode="withhold")
    ask(1)
    ask(1)
    ask(1, 2)
    first, second = told("payment.required")
    assert [len(event["items"]) for event in (first, second)] == [1, 1]
    assert first["items"][0]["implementation"] != second["items"][0]["implementation"]
    assert first["items"][0]["price_micros"] == 10_000


def test_a_lookup_that_fails_tells_nothing(ask, put, price, monkeypatch):
    from catalog.errors import JournalError

    put(1, "tvm", 2.0)
    price(0.01)

    def full(entry):
        raise JournalError("The journal cannot be written (no space left).")

    put(2, "eager", 1.0)
    price(0.0, mode="free", route="eager", priority=1)
    monkeypatch.setattr("catalog.usage.journal.append_line", full)
    with pytest.raises(JournalError):
        ask(1, 2)
    assert not told("ledger.charged")


def test_others_are_not_told(ask, put, price, organisation):
    put(1, "tvm", 2.0)
    price(0.01)
    ask(1, organisation=Organisation.objects.create(name="other"))
    assert not told("ledger.charged")
