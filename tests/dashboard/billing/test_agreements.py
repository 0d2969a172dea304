"""A job that set a limit agrees on the price of further uses; each is charged when it is reported, once."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from catalog.models import AuditEntry, Usage
from catalog.people.keys import create_api_key
from dashboard.billing import pricelist, rules
from dashboard.billing.agreements import forget_old_agreements
from dashboard.billing.models import (
    Account,
    JobSpending,
    LedgerDay,
    LedgerEntry,
    MonthCount,
    PriceRule,
    UseAgreement,
)
from dashboard.billing.selectors import audit_ledger
from tests.catalog import making
from tests.conftest import Api

CLIENT = "c" * 32


@pytest.fixture
def lookup(api, target, setting):
    """``lookup(64, limit=5.0)`` → the results, of the job "run"."""

    def post(*lengths, limit=5.0, job="run", by=api, currency="EUR"):
        body = {
            "target": target.key,
            "setting": setting.key,
            "job": job,
            "operators": [{"key": making.relu(length).key} for length in lengths],
        }
        if limit is not None:
            body["spend_limit"] = {"amount_micros": round(limit * 1e6), "currency": currency}
        answer = by.post("lookup", body)
        assert answer.status_code == 200, answer.json()
        return answer.json()["results"]

    return post


@pytest.fixture
def report(api):
    """``report({agreement: 3}, sequence=1)`` → the answer."""

    def post(agreed, sequence=1, *, job="run", by=api, status=200, client=CLIENT):
        body = {
            "client": client,
            "sequence": sequence,
            "job": job,
            "used": [],
            "agreed": [{"agreement": one, "uses": uses} for one, uses in agreed.items()],
        }
        answer = by.post("usage", body)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return post


def agreement(item):
    return item["price"]["agreement"]


def charged():
    """Of each entry: covered uses, amount."""
    rows = LedgerEntry.objects.filter(kind="charge").order_by("pk")
    return [(row.uses, -row.amount_micros) for row in rows]


def check_books():
    assert all(one.is_right for one in audit_ledger())
    for spending in JobSpending.objects.all():
        spent = LedgerEntry.objects.filter(job_name=spending.job, organisation=spending.organisation)
        assert spending.spent_micros == -spent.aggregate(sum=Sum("amount_micros"))["sum"]


def test_each_use_is_charged_at_the_agreed_price_when_it_is_reported(lookup, report, put, price):
    made = put(64, "tvm", 2.0).implementation
    rule = price(0.01)
    (item,) = lookup(64)
    assert item["status"] == "hit" and item["price"]["amount_micros"] == 10_000
    agreed = agreement(item)
    assert (agreed["per_use_micros"], agreed["uses"], agreed["left_micros"]) == (10_000, 499, 4_990_000)
    assert 0 < agreed["expires_s"] <= 300
    assert report({agreed["id"]: 100}) == {"counted": 1, "repeated": False, "left_micros": 3_990_000}
    assert charged() == [(1, 10_000), (100, 1_000_000)]
    entry = LedgerEntry.objects.latest("pk")
    assert (entry.agreement, entry.rule, entry.list_micros) == (agreed["id"], rule, 1_000_000)
    usage = Usage.objects.get(pk=entry.usage_number)
    assert (usage.implementation, usage.calls, usage.job.name) == (made, 100.0, "run")
    assert (entry.operator_key, entry.job_name) == (usage.operator.key, "run")
    assert MonthCount.objects.get().hits == 101
    assert LedgerDay.objects.get().saved_us == 101 * 50.0
    check_books()


def test_a_limit_that_was_ended_makes_room_for_a_new_one(lookup, report, put, price, organisation):
    put(64, "tvm", 2.0)
    price(1.0)
    (item,) = lookup(64, limit=2.0)
    before = agreement(item)["id"]
    report({before: 1})
    assert lookup(64, limit=2.0)[0]["state"] == "payment_required"
    asking = Api(create_api_key(organisation, "bills", ["billing"])[1])
    (row,) = asking.get("billing/spending").json()
    assert (row["job"], row["spent_micros"], row["left_micros"], row["uses"]) == ("run", 2_000_000, 0, 2)
    asks = Api(create_api_key(organisation, "asks", ["lookup"])[1])
    assert asks.post(f"billing/spending/{row['id']}/end", {}).status_code == 403
    ended = asking.post(f"billing/spending/{row['id']}/end", {}).json()
    assert ended["ended_at"] and ended["spent_micros"] == 2_000_000
    audited = AuditEntry.objects.get(action="billing.spending.end")
    assert (audited.subject, audited.detail["spent_micros"]) == ("run", 2_000_000)
    assert asking.post(f"billing/spending/{row['id']}/end", {}).status_code == 400
    assert asking.post("billing/spending/999/end", {}).status_code == 404
    (item,) = lookup(64, limit=3.0)
    assert agreement(item)["left_micros"] == 2_000_000
    assert "left_micros" not in report({before: 1}, 2), "what was agreed on under it has ended as well"
    assert charged() == [(1, 1_000_000)] * 3
    assert [row["left_micros"] for row in asking.get("billing/spending").json()] == [2_000_000, 0]


def test_without_a_limit_all_is_as_before(lookup, put, price):
    put(64, "tvm", 2.0)
    price(0.01)
    (item,) = lookup(64, limit=None)
    assert "agreement" not in item["price"]
    assert not UseAgreement.objects.exists() and not JobSpending.objects.exists()


def test_a_report_that_arrives_twice_is_charged_once(lookup, report, put, price):
    put(64, "tvm", 2.0)
    price(0.01)
    name = agreement(lookup(64)[0])["id"]
    report({name: 3})
    assert report({name: 3}) == {"counted": 0, "repeated": True}
    assert report({name: 499}) == {"counted": 0, "repeated": True}, "the number names it, not what it says"
    report({name: 3}, sequence=2)
    assert charged() == [(1, 10_000), (3, 30_000), (3, 30_000)]
    check_books()


def test_no_more_is_charged_than_the_limit(lookup, report, put, price):
    put(64, "tvm", 2.0)
    put(65, "tvm", 2.0)
    price(0.03)
    first, second = map(agreement, lookup(64, 65, limit=1.0))
    assert first["uses"] == second["uses"] == 31 and first["left_micros"] == 940_000
    assert report({first["id"]: 20, second["id"]: 1_000})["left_micros"] == 10_000
    assert charged()[2:] == [(20, 600_000), (11, 330_000)]
    assert report({first["id"]: 5}, 2)["left_micros"] == 10_000
    assert charged()[4:] == [(0, 0)], "what was used beyond it is counted, and not charged"
    assert Usage.objects.latest("pk").calls == 5.0
    (item,) = lookup(64, limit=1.0)
    assert (item["status"], item["state"]) == ("miss", "payment_required")
    assert "run has spent 0.99 EUR of its limit of 1.00 EUR" in item["reason"]
    assert item["withheld"]["median_us"]
    assert lookup(64, limit=1.02)[0]["status"] == "hit", "a larger limit opens it again"
    assert "agreement" not in lookup(64, limit=1.05)[0]["price"], "nothing further is covered"
    check_books()


def test_concurrent_reports_share_one_limit(lookup, report, put, price, api_key, transactional_db):
    from django.db import connections

    put(64, "tvm", 2.0)
    price(0.01)
    name = agreement(lookup(64, limit=1.0)[0])["id"]
    start = threading.Barrier(4)

    def send(number):
        start.wait()
        for sequence in range(3):
            report({name: 30}, sequence, client=str(number) * 32, by=Api(api_key))
        connections.close_all()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(charged()) == 13 and sum(micros for _, micros in charged()) == 1_000_000
    assert sum(uses for uses, _ in charged()) == 100
    check_books()


class TestWhoseItIs:
    def test_another_organisations_agreement_is_none(self, lookup, report, put, price, tenant):
        put(64, "tvm", 2.0)
        price(0.01)
        theirs = Api(create_api_key(tenant, "theirs", ["lookup"])[1])
        name = agreement(lookup(64)[0])["id"]
        own = agreement(lookup(64, by=theirs)[0])["id"]
        assert own != name, "of the same job's name, and the same price"
        assert report({name: 3}, by=theirs) == {"counted": 0, "repeated": False}
        assert report({own: 3}, 2, by=theirs)["counted"] == 1
        assert {row.organisation_id: row.spent_micros for row in JobSpending.objects.all()} == {
            Account.objects.exclude(organisation=tenant).get().organisation_id: 10_000,
            tenant.pk: 40_000,
        }
        check_books()

    def test_nor_is_another_jobs(self, lookup, report, put, price):
        put(64, "tvm", 2.0)
        price(0.01)
        name = agreement(lookup(64)[0])["id"]
        assert report({name: 3}, job="another")["counted"] == 0
        assert report({"agr_" + "0" * 32: 3}, 2)["counted"] == 0
        assert charged() == [(1, 10_000)]

    @pytest.mark.parametrize("uses", [0, -1, 1.5, 10**9 + 1, "many", True, None])
    def test_what_is_no_count_is_refused(self, lookup, report, put, price, uses):
        put(64, "tvm", 2.0)
        price(0.01)
        name = agreement(lookup(64)[0])["id"]
        assert report({name: uses}, status=400)["where"].startswith("agreed")
        assert charged() == [(1, 10_000)] and not Usage.objects.filter(node__startswith="client").exists()

    @pytest.mark.parametrize("name", ["", "agr_", "agr_" + "G" * 32, "x" * 500, 7])
    def test_what_names_no_agreement_is_refused(self, report, name, db):
        assert report({name: 1}, status=400)["where"].startswith("agreed")


class TestLimits:
    @pytest.mark.parametrize(
        "limit",
        [
            5,
            "5 EUR",
            {"amount_micros": -1, "currency": "EUR"},
            {"amount_micros": 1.5, "currency": "EUR"},
            {"amount_micros": True, "currency": "EUR"},
            {"amount_micros": 10**15 + 1, "currency": "EUR"},
            {"amount_micros": 5, "currency": "euro"},
            {"amount_micros": 5},
            {"amount_micros": 5, "currency": "EUR", "per": "day"},
        ],
    )
    def test_what_is_no_limit_is_refused(self, api, target, limit):
        body = {"target": target.key, "operators": [{"key": making.relu(64).key}], "job": "run"}
        answer = api.post("lookup", body | {"spend_limit": limit})
        assert answer.status_code == 400 and answer.json()["where"] == "spend_limit"

    def test_it_is_a_jobs(self, api, target):
        body = {"target": target.key, "operators": [{"key": making.relu(64).key}]}
        limit = {"amount_micros": 5, "currency": "EUR"}
        answer = api.post("lookup", body | {"spend_limit": limit})
        assert answer.status_code == 400 and "name the job" in answer.json()["error"]

    def test_one_in_another_currency_covers_nothing_that_costs(self, lookup, put, price):
        put(64, "tvm", 2.0)
        put(65, "eager", 2.0)
        price(0.01, route="tvm")
        charged_one, free = lookup(64, 65, currency="USD")
        assert charged_one["state"] == "payment_required" and "is in USD" in charged_one["reason"]
        assert free["status"] == "hit" and charged() == []

    def test_credit_holds_beside_it_where_the_rule_withholds(self, lookup, report, put, price, credit):
        put(64, "tvm", 2.0)
        price(0.01, mode="withhold")
        assert lookup(64)[0]["state"] == "payment_required"
        credit(0.05)
        agreed = agreement(lookup(64)[0])
        assert (agreed["uses"], agreed["left_micros"]) == (4, 40_000)
        assert report({agreed["id"]: 100})["left_micros"] == 0
        assert charged() == [(1, 10_000), (4, 40_000)] and Account.objects.get().balance_micros == 0
        check_books()

    def test_a_plan_that_covers_all_makes_uses_free(self, lookup, report, put, price, organisation):
        put(64, "tvm", 2.0)
        price(0.01)
        Account.objects.create(organisation=organisation, currency="EUR", plan="prepaid")
        agreed = agreement(lookup(64, limit=0.0)[0])
        assert agreed["per_use_micros"] == 0
        report({agreed["id"]: 1_000})
        assert charged() == [(1, 0), (1_000, 0)]
        check_books()

    def test_tiers_and_caps_of_the_month_hold(self, lookup, report, put, price):
        put(64, "tvm", 2.0)
        price(0.01, tiers=[{"from_hit": 11, "per_hit_micros": 5_000}], cap_month_micros=300_000)
        agreed = agreement(lookup(64)[0])
        assert (agreed["per_use_micros"], agreed["uses"]) == (10_000, 9)
        report({agreed["id"]: 20})
        assert charged() == [(1, 10_000), (20, 9 * 10_000 + 11 * 5_000)]
        agreed = agreement(lookup(64)[0])
        assert (agreed["per_use_micros"], agreed["uses"]) == (5_000, 28)
        report({agreed["id"]: 1_000}, 2)
        assert Account.objects.get().balance_micros == -300_000
        assert agreement(lookup(64)[0])["per_use_micros"] == 0
        check_books()


class TestRulesThatChange:
    def test_what_was_agreed_holds_to_its_end_and_is_not_prolonged(self, lookup, report, put, price):
        put(64, "tvm", 2.0)
        rule = price(0.01)
        old = agreement(lookup(64)[0])
        assert agreement(lookup(64)[0])["id"] == old["id"], "the same is agreed on again: prolonged"
        dearer = PriceRule(name="dearer", currency="EUR", per_hit_micros=20_000)
        pricelist.change(rule, dearer, {"actor": "tests"})
        rules.forget()
        new = agreement(lookup(64)[0])
        assert new["id"] != old["id"] and new["per_use_micros"] == 20_000
        report({old["id"]: 1, new["id"]: 1})
        assert charged() == [(1, 10_000), (1, 10_000), (1, 20_000), (1, 10_000), (1, 20_000)]
        ended = UseAgreement.objects.get(reference=old["id"]).valid_until
        assert ended < UseAgreement.objects.get(reference=new["id"]).valid_until
        pricelist.end(rule.line, {"actor": "tests"})
        rules.forget()
        assert "price" not in lookup(64)[0]
        report({new["id"]: 1}, 2)
        assert charged()[-1] == (1, 20_000), "used while it held"
        check_books()

    def test_a_report_may_come_a_week_late_and_no_later(self, lookup, report, put, price):
        put(64, "tvm", 2.0)
        price(0.01)
        name = agreement(lookup(64)[0])["id"]
        UseAgreement.objects.update(valid_until=timezone.now() - timedelta(days=6))
        assert report({name: 1})["counted"] == 1 and not forget_old_agreements()
        UseAgreement.objects.update(valid_until=timezone.now() - timedelta(days=8))
        assert report({name: 1}, 2)["counted"] == 0
        assert forget_old_agreements() == 1 and charged() == [(1, 10_000)] * 2


def test_free_uses_of_the_same_report_are_counted_beside(lookup, api, put, price):
    put(64, "tvm", 2.0)
    free = put(65, "eager", 1.0).implementation
    price(0.01, route="tvm")
    name = agreement(lookup(64)[0])["id"]
    body = {
        "client": CLIENT,
        "sequence": 1,
        "job": "run",
        "used": [{"implementation": free.pk, "calls": 4}],
        "agreed": [{"agreement": name, "uses": 1}, {"agreement": name, "uses": 2}],
    }
    assert api.post("usage", body).json()["counted"] == 2
    assert charged() == [(1, 10_000), (3, 30_000)] and Usage.objects.count() == 3
    check_books()
