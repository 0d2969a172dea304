"""The ledger is append-only, and every balance is the sum of its entries."""

import random
from collections import defaultdict

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Q
from django.utils import timezone

from catalog.errors import RequestError
from catalog.models import Operator, Organisation, Usage
from catalog.usage.draining import drain_journal
from dashboard.billing import accounts, pricelist, selectors
from dashboard.billing.models import Account, LedgerDay, LedgerEntry, MonthCount, PriceRule


@pytest.fixture
def charged(ask, put, price):
    """One charge."""
    put(64, "tvm", 2.0)
    price(0.01)
    ask(64)
    return LedgerEntry.objects.get()


class TestAppendOnly:
    def test_the_models_refuse(self, charged):
        for row in (charged, charged.rule):
            with pytest.raises(TypeError, match="only ever added"):
                row.save()
            with pytest.raises(TypeError, match="only ever added"):
                row.delete()

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE billing_ledgerentry SET amount_micros = 0",
            "UPDATE billing_ledgerentry SET reason = 'x'",
            "DELETE FROM billing_ledgerentry",
            "UPDATE billing_pricerule SET per_hit_micros = 0",
            "UPDATE billing_pricerule SET name = 'x', until_at = NULL",
            "DELETE FROM billing_pricerule",
        ],
    )
    def test_the_database_refuses_too(self, charged, sql):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
        assert LedgerEntry.objects.get().amount_micros == -10_000
        assert PriceRule.objects.get().per_hit_micros == 10_000

    def test_a_rules_version_ends_once(self, charged):
        assert PriceRule.objects.update(until_at=timezone.now()) == 1
        with pytest.raises(DatabaseError), transaction.atomic():
            PriceRule.objects.update(until_at=None)

    def test_what_a_statement_needs_outlives_the_usage_that_was_charged(self, ask, put, price, organisation):
        put(64, "tvm", 2.0)
        price(0.01)
        ask(64, job="run 1")
        Usage.objects.all().delete()
        (entry,) = selectors.ledger(Q(organisation=organisation), selectors.LedgerFilters())
        operator = Operator.objects.get()
        assert (entry.operator_key, entry.summary, entry.job_name) == (
            operator.key,
            operator.summary,
            "run 1",
        )
        (audit,) = selectors.audit_ledger()
        assert not audit.is_right  # gone, and by no rule

    def test_one_usage_has_one_charge(self, charged):
        columns = {"organisation", "at", "kind", "amount_micros", "currency", "balance_after_micros", "rule"}
        again = LedgerEntry(
            usage_number=charged.usage_number, **{name: getattr(charged, name) for name in columns}
        )
        with pytest.raises(IntegrityError), transaction.atomic():
            again.save()

    @pytest.mark.parametrize(
        ("kind", "amount"), [("credit", -5), ("refund", 5), ("charge", 0), ("credit", 0)]
    )
    def test_amounts_have_their_sign_and_charges_their_usage(self, organisation, kind, amount):
        row = LedgerEntry(
            organisation=organisation, at=timezone.now(), kind=kind, amount_micros=amount, currency="EUR",
            balance_after_micros=0,
        )  # fmt: skip
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save()


def test_balances_days_and_counts_are_the_sums_of_random_histories(ask, put, price, organisation):
    """Brute force over a seeded mess of lookups, payments and corrections of three organisations."""
    chance = random.Random(3)
    for length in range(1, 9):
        put(length, *chance.choice([("tvm", 2.0), ("onednn", 1.3)]), method="compiler")
    put(20, "eager", 1.0)
    price(0.003, method="compiler", tiers=[{"from_hit": 9, "per_hit_micros": 1_111}], cap_month_micros=60_000)
    price(per_saved_second=0.7, op_type="Relu", route="onednn", priority=1, mode="withhold")
    tenants = [organisation, *(Organisation.objects.create(name=f"t{n}") for n in range(2))]
    for _ in range(60):
        tenant = chance.choice(tenants)
        what = chance.random()
        if what < 0.7:
            lengths = chance.sample([*range(1, 9), 20], chance.randint(1, 6))
            ask(*lengths, organisation=tenant, calls=chance.choice([1.0, 33.3, 1e6]), job=f"j{what:.1f}")
        else:
            amount = chance.randint(-20_000, 60_000) or 5
            accounts.give_credit(tenant, amount, "r", currency="EUR", by={"actor": "t"})
    drain_journal()
    by_tenant, by_day = defaultdict(int), defaultdict(lambda: [0, 0])
    after = {}
    for entry in LedgerEntry.objects.order_by("pk"):
        by_tenant[entry.organisation_id] += entry.amount_micros
        assert entry.balance_after_micros == by_tenant[entry.organisation_id]
        sums = by_day[entry.organisation_id, entry.at.date(), entry.kind, entry.method]
        sums[0] += 1
        sums[1] += entry.amount_micros
        after[entry.organisation_id] = entry.balance_after_micros
    assert {row.organisation_id: row.balance_micros for row in Account.objects.all()} == dict(by_tenant)
    days = {
        (row.organisation_id, row.day, row.kind, row.method): [row.entries, row.amount_micros]
        for row in LedgerDay.objects.all()
    }
    assert days == dict(by_day)
    charges = LedgerEntry.objects.filter(kind="charge")
    assert charges.count() > 50
    assert charges.count() == Usage.objects.filter(segment__startswith="charged-").count()
    assert charges.count() == sum(MonthCount.objects.values_list("hits", flat=True))
    assert selectors.drift(Q()) == 0
    assert all(one.is_right for one in selectors.audit_ledger())


def test_a_balance_that_was_tampered_with_is_found(charged, capsys):
    call_command("check_ledger")
    Account.objects.update(balance_micros=1)
    assert selectors.drift(Q()) == 10_001
    with pytest.raises(CommandError):
        call_command("check_ledger")
    assert "WRONG" in capsys.readouterr().out


class TestRules:
    def test_a_change_goes_on_counting(self, ask, put):
        by = {"actor": "t"}
        put(64, "tvm", 2.0)
        tiers = [{"from_hit": 3, "per_hit_micros": 1}]
        says = {"name": "r", "currency": "EUR", "per_hit_micros": 10, "tiers": tiers}
        first = pricelist.add(PriceRule(**says), by)
        from dashboard.billing import rules

        rules.forget()
        ask(64)
        second = pricelist.change(first, PriceRule(**says), by)
        rules.forget()
        ask(64)
        ask(64)
        amounts = list(LedgerEntry.objects.order_by("pk").values_list("amount_micros", "rule"))
        assert amounts == [(-10, first.pk), (-10, second.pk), (-1, second.pk)]
        assert MonthCount.objects.get().hits == 3

    def test_what_ended_charges_nothing(self, ask, put, price):
        from dashboard.billing import rules

        put(64, "tvm", 2.0)
        rule = price(0.01)
        pricelist.end(rule.line, {"actor": "t"})
        rules.forget()
        assert ask(64).results[0].terms is None
        with pytest.raises(RequestError, match="has ended"):
            pricelist.change(rule, PriceRule(name="r", currency="EUR", per_hit_micros=10), {"actor": "t"})

    def test_what_begins_later_waits(self, ask, put, price):
        from datetime import timedelta

        put(64, "tvm", 2.0)
        price(0.01, from_at=timezone.now() + timedelta(hours=1))
        assert ask(64).results[0].terms is None

    def test_a_rule_for_one_organisation_is_in_its_accounts_currency(self, organisation, credit, price):
        credit(1)
        draft = PriceRule(name="r", currency="USD", organisation_id=organisation.pk)
        with pytest.raises(RequestError, match="kept in EUR"):
            pricelist.add(draft, {"actor": "t"})
        mine = price(0.01)
        price(0.01, currency="USD")
        assert selectors.prices_of(organisation.pk) == [mine]
