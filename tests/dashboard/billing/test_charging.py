"""What a lookup charges and withholds."""

from copy import copy
from datetime import timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone

from catalog import models
from catalog.best.artifacts import file_path
from catalog.charging import withheld
from catalog.errors import JournalError, RequestError
from catalog.models import JobOperator, LookupTally, Usage
from catalog.usage.draining import drain_journal
from dashboard.billing import words
from dashboard.billing.models import Account, Held, LedgerEntry, MonthCount, Purchase
from dashboard.billing.preview import preview
from dashboard.billing.pricelist import check
from tests.catalog.making import write_file


def only(answer):
    (result,) = answer.results
    return result


def replaced(rule, **changes):
    found = copy(rule)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def balance():
    return Account.objects.get().balance_micros


def test_without_a_rule_nothing_is_charged_and_hits_are_journalled(ask, put):
    put(64, "eager", 1.0)
    assert only(ask(64)).terms is None
    assert not Usage.objects.exists()
    drain_journal()
    assert Usage.objects.count() == 1
    assert not LedgerEntry.objects.exists()
    assert not Account.objects.exists()


def test_a_charged_hit_is_served_with_its_price_and_one_entry_for_its_usage(ask, put, price, organisation):
    published = put(64, "tvm", 2.0, method="compiler")
    rule = price(0.01)
    result = only(ask(64, job="run 1", calls=3.0))
    assert result.status == "hit"
    assert (result.terms.price_micros, result.terms.currency, result.terms.rule) == (10_000, "EUR", rule.pk)
    assert (result.terms.withheld, result.terms.due_micros) == (False, 10_000)
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.amount_micros, entry.balance_after_micros) == ("charge", -10_000, -10_000)
    usage = Usage.objects.get(pk=entry.usage_number)
    assert (usage.implementation, usage.calls, usage.job.name) == (published.implementation, 3.0, "run 1")
    assert balance() == -10_000
    drain_journal()
    assert Usage.objects.count() == 1
    assert LookupTally.objects.get().hits == 1
    assert JobOperator.objects.get().hits == 1


def test_free_and_charged_hits_of_one_lookup_go_their_own_ways(ask, put, price):
    put(1, "eager", 1.0)
    put(2, "tvm", 2.0, method="compiler")
    price(0.01, method="compiler")
    first, second = ask(1, 2).results
    assert (first.terms, second.terms.price_micros) == (None, 10_000)
    assert Usage.objects.count() == 1
    drain_journal()
    assert Usage.objects.count() == 2
    assert LedgerEntry.objects.count() == 1


def test_a_journal_that_cannot_be_written_charges_nobody(ask, put, price, monkeypatch):
    put(1, "eager", 1.0)
    put(2, "tvm", 2.0, method="compiler")
    price(0.01, method="compiler")

    def full(entry):
        raise JournalError("The journal cannot be written (no space left).")

    monkeypatch.setattr("catalog.usage.journal.append_line", full)
    with pytest.raises(JournalError):
        ask(1, 2)
    assert not Usage.objects.exists()
    assert not LedgerEntry.objects.exists()
    assert not Account.objects.exists()


class TestTheDefaultItself:
    @pytest.fixture
    def default(self, put):
        return put(64, "eager", 1.0, purpose="default", final=False)

    def test_it_is_free_under_an_ordinary_rule(self, ask, default, price, credit):
        rule = price(0.01)
        assert only(ask(64)).terms is None
        assert not LedgerEntry.objects.exists()
        drain_journal()
        assert Usage.objects.get().is_default
        assert words.sentence(rule) == "Each hit costs 0.01 EUR. The default itself is free."

    def test_it_is_charged_under_one_that_says_so(self, ask, default, price):
        rule = price(0.01, charges_default=True)
        assert only(ask(64)).terms.price_micros == 10_000
        assert LedgerEntry.objects.get().usage_number == Usage.objects.get(is_default=True).pk
        assert words.sentence(rule) == "Each hit, the default itself too, costs 0.01 EUR."

    def test_the_rule_that_counts_decides_not_the_next_one(self, ask, default, price):
        price(0.01, priority=1)
        price(0.02, charges_default=True)
        assert only(ask(64)).terms is None

    def test_it_is_withheld_neither_from_lookups_nor_on_pages(self, ask, default, put, price, organisation):
        price(0.01, mode="withhold")
        assert only(ask(64)).status == "hit"
        assert withheld(organisation.pk, default.implementation) is None
        put(64, "tvm", 2.0)
        assert only(ask(64)).state == "payment_required"
        rule = price(0.01, mode="withhold", priority=1, charges_default=True)
        assert withheld(organisation.pk, default.implementation).rule == rule.pk

    def test_trying_a_rule_on_last_month_leaves_it_out(self, ask, default, put, price):
        put(65, "tvm", 2.0)
        ask(64, 65)
        drain_journal()
        Usage.objects.update(served_at=timezone.now().replace(day=1) - timedelta(days=2))
        rule = price(0.01)
        assert (preview(rule).hits, preview(rule).micros) == (1, 10_000)
        rule.charges_default = True
        assert (preview(rule).hits, preview(rule).micros) == (2, 20_000)


class TestWithheld:
    def test_the_item_is_empty_and_says_what_is_to_be_had(self, ask, put, price):
        put(64, "eager", 1.0)
        put(64, "tvm", 2.0, method="compiler")
        price(0.01, mode="withhold", method="compiler")
        result = only(ask(64, job="run"))
        assert (result.status, result.state) == ("miss", "payment_required")
        assert result.terms.withheld
        assert result.terms.price_micros == 10_000
        assert not LedgerEntry.objects.exists()
        assert not models.Miss.objects.exists()
        drain_journal()
        assert not Usage.objects.exists()
        assert LookupTally.objects.get().misses == 1
        assert Held.objects.get().times == 1

    def test_until_credit_covers_it_then_it_is_served_and_debited(self, ask, put, price, credit):
        put(64, "tvm", 2.0, method="compiler")
        price(0.01, mode="withhold")
        assert only(ask(64)).status == "miss"
        credit(0.025)
        assert only(ask(64)).status == "hit"
        assert only(ask(64)).status == "hit"
        assert only(ask(64)).state == "payment_required"
        assert balance() == 5_000
        assert LedgerEntry.objects.filter(kind="charge").count() == 2

    def test_within_one_lookup_as_many_as_the_credit_covers(self, ask, put, price, credit):
        for length in range(1, 6):
            put(length, "tvm", 2.0, method="compiler")
        price(0.01, mode="withhold")
        credit(0.03)
        answer = ask(*range(1, 6))
        assert answer.hits == 3
        assert [result.state for result in answer.results if result.status == "miss"] == [
            "payment_required"
        ] * 2
        assert balance() == 0

    def test_a_prepaid_plan_covers_it_and_the_entry_is_zero(self, ask, put, price, organisation):
        put(64, "tvm", 2.0)
        price(0.01, mode="withhold")
        Account.objects.create(organisation=organisation, currency="EUR", plan="prepaid")
        assert only(ask(64)).status == "hit"
        entry = LedgerEntry.objects.get()
        assert (entry.amount_micros, entry.list_micros) == (0, 10_000)

    def test_a_postpaid_plan_covers_down_to_its_limit(self, ask, put, price, organisation):
        put(64, "tvm", 2.0)
        price(0.01, mode="withhold")
        Account.objects.create(
            organisation=organisation, currency="EUR", plan="postpaid", credit_limit_micros=20_000
        )
        assert [only(ask(64)).status for _ in range(3)] == ["hit", "hit", "miss"]
        assert balance() == -20_000

    def test_whoever_was_charged_keeps_it(self, ask, put, price, credit, organisation):
        published = put(64, "tvm", 2.0)
        price(0.01, mode="withhold")
        assert withheld(organisation.pk, published.implementation)
        credit(0.01)
        assert withheld(organisation.pk, published.implementation).withheld  # covered, but not bought yet
        ask(64)
        assert withheld(organisation.pk, published.implementation) is None
        assert withheld(None, published.implementation) is None


class TestTiersAndCaps:
    def test_from_the_third_hit_it_is_cheaper_and_the_cap_ends_it(self, ask, put, price):
        put(64, "tvm", 2.0)
        price(0.01, tiers=[{"from_hit": 3, "per_hit_micros": 5_000}], cap_month_micros=28_000)
        charged = [only(ask(64)).terms.price_micros for _ in range(5)]
        assert charged == [10_000, 10_000, 5_000, 3_000, 0]
        assert LedgerEntry.objects.count() == 5
        assert MonthCount.objects.get().hits == 5

    def test_one_operator_costs_no_more_than_its_cap(self, ask, put, price):
        put(1, "tvm", 2.0)
        put(2, "tvm", 2.0)
        price(0.01, cap_operator_month_micros=15_000)
        for _ in range(2):
            ask(1, 2)
        assert balance() == -30_000

    def test_by_time_saved(self, ask, put, price):
        put(64, "tvm", 2.0)  # 50 of 100 µs
        price(per_saved_second=2.0)
        assert only(ask(64, calls=10_000)).terms.price_micros == 1_000_000  # half a second


class TestMatching:
    def test_an_exception_of_higher_priority_is_free(self, ask, put, price):
        put(64, "eager", 1.0)
        price(0.01)
        price(mode="free", method="library", priority=1)
        assert only(ask(64)).terms is None
        assert not LedgerEntry.objects.exists()

    def test_the_more_particular_of_equals(self, ask, put, price):
        put(64, "tvm", 1.0)
        price(0.01)
        price(0.02, route="tvm")
        price(0.03, op_type="Conv")
        assert only(ask(64)).terms.price_micros == 20_000

    def test_by_op_type(self, ask, put, price):
        put(64, "tvm", 1.0)
        price(0.03, op_type="Relu")
        assert only(ask(64)).terms.price_micros == 30_000

    def test_another_organisations_rule_is_not_ours(self, ask, put, price):
        put(64, "tvm", 1.0)
        price(0.03, organisation=models.Organisation.objects.create(name="other"))
        assert only(ask(64)).terms is None

    def test_a_rule_in_another_currency_than_the_accounts_does_not_apply(self, ask, put, price, credit):
        put(64, "tvm", 1.0)
        credit(1)
        price(0.03, currency="USD")
        assert only(ask(64)).terms is None
        drain_journal()
        assert Usage.objects.count() == 1


def test_free_lookups_cost_no_statement_more(ask, put, django_assert_num_queries):
    from dashboard.billing import rules

    for length in range(1, 31):
        put(length, "eager", 1.0)
    rules.in_force(1)  # once a second and process
    with django_assert_num_queries(1):
        assert ask(*range(1, 31)).hits == 30


def test_what_a_charged_lookup_costs_does_not_grow_with_its_hits(ask, put, price, queries_in):
    for length in range(1, 61):
        put(length, "tvm", 2.0)
    price(0.01, cap_operator_month_micros=10**9)
    ask(1, job="run")
    few = queries_in(lambda: ask(1, 2, job="run"))
    many = queries_in(lambda: ask(*range(1, 41), job="run"))
    assert many <= few


@pytest.fixture
def queries_in():
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def count(call):
        with CaptureQueriesContext(connection) as queries:
            call()
        return len(queries)

    return count


def test_what_is_damaged_in_the_store_is_not_charged(ask, put, price, tmp_path):
    folder = tmp_path / "made"
    files = write_file(folder, "kernel.so", b"code")
    put(64, "tvm", 2.0, method="compiler", kind="c-abi", needs={}, files=files, folder=folder)
    put(64, "eager", 1.0)
    price(0.01, method="compiler")
    file_path(files["kernel.so"]).write_bytes(b"c0de")
    result = only(ask(64, include=frozenset({"manifest"})))
    assert (result.status, result.best.route, result.terms) == ("hit", "eager", None)
    assert not LedgerEntry.objects.exists()


class TestWithheldIsNotOpenedForNothing:
    """Callers say how often they call: however little, what is withheld costs a call."""

    @pytest.mark.parametrize("calls", [1e-300, 5e-324, 1e-9, 0.4])
    def test_by_less_than_one_call(self, ask, put, price, credit, organisation, calls):
        published = put(64, "tvm", 2.0)  # saves 50 µs a call
        price(per_saved_second=1000.0, mode="withhold")
        assert only(ask(64, calls=calls)).state == "payment_required"
        assert withheld(organisation.pk, published.implementation) is not None
        assert not Purchase.objects.exists()
        credit(1.0)
        assert only(ask(64, calls=calls)).terms.price_micros == 50_000
        assert withheld(organisation.pk, published.implementation) is None  # its job fetches it now
        Purchase.objects.update(ends_at=timezone.now())
        assert withheld(organisation.pk, published.implementation) is not None

    def test_by_time_saved_alone(self, price):
        """Callers say how much they save: what withholds has a price a hit in each tier."""
        draft = price(0.01, 2.0, mode="withhold", tiers=[{"from_hit": 9, "per_hit_micros": 5}])
        check(draft)
        for wrong, where in (
            ({"per_hit_micros": 0}, "per_hit_micros"),
            ({"tiers": [{"from_hit": 9, "per_hit_micros": 0, "per_saved_second_micros": 1}]}, "tiers"),
        ):
            with pytest.raises(RequestError, match="sold by the hit") as refused:
                check(replaced(draft, **wrong))
            assert refused.value.where == where
            check(replaced(draft, **wrong, mode="prompt"))

    def test_what_was_paid_under_another_price_is_not_withheld_later(
        self, ask, put, price, credit, organisation
    ):
        paid, saved = put(64, "tvm", 2.0), put(65, "eager", 2.0)
        price(0.01, route="tvm")
        price(per_saved_second=1.0, route="eager")
        ask(64, 65)
        price(5.0, mode="withhold", priority=1)
        assert withheld(organisation.pk, paid.implementation) is None
        assert withheld(organisation.pk, saved.implementation) is not None  # the time, not the thing

    def test_by_what_an_earlier_release_opened_for_nothing(self, ask, put, price, credit, organisation):
        """Purchases of 0 that were for ever."""
        free, paid, old = (put(length, "tvm", 2.0).implementation for length in (64, 65, 66))
        price(0.01, mode="withhold", priority=-1)
        credit(0.01)
        ask(65)
        price(0.0, mode="withhold")
        ask(64, 65)
        assert {one.amount_micros for one in LedgerEntry.objects.filter(kind="charge")} == {0, -10_000}
        began = timezone.now() - timedelta(days=9)
        Purchase.objects.create(organisation=organisation, implementation=old, first_at=began)
        Purchase.objects.update(ends_at=None, first_at=began)
        import_module("dashboard.billing.migrations.0010_purchases_of_nothing").end(apps, None)
        ended = dict(Purchase.objects.values_list("implementation", "ends_at"))
        assert ended == {free.pk: began + timedelta(hours=1), paid.pk: None, old.pk: None}  # untold

    def test_by_an_amount_that_rounds_to_nothing(self, ask, put, price, credit, organisation):
        published = put(64, "tvm", 2.0)
        price(per_saved_second=0.001, mode="withhold")  # 0.05 millionths a call
        assert only(ask(64)).state == "payment_required"
        assert withheld(organisation.pk, published.implementation).price_micros == 1

    def test_for_longer_than_a_plan_that_covered_it(self, ask, put, price, organisation):
        published = put(64, "tvm", 2.0)
        price(0.01, mode="withhold")
        account = Account.objects.create(organisation=organisation, currency="EUR", plan="prepaid")
        assert only(ask(64)).terms.price_micros == 0
        account.plan = "none"
        account.save()
        assert withheld(organisation.pk, published.implementation) is None  # its job fetches it now
        Purchase.objects.update(ends_at=timezone.now())
        assert withheld(organisation.pk, published.implementation) is not None

    def test_free_hits_open_what_they_served_until_it_was_fetched(
        self, ask, put, price, credit, organisation
    ):
        published = put(64, "tvm", 2.0)
        price(0.0, mode="withhold", tiers=[{"from_hit": 2, "per_hit_micros": 10_000}])
        assert only(ask(64)).status == "hit"
        assert withheld(organisation.pk, published.implementation) is None
        Purchase.objects.update(ends_at=timezone.now())
        assert withheld(organisation.pk, published.implementation) is not None
        credit(0.01)
        assert only(ask(64)).status == "hit"  # paid now, and a free hit later takes nothing away
        assert Purchase.objects.get().ends_at is None
        MonthCount.objects.all().delete()
        assert only(ask(64)).terms.price_micros == 0
        assert Purchase.objects.get().ends_at is None

    def test_an_account_owes_no_more_than_can_be_written(self, ask, put, price, organisation):
        put(64, "tvm", 2.0)
        price(0.01)
        Account.objects.create(organisation=organisation, currency="EUR", balance_micros=-(10**18) + 5_000)
        assert only(ask(64)).state == "payment_required"
        assert balance() == -(10**18) + 5_000
