"""Every figure of money, recomputed in plain Python from the raw rows of a seeded mess: several tenants,
private entries, tiers and caps, plans, refunds, days without anything, revoked entries."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from unittest import mock

import pytest
from django.db.models import Q

from catalog import models as c
from catalog.best.withdrawing import withdraw
from catalog.charging import SpendLimit
from catalog.figures.money import MONEY
from catalog.timerange import TimeRange
from catalog.usage.draining import drain_journal
from dashboard.billing import accounts, rules, selectors
from dashboard.billing.models import Account, Held, LedgerEntry, PriceRule
from tests.catalog.conftest import ask, own_folders, place_of, put, setting, target  # noqa: F401
from tests.dashboard.billing.making import report_uses
from tests.dashboard.keeping import kept

NOW = datetime(2026, 11, 21, 15, 30, tzinfo=UTC)


@pytest.fixture
def mess(ask, put, organisation):  # noqa: F811
    """Six weeks of three organisations; gives them."""
    made = kept("money", lambda: six_weeks(ask, put, organisation), lambda age: None)  # all ends at NOW
    rules.forget()
    yield made
    rules.forget()


def six_weeks(ask, put, organisation):  # noqa: F811
    chance = random.Random(17)
    tenants = [organisation, c.Organisation.objects.create(name="b"), c.Organisation.objects.create(name="c")]
    quiet = c.Organisation.objects.create(name="never asks")
    routes = [("tvm", "compiler"), ("cpp", "manual"), ("onednn", "library"), ("eager", "library")]
    for length in range(1, 13):
        route, method = routes[length % 4]
        put(length, route, chance.choice([1.0, 1.7, 3.1]), method=method)
    put(3, "tvm", 5.0, method="compiler", scope=f"org:{tenants[1].pk}", owner=tenants[1])
    revoked = put(12, "onnxruntime", 9.0)
    common = {"currency": "EUR", "created_by": "t", "from_at": NOW - timedelta(days=60)}
    PriceRule.objects.create(name="compiled", method="compiler", per_hit_micros=7_003, scope="shared",
                             tiers=[{"from_hit": 20, "per_hit_micros": 1_001}], **common)  # fmt: skip
    PriceRule.objects.create(name="written", method="manual", mode="withhold", per_saved_second_micros=10**6,
                             cap_operator_month_micros=30_000, **common)  # fmt: skip
    PriceRule.objects.create(name="own", scope="private", per_hit_micros=5, cap_month_micros=22, **common)
    rules.forget()
    for day in range(42, -1, -1):
        if day in (5, 6, 30):
            continue  # nobody works
        moment = NOW - timedelta(days=day, hours=chance.randint(0, 14))
        with mock.patch("django.utils.timezone.now", return_value=moment):
            for tenant in chance.sample(tenants, 2):
                lengths = chance.sample(range(1, 13), chance.randint(1, 8))
                calls = chance.choice([1.0, 40.5, 3_000.0])
                ask(*lengths, organisation=tenant, job=f"j{day % 4}", calls=calls)
            if chance.random() < 0.3:
                accounts.give_credit(chance.choice(tenants), chance.randint(1, 200_000), "paid",
                                     currency="EUR", by={"actor": "t"})  # fmt: skip
            if chance.random() < 0.2:
                accounts.give_credit(tenants[0], -chance.randint(1, 900), "wrong", currency="EUR",
                                     by={"actor": "t"})  # fmt: skip
    with mock.patch("django.utils.timezone.now", return_value=NOW):
        accounts.move(tenants[0].pk, "EUR", accounts.Movement("credit", 9_876, "paid", "t", "bank", "evt_1"))
        refund = accounts.Movement("refund", -4_321, "back", "t", "bank", "evt_2", payment="evt_1")
        accounts.move(tenants[0].pk, "EUR", refund)
        accounts.set_plan(tenants[2], "prepaid", None, 0, currency="EUR", by={"actor": "t"})
        ask(*range(1, 13), organisation=tenants[2], job="flat")
        withdraw(c.Implementation.objects.filter(pk=revoked.implementation.pk), "wrong")
    drain_journal()
    return [*tenants, quiet]


RANGES = [
    (datetime(2026, 11, 14, 9, 0, tzinfo=UTC), NOW),
    (datetime(2026, 10, 1, tzinfo=UTC), NOW + timedelta(hours=1)),
    (datetime(2026, 10, 20, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)),
    (datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 5, tzinfo=UTC)),
]


def entries(tenant, since, until):
    """Raw ledger rows of the whole days that the range touches; of all organisations without a tenant."""
    first = since.replace(hour=0, minute=0, second=0, microsecond=0)
    last = (until - timedelta(microseconds=1)).date()
    return [
        row
        for row in LedgerEntry.objects.all()
        if first <= row.at and row.at.date() <= last and (tenant is None or row.organisation_id == tenant.pk)
    ]


def usage_of(row):
    return c.Usage.objects.get(pk=row.usage_number)


def saved_us(row):
    usage = usage_of(row)
    return usage.calls * (usage.default_us - usage.median_us)


def asked(tenant):
    return Q() if tenant is None else Q(organisation=tenant.pk)


def test_totals(mess):
    for span in RANGES:
        for tenant in (None, *mess):
            rows = entries(tenant, *span)
            found = selectors.totals(asked(tenant), *selectors.days_of(TimeRange(*span)))
            if not rows:
                assert found == []
                continue
            (money,) = found
            charges = [row for row in rows if row.kind == "charge"]
            assert money.currency == "EUR"
            assert money.hits_billed == len(charges)
            assert money.charged_micros == -sum(row.amount_micros for row in charges)
            assert money.credited_micros == sum(row.amount_micros for row in rows if row.kind == "credit")
            assert money.adjusted_micros == sum(row.amount_micros for row in rows if row.kind == "adjustment")
            assert money.refunded_micros == -sum(row.amount_micros for row in rows if row.kind == "refund")
            assert money.saved_us == pytest.approx(sum(map(saved_us, charges)), abs=1e-6)
            if money.charged_micros:
                # µs ÷ millionths is seconds ÷ units.
                per_unit = (sum(map(saved_us, charges)) / 1e6) / (money.charged_micros / 1e6)
                assert money.saved_s_per_unit == pytest.approx(per_unit)
            else:
                assert money.saved_s_per_unit is None


def test_by_day_and_method(mess):
    for span in RANGES:
        for tenant in (None, *mess):
            expected = defaultdict(lambda: [0, 0, 0.0])
            for row in entries(tenant, *span):
                if row.kind == "charge":
                    sums = expected[row.at.date(), usage_of(row).method]
                    sums[0] += 1
                    sums[1] -= row.amount_micros
                    sums[2] += saved_us(row)
            found = selectors.by_day(asked(tenant), *selectors.days_of(TimeRange(*span)))
            assert [(one.day, one.method) for one in found] == sorted(expected)
            for one in found:
                hits, charged, saved = expected[one.day, one.method]
                assert (one.hits_billed, one.charged_micros) == (hits, charged)
                assert one.saved_us == pytest.approx(saved, abs=1e-6)


def test_credit_and_drift(mess):
    for tenant in mess:
        account = Account.objects.filter(organisation=tenant).first()
        amounts = [row.amount_micros for row in LedgerEntry.objects.filter(organisation=tenant)]
        assert (account.balance_micros if account else 0) == sum(amounts)
        assert selectors.drift(asked(tenant)) == 0
    assert selectors.drift(Q()) == 0
    Account.objects.filter(organisation=mess[1]).update(balance_micros=sum(range(5)))
    raw = 10 - sum(row.amount_micros for row in LedgerEntry.objects.filter(organisation=mess[1]))
    assert selectors.drift(asked(mess[1])) == selectors.drift(Q()) == raw


def test_forecast(mess):
    for tenant in (None, *mess):
        charges = [
            row
            for row in LedgerEntry.objects.filter(kind="charge")
            if tenant is None or row.organisation_id == tenant.pk
        ]
        so_far = -sum(row.amount_micros for row in charges if row.at.date() >= NOW.date().replace(day=1))
        week = [NOW.date() - timedelta(days=n) for n in range(1, 8)]
        per_day = -sum(row.amount_micros for row in charges if row.at.date() in week) / 7
        days_left = (datetime(2026, 12, 1, tzinfo=UTC) - NOW).total_seconds() / 86_400
        found = selectors.forecast(asked(tenant), NOW)
        assert (found.so_far_micros, found.per_day_micros) == (so_far, per_day)
        assert found.micros == round(so_far + per_day * days_left)


def test_every_charge_is_what_its_rule_says_of_the_month_before_it(mess):
    """The list price and the amount of every entry, from the rules' own numbers."""
    hits, spent, by_operator = defaultdict(int), defaultdict(int), defaultdict(int)
    seen = set()
    for row in LedgerEntry.objects.filter(kind="charge").select_related("rule").order_by("pk"):
        rule, usage = row.rule, usage_of(row)
        month = (row.organisation_id, rule.line, row.at.year, row.at.month)
        per_hit = rule.per_hit_micros
        for tier in rule.tiers:
            if hits[month] + 1 >= tier["from_hit"]:
                per_hit = tier["per_hit_micros"]
        saved = Fraction(usage.calls) * (Fraction(usage.default_us) - Fraction(usage.median_us))
        exact = per_hit + max(Fraction(0), saved * rule.per_saved_second_micros / 10**6)
        listed = (exact + Fraction(1, 2)).__floor__()
        amount = listed
        if rule.cap_month_micros is not None:
            amount = min(amount, rule.cap_month_micros - spent[month])
        if rule.cap_operator_month_micros is not None:
            amount = min(amount, rule.cap_operator_month_micros - by_operator[month, usage.operator_id])
        if usage.job.name == "flat":
            amount = 0  # the prepaid plan
        assert (row.list_micros, -row.amount_micros) == (listed, amount)
        assert (rule.method or usage.method) == usage.method
        hits[month] += 1
        spent[month] += amount
        by_operator[month, usage.operator_id] += amount
        seen.add((rule.name, amount < listed))
    assert seen >= {("compiled", False), ("written", True), ("own", True)}


def test_hits_billed_are_the_usage_rows_that_were_written_to_be_charged(mess):
    charged = {row.pk for row in c.Usage.objects.all() if row.segment.startswith("charged-")}
    assert charged == set(LedgerEntry.objects.filter(kind="charge").values_list("usage_number", flat=True))
    free = [row for row in c.Usage.objects.all() if row.pk not in charged]
    assert free and all(row.method == "library" for row in free)


def test_asked_for_and_withheld(mess):
    for span in RANGES:
        first, last = selectors.days_of(TimeRange(*span))
        for tenant in (None, *mess):
            expected = defaultdict(int)
            for row in Held.objects.all():
                if first <= row.day <= last and (tenant is None or row.organisation_id == tenant.pk):
                    expected[row.organisation.name, row.implementation_id] += row.times
            found = selectors.withheld_lately(asked(tenant), first, last)
            assert {(row.organisation, row.implementation): row.times for row in found} == dict(expected)


def test_what_was_withheld_was_counted_as_a_miss(mess):
    hits = sum(c.LookupTally.objects.values_list("hits", flat=True))
    assert hits == c.Usage.objects.count()
    held = sum(Held.objects.values_list("times", flat=True))
    assert held > 0
    assert sum(c.LookupTally.objects.values_list("misses", flat=True)) == held


def test_every_definition_says_all_there_is_to_say():
    assert {figure.name for figure in MONEY} >= {
        "charged", "hits_billed", "list_price", "credit", "credited", "saved_per_unit", "forecast", "drift",
        "withheld_asked", "uses_billed", "spent",
    }  # fmt: skip
    assert all(figure.meaning.endswith(".") and figure.formula and figure.source for figure in MONEY)


def test_spent_under_a_limit(ask, put, organisation):  # noqa: F811
    for length in (1, 2):
        put(length, "tvm", 2.0)
    PriceRule.objects.create(
        name="all", per_hit_micros=7_003, currency="EUR", created_by="t", from_at=NOW - timedelta(days=60)
    )
    rules.forget()
    limit = SpendLimit(100_000, "EUR")
    for job, uses in (("one", 3), ("other", 50)):
        found = ask(1, 2, job=job, spend_limit=limit).results
        agreed = {result.terms.agreed.id: uses for result in found}
        report_uses(organisation, job, uses, agreed)
    ask(1, job="one")  # without a limit
    expected = {}
    for job in ("one", "other"):
        rows = [row for row in LedgerEntry.objects.all() if row.job_name == job]
        if job == "one":
            rows = rows[:-1]
        expected[job] = -sum(row.amount_micros for row in rows), sum(row.uses for row in rows)
    assert expected == {"one": (8 * 7_003, 8), "other": (14 * 7_003, 14)}
    found = selectors.spendings(asked(organisation))
    assert {one.job: (one.spent_micros, one.uses) for one in found} == expected
    assert {one.left_micros for one in found} == {100_000 - spent for spent, _ in expected.values()}
    rules.forget()
