"""The incoming payment hook: signed, once for each event, in a narrow time."""

import base64
import json
import threading
import time

import pytest
from django.core.management import call_command
from django.db import connection

from catalog.models import Organisation
from dashboard.billing import payments
from dashboard.billing.accounts import RefundTooLarge, give_credit, open_account
from dashboard.billing.models import Account, LedgerEntry

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()


@pytest.fixture(autouse=True)
def provider(configure):
    configure(payment_secrets=(f"bank={SECRET}", f"bank={OLD}", f"other={OLD}"))


@pytest.fixture
def account(organisation):
    return open_account(organisation.pk, "EUR")


def message(account, **changes):
    data = {"account": account.reference, "amount_micros": 5_000_000, "currency": "EUR"}
    kind = changes.pop("type", "payment.succeeded")
    return {"type": kind, "data": data | changes}


@pytest.fixture
def pay(client):
    """``pay(document, event_id="evt_1", key=KEY, at=…)`` → the response."""

    def send(document, event_id="evt_1", key=KEY, at=None, provider="bank", **headers):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        stamp = round(time.time()) if at is None else at
        signed = {
            "webhook-id": event_id,
            "webhook-timestamp": str(stamp),
            "webhook-signature": payments.sign(key, event_id, stamp, body),
        }
        return client.post(
            f"/api/v1/billing/payments/{provider}",
            body,
            content_type="application/json",
            headers=signed | headers,
        )

    return send


def balance():
    return Account.objects.get().balance_micros


def test_a_signed_payment_adds_credit_once_however_often_it_is_sent(pay, account):
    first = pay(message(account))
    assert (first.status_code, first.json()["repeated"]) == (200, False)
    again = pay(message(account), at=round(time.time()) + 3)
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert again.json()["entry"] == first.json()["entry"]
    assert balance() == 5_000_000
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.provider, entry.event_id, entry.actor) == ("credit", "bank", "evt_1", "bank")


def test_two_events_are_two_payments_and_two_providers_do_not_share_ids(pay, account):
    pay(message(account))
    pay(message(account), event_id="evt_2")
    pay(message(account), provider="other", key=b"o" * 32)
    assert balance() == 15_000_000


def refund(account, micros, of="evt_1", **changes):
    return message(account, type="payment.refunded", amount_micros=micros, payment=of, **changes)


def test_a_refund_takes_it_back(pay, account):
    entry = pay(message(account)).json()["entry"]
    assert pay(refund(account, 2_000_000), "evt_2").status_code == 200
    assert balance() == 3_000_000
    row = LedgerEntry.objects.get(kind="refund")
    assert (row.refund_of_id, row.reason) == (entry, "Refund of evt_1 by bank")


def test_no_more_is_refunded_than_is_left_of_the_payment(pay, account):
    pay(message(account))
    pay(message(account), "evt_of_another_payment")
    assert pay(refund(account, 3_000_000), "evt_2").status_code == 200
    refused = pay(refund(account, 2_000_001), "evt_3")
    assert (refused.status_code, refused.json()["where"]) == (409, "data.amount_micros")
    assert refused.json()["error"] == "Of this payment 2000000 are left to refund."
    assert balance() == 7_000_000
    assert pay(refund(account, 2_000_000), "evt_3").status_code == 200
    again = pay(refund(account, 2_000_000), "evt_3")
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert pay(refund(account, 1), "evt_4").status_code == 409
    assert balance() == 5_000_000
    call_command("check_ledger")


def test_a_refund_is_of_a_payment_of_its_account_and_provider(pay, account):
    other = open_account(Organisation.objects.create(name="Other").pk, "EUR")
    pay(message(account))
    pay(message(other), "evt_theirs")
    pay(message(account), "evt_elsewhere", provider="other", key=b"o" * 32)
    pay(refund(account, 1), "evt_refund")
    credit_by_hand = give_credit(
        account.organisation, 5_000_000, "welcome", currency="EUR", by={"actor": "tests"}
    )
    for of in ("evt_none", "evt_theirs", "evt_elsewhere", "evt_refund", str(credit_by_hand.pk)):
        refused = pay(refund(account, 1, of), f"evt_back_of_{of}")
        assert (refused.status_code, refused.json()["where"]) == (404, "data.payment")
    for of in (None, "", 7, ["evt_1"], "a b", "x" * 201):
        refused = pay(refund(account, 1, of), "evt_back")
        assert (refused.status_code, refused.json()["where"]) == (400, "data.payment")
    assert LedgerEntry.objects.filter(kind="refund").count() == 1


def test_a_refund_that_comes_before_its_payment_counts_when_it_is_sent_again(pay, account):
    assert pay(refund(account, 5_000_000), "evt_2").status_code == 404
    pay(message(account))
    assert pay(refund(account, 5_000_000), "evt_2").status_code == 200
    assert balance() == 0


@pytest.mark.django_db(transaction=True)
def test_refunds_at_once_take_no_more_than_there_is(account):
    """Eight of two fifths each, two of each event: two of them fit."""
    payments.receive("bank", "evt_1", b"paid", message(account))
    start, got = threading.Barrier(8), []

    def send(number):
        document = refund(account, 2_000_000)
        start.wait()
        try:
            got.append(payments.receive("bank", f"evt_back_{number % 4}", b"%d" % (number % 4), document))
        except RefundTooLarge as refused:
            got.append(refused)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert len(got) == 8
    added = [one for one in got if isinstance(one, payments.Received)]
    assert [one.repeated for one in added].count(False) == 2 == [one.repeated for one in added].count(True)
    assert balance() == 1_000_000
    call_command("check_ledger")


def test_the_secret_of_before_a_rotation_counts_too(pay, account):
    assert pay(message(account), key=b"o" * 32).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-signature": "v1," + base64.b64encode(b"x" * 32).decode()},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,é"},
        {"webhook-id": "evt_other"},
        {"webhook-id": ""},
        {"webhook-timestamp": "soon"},
    ],
)
def test_a_wrong_signature_is_a_401_and_adds_nothing(pay, account, headers):
    refused = pay(message(account), **headers)
    assert refused.status_code == 401
    assert refused.json()["error"]
    assert not LedgerEntry.objects.exists()


def test_another_providers_secret_does_not_count(pay, account):
    assert pay(message(account), provider="other").status_code == 401


def test_a_changed_body_is_not_signed(pay, account, client):
    body = json.dumps(message(account)).encode()
    now = round(time.time())
    answer = client.post(
        "/api/v1/billing/payments/bank",
        body.replace(b"5000000", b"9000000"),
        content_type="application/json",
        headers={
            "webhook-id": "evt_1",
            "webhook-timestamp": str(now),
            "webhook-signature": payments.sign(KEY, "evt_1", now, body),
        },
    )
    assert answer.status_code == 401


@pytest.mark.parametrize("away_s", [-301, 301, 86_400, -86_400])
def test_an_old_message_is_refused_even_if_it_is_signed(pay, account, away_s):
    assert pay(message(account), at=round(time.time()) + away_s).status_code == 401


def test_the_same_event_with_another_content_is_a_conflict(pay, account):
    pay(message(account))
    assert pay(message(account, amount_micros=9_000_000)).status_code == 409
    assert balance() == 5_000_000


def test_unknown_accounts_and_providers_are_404s(pay, account):
    unknown = pay(message(account) | {"data": message(account)["data"] | {"account": "acct_none"}})
    assert (unknown.status_code, unknown.json()["where"]) == (404, "data.account")
    assert pay(message(account), provider="nobody").status_code == 404


@pytest.mark.parametrize(
    "document",
    [
        b"not json",
        b"[]",
        {"type": "payment.unknown"},
        {"type": "payment.succeeded", "data": []},
        {"type": "payment.succeeded", "data": {"account": 7}},
    ],
)
def test_what_is_signed_and_not_understood_is_a_400(pay, account, document):
    assert pay(document).status_code == 400


@pytest.mark.parametrize("amount", [0, -5, 1.5, "5", True, None, 10**16])
def test_amounts_are_whole_millionths(pay, account, amount):
    refused = pay(message(account, amount_micros=amount))
    assert (refused.status_code, refused.json()["where"]) == (400, "data.amount_micros")


def test_another_currency_than_the_accounts_is_refused(pay, account):
    assert pay(message(account, currency="USD")).status_code == 400
    assert balance() == 0


def test_paid_credit_opens_what_was_withheld(pay, account, ask, put, price):
    put(64, "tvm", 2.0)
    price(1.0, mode="withhold")
    assert ask(64).results[0].state == "payment_required"
    pay(message(account, amount_micros=1_000_000))
    assert ask(64).results[0].status == "hit"


def test_the_same_event_from_two_senders_at_once_is_one_entry(pay, account, monkeypatch):
    """Both looked before either had written: the database lets one through."""
    pay(message(account))
    real, looks = LedgerEntry.objects.filter, []

    def blind_at_first(**wanted):
        looks.append(wanted)
        return LedgerEntry.objects.none() if len(looks) == 1 else real(**wanted)

    monkeypatch.setattr(LedgerEntry.objects, "filter", blind_at_first)
    assert pay(message(account)).json()["repeated"] is True
    assert len(looks) == 2
    assert balance() == 5_000_000
