"""Spending is sudden against an organisation's own days; what it was for is told by operator, job and key."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from catalog.models import UNNAMED, ApiKey, Operator
from catalog.people.keys import create_api_key
from dashboard.billing import sudden
from dashboard.billing.accounts import give_credit
from dashboard.billing.models import LedgerEntry
from dashboard.billing.sudden import UsualSpending, charged_for, charged_since, is_sudden, sudden_spendings
from tests.dashboard.billing.making import booked

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 25, 15, 30, tzinfo=UTC)
STEADY = UsualSpending(14, 20e6, 24_000_000)


def ago(days: float = 0.0, hours: float = 0.0) -> datetime:
    return NOW - timedelta(days=days, hours=hours)


@pytest.mark.parametrize(
    ("hour", "day", "usual", "said"),
    [
        (1, 59, STEADY, False),  # not three times a usual day
        (1, 60, STEADY, True),
        (9.9, 40, STEADY, False),
        (10, 40, STEADY, True),  # half a usual day within an hour, on top of the rest
        (19, 36, STEADY, False),  # as on a busy day
        (19, 19.9, UsualSpending(14, 1e6, 1_000_000), False),  # not worth a word
        (19, 20, UsualSpending(14, 1e6, 1_000_000), True),
        (0, 19.9, UsualSpending(), False),  # no history
        (0, 20, UsualSpending(), True),
        (50, 70, UsualSpending(14, 10e6, 70_000_000), False),  # once a week, as every week
        (50, 106, UsualSpending(14, 10e6, 70_000_000), True),
    ],
)
def test_what_is_far_above_the_usual(hour, day, usual, said) -> None:
    assert is_sudden(round(hour * 1e6), round(day * 1e6), usual) is said


def test_thresholds_are_configured(configure) -> None:
    configure(alert_spend_times=2.0, alert_spend_least=5.0)
    assert is_sudden(0, 40_000_000, STEADY)
    assert is_sudden(0, 5_000_000, UsualSpending()) and not is_sudden(0, 4_999_999, UsualSpending())


def test_what_was_charged_is_exact_whatever_else_moved(tenant) -> None:
    chance = random.Random(7)
    for minutes in sorted(chance.sample(range(1, 3000), 60), reverse=True):
        at = NOW - timedelta(minutes=minutes)
        if chance.random() < 0.3:
            with mock.patch("django.utils.timezone.now", return_value=at):
                micros = chance.randint(1, 9) * 1_000_000
                give_credit(tenant, micros, "credit", currency="EUR", by={"actor": "tests"})
        else:
            booked(tenant, chance.randint(1, 900) / 100, at)
    for hours in (0.5, 1, 24, 36, 90):
        charges = LedgerEntry.objects.filter(kind="charge", at__gte=ago(hours=hours))
        assert charged_since(tenant.pk, ago(hours=hours)) == -sum(row.amount_micros for row in charges)
    assert charged_since(tenant.pk + 1, ago(hours=1)) == 0


def test_who_is_charged_as_usual_costs_one_statement_and_who_is_not_is_named(
    tenant, organisation, django_assert_max_num_queries
) -> None:
    for days in range(15, 1, -1):
        booked(tenant, 10, ago(days=days))
        booked(organisation, 10, ago(days=days))
    booked(tenant, 6, ago(hours=20))
    with django_assert_max_num_queries(1):
        assert list(sudden_spendings(NOW)) == []
    booked(organisation, 12, ago(hours=3))
    booked(organisation, 22, ago(hours=0.5), entries=500)
    with django_assert_max_num_queries(9):
        (found,) = sudden_spendings(NOW)
    assert found.account.organisation == organisation
    assert (found.hour_micros, found.day_micros, found.times) == (22_000_000, 34_000_000, 3.4)
    assert found.usual == UsualSpending(14, 10e6, 10_000_000)


def test_what_it_was_charged_for(tenant) -> None:
    key, _ = create_api_key(tenant, "night runs", ["lookup"])
    operator = Operator.objects.create(key="o1:a", op_type="Relu", summary="Relu 64 float32", graph={})
    booked(tenant, 8, ago(hours=2), operator_key=operator.key, job_name="train", key_prefix=key.prefix)
    booked(tenant, 3, ago(hours=2), operator_key="o1:gone", key_prefix="deleted")
    booked(tenant, 1, ago(hours=2), operator_key="o1:gone")
    booked(tenant, 90, ago(days=2), operator_key="o1:gone", job_name="before")
    found = charged_for(tenant.pk, ago(days=1), NOW)
    assert [(line["name"], line["micros"]) for line in found["operators"]] == [
        ("Relu 64 float32", 8_000_000), ("o1:gone", 4_000_000)
    ]  # fmt: skip
    assert [(line["name"], line["id"]) for line in found["jobs"]] == [("train", "train"), (UNNAMED, "")]
    assert [line["name"] for line in found["keys"]] == ["night runs", "deleted", sudden.NOT_NOTED]


def test_beyond_the_first_the_rest_is_one_line(tenant, monkeypatch) -> None:
    monkeypatch.setattr(sudden, "MOST_NAMED", 2)
    for number in range(5):
        booked(tenant, number + 1, ago(hours=2), job_name=f"run {number}")
    lines = charged_for(tenant.pk, ago(days=1), NOW)["jobs"]
    assert [(line["name"], line["micros"], line["uses"]) for line in lines] == [
        ("run 4", 5_000_000, 1), ("run 3", 4_000_000, 1), (sudden.OTHERS, 6_000_000, 3)
    ]  # fmt: skip


def test_a_charge_notes_the_key_that_asked(ask, put, price, organisation, make_key, credit) -> None:
    put(64, "tvm", 2.0, method="compiler")
    price(0.01)
    key = ApiKey.objects.get(prefix=make_key("lookup").split("_")[1])
    ask(64, api_key=key, job="run")
    ask(64, job="run")
    assert list(LedgerEntry.objects.order_by("pk").values_list("key_prefix", flat=True)) == [key.prefix, None]
