"""Billing over REST: tenants apart, what is refused, and the same figures as the pages."""

import time
from datetime import timedelta
from unittest import mock

import pytest
from django.utils import timezone

from catalog.models import AuditEntry, Usage
from catalog.people.keys import create_api_key
from catalog.usage.draining import drain_journal
from dashboard.billing import selectors
from dashboard.billing.models import Account, LedgerEntry, PriceRule
from dashboard.billing.trying import SEEN_FOR
from tests.conftest import Api


@pytest.fixture
def mine(tenant):
    return Api(create_api_key(tenant, "bills", ["billing"])[1])


@pytest.fixture
def host(organisation):
    return Api(create_api_key(organisation, "bills", ["billing"])[1])


@pytest.fixture
def busy(ask, put, price, credit, tenant):
    for length in range(1, 4):
        put(length, "tvm", 2.0, method="compiler")
    rule = price(0.5, method="compiler")
    credit(10, to=tenant)
    ask(1, 2, 3, organisation=tenant, job="train")
    ask(1, job="own")
    return rule


READS = ("account", "ledger", "usage", "prices")


def test_a_tenant_sees_its_own(mine, busy, tenant):
    account = mine.get("billing/account").json()
    assert (account["balance_micros"], account["currency"], account["drift_micros"]) == (8_500_000, "EUR", 0)
    assert account["reference"] == Account.objects.get(organisation=tenant).reference
    rows = mine.get("billing/ledger").json()["results"]
    assert [row["kind"] for row in rows] == ["charge"] * 3 + ["credit"]
    assert {row["organisation"] for row in rows} == {"Tenant"}
    usage = mine.get("billing/usage").json()
    assert usage["totals"][0]["charged_micros"] == 1_500_000
    assert usage["days"][0]["hits_billed"] == 3
    (price,) = mine.get("billing/prices").json()
    assert price["line"] == str(busy.line)
    assert price["words"] == "Each compiler hit costs 0.50 EUR. The default itself is free."


@pytest.mark.parametrize("path", READS)
def test_a_tenant_sees_nobody_elses(mine, busy, organisation, path):
    assert mine.get(f"billing/{path}", organisation=organisation.pk).status_code == 404


def test_prices_and_credit_are_the_hosts(mine, busy, tenant):
    line = busy.line
    answers = [
        mine.get("billing/rules"),
        mine.get(f"billing/rules/{line}"),
        mine.post("billing/rules", {"name": "n", "currency": "EUR"}),
        mine.post(f"billing/rules/{line}", {"name": "n", "currency": "EUR"}),
        mine.post(f"billing/rules/{line}/end"),
        mine.post("billing/credit", {"organisation": tenant.pk, "amount_micros": 5, "currency": "EUR",
                                     "reason": "me"}),
    ]  # fmt: skip
    assert [answer.status_code for answer in answers] == [403] * 6
    assert PriceRule.objects.count() == 1


@pytest.mark.parametrize("path", [*READS, "rules"])
def test_bills_need_the_billing_scope(api_with, make_key, path):
    assert api_with(make_key("lookup", "operate", "approve")).get(f"billing/{path}").status_code == 403
    assert api_with(None).get(f"billing/{path}").status_code == 401


def test_the_host_sees_all_and_each(host, busy, tenant):
    assert len(host.get("billing/ledger").json()["results"]) == 5
    assert len(host.get("billing/ledger", organisation=tenant.pk).json()["results"]) == 4
    assert host.get("billing/usage").json()["totals"][0]["charged_micros"] == 2_000_000
    assert host.get("billing/account", organisation=tenant.pk).json()["organisation"] == "Tenant"


def test_the_ledger_is_read_page_by_page(host, busy):
    seen, path = [], "billing/ledger?limit=2"
    while path:
        page = host.get(path).json()
        seen += [row["id"] for row in page["results"]]
        path = page["next"] and page["next"].removeprefix("/api/v1/")
    assert seen == list(LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True))


@pytest.mark.parametrize(
    "query",
    [{"limit": "0"}, {"limit": "x"}, {"before": "-1"}, {"kind": "gift"}, {"method": "magic"}, {"since": "x"},
     {"organisation": "x"}],
)  # fmt: skip
def test_what_is_not_understood_is_refused(host, busy, query):
    answer = host.get("billing/ledger", **query)
    assert answer.status_code == 400
    assert answer.json()["error"]


def put_in_force(host, path, body):
    """As a program does: tried first, then sent again with what that said."""
    tried = host.post(path, body | {"dry_run": True})
    assert tried.status_code == 200, tried.json()
    return host.post(path, body | {"confirm": tried.json()["confirm"]})


def test_a_rules_life(host, tenant):
    body = {
        "name": "Conv", "currency": "EUR", "op_type": "Conv", "per_hit_micros": 10_000, "mode": "withhold",
        "organisation": tenant.pk, "tiers": [{"from_hit": 10, "per_hit_micros": 5_000}],
    }  # fmt: skip
    made = put_in_force(host, "billing/rules", body)
    assert made.status_code == 201, made.json()
    line = made.json()["line"]
    changed = put_in_force(host, f"billing/rules/{line}", body | {"per_hit_micros": 20_000})
    assert (changed.status_code, changed.json()["version"]) == (201, 2)
    versions = host.get(f"billing/rules/{line}").json()
    assert [one["per_hit_micros"] for one in versions] == [20_000, 10_000]
    assert host.post(f"billing/rules/{line}/end").status_code == 200
    again = host.post(f"billing/rules/{line}/end")
    assert (again.status_code, again.json()["error"]) == (400, "This rule has ended already.")
    assert len(host.get("billing/rules").json()) == 2
    actions = AuditEntry.objects.filter(action__startswith="billing").order_by("pk")
    assert [row.action for row in actions] == ["billing.rule.add", "billing.rule.change", "billing.rule.end"]
    assert AuditEntry.objects.count() == 3
    ended = host.post(f"billing/rules/{line}", body)
    assert (ended.status_code, ended.json()["error"]) == (400, "This rule has ended: add a new one.")


class TestConfirming:
    BODY = {"name": "Relus", "currency": "EUR", "op_type": "Relu", "per_hit_micros": 10_000,
            "tiers": [{"from_hit": 3, "per_hit_micros": 5_000}]}  # fmt: skip

    @pytest.fixture(autouse=True)
    def three_hits_last_month(self, ask, put):
        put(1, "tvm", 2.0, method="compiler")
        for _ in range(3):
            ask(1)
        drain_journal()
        Usage.objects.update(served_at=timezone.now().replace(day=1) - timedelta(days=2))

    def test_a_price_that_nobody_confirmed_is_refused_with_what_it_would_have_cost(self, host, organisation):
        refused = host.post("billing/rules", self.BODY)
        said = refused.json()
        assert (refused.status_code, said["where"]) == (409, "confirm")
        assert "it would have charged 0.0250 EUR for 3 hits of 1 organisation" in said["error"]
        tried = said["tried"]
        assert (tried["holds_for"], tried["everybody"], tried["begins"]) == ("", 1, None)
        seen = {
            name: tried["preview"][name] for name in ("hits", "organisations", "charged_micros", "currency")
        }
        assert seen == {"hits": 3, "organisations": 1, "charged_micros": 25_000, "currency": "EUR"}
        paying = {"organisation": organisation.name, "hits": 3, "charged_micros": 25_000, "currency": "EUR"}
        assert tried["preview"]["by_organisation"] == [paying]
        assert not PriceRule.objects.exists()
        assert host.post("billing/rules", self.BODY | {"confirm": tried["confirm"]}).status_code == 201

    def test_trying_one_says_the_same_and_changes_nothing(self, host):
        tried = host.post("billing/rules", self.BODY | {"dry_run": True})
        again = host.post("billing/rules", self.BODY)
        assert {**tried.json(), "confirm": ""} == {**again.json()["tried"], "confirm": ""}
        assert not PriceRule.objects.exists() and not AuditEntry.objects.exists()

    def test_only_what_was_tried_is_confirmed(self, host):
        confirm = host.post("billing/rules", self.BODY).json()["tried"]["confirm"]
        for other in ({"per_hit_micros": 10_001}, {"op_type": ""}, {"mode": "withhold"}, {"confirm": "yes"}):
            refused = host.post("billing/rules", self.BODY | {"confirm": confirm} | other)
            assert refused.status_code == 409 and "is not what was tried" in refused.json()["error"], other
        with mock.patch("time.time", return_value=time.time() + SEEN_FOR.total_seconds() + 1):
            assert host.post("billing/rules", self.BODY | {"confirm": confirm}).status_code == 409
        Usage.objects.update(lookups=1000)  # it would have cost more than was seen
        assert host.post("billing/rules", self.BODY | {"confirm": confirm}).status_code == 409
        assert not PriceRule.objects.exists()

    def test_a_version_is_confirmed_against_the_one_that_it_follows(self, host):
        path = f"billing/rules/{put_in_force(host, 'billing/rules', self.BODY).json()['line']}"
        dear, free = self.BODY | {"per_hit_micros": 99}, self.BODY | {"mode": "free"}
        confirm = host.post(path, dear).json()["tried"]["confirm"]
        assert put_in_force(host, path, free).status_code == 201  # by somebody else, meanwhile
        assert host.post(path, dear | {"confirm": confirm}).status_code == 409
        assert PriceRule.objects.order_by("-version")[0].mode == "free"

    def test_the_page_takes_what_rest_said_and_the_other_way_round(self, host, client, admin_user):
        confirm = host.post("billing/rules", self.BODY).json()["tried"]["confirm"]
        client.force_login(admin_user)
        form = {"name": "Relus", "currency": "EUR", "op_type": "Relu", "per_hit": "0.01", "tiers": "3 0.005",
                "mode": "prompt", "priority": "0"}  # fmt: skip
        assert client.post("/billing/prices/new/", form | {"confirm": confirm}).status_code == 302
        assert PriceRule.objects.get().per_hit_micros == 10_000


@pytest.mark.parametrize(
    ("field", "value"),
    [("currency", "XXX"), ("per_hit_micros", -1), ("per_hit_micros", 10**16), ("mode", "steal"), ("name", ""),
     ("tiers", [{"from_hit": 1, "per_hit_micros": 1}]), ("tiers", [{"from_hit": 5}]), ("tiers", "x"),
     ("tiers", [{"from_hit": 5, "per_hit_micros": 1}, {"from_hit": 5, "per_hit_micros": 1}]),
     ("organisation", 10**6), ("cap_month_micros", 1.5), ("until_at", "2001-01-01T00:00:00Z"),
     ("route", "tvmm"), ("op_type", "Convv"), ("from_at", "2020-01-01T00:00:00Z")],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(host, field, value):
    body = {"name": "n", "currency": "EUR", "from_at": "2100-01-01T00:00:00Z"}
    answer = host.post("billing/rules", body | {field: value})
    assert answer.status_code == 400
    assert answer.json()["where"].startswith(field)
    assert not PriceRule.objects.exists()


def test_an_unknown_rule_is_a_404(host):
    line = "00000000-0000-0000-0000-000000000000"
    assert host.get(f"billing/rules/{line}").status_code == 404
    assert host.post(f"billing/rules/{line}/end").status_code == 404


def test_credit_by_hand(host, tenant):
    body = {"organisation": tenant.pk, "amount_micros": 7, "currency": "EUR", "reason": "goodwill"}
    assert host.post("billing/credit", body).status_code == 201
    assert host.post("billing/credit", body | {"amount_micros": 0}).status_code == 400
    assert host.post("billing/credit", body | {"currency": "USD"}).status_code == 400
    assert host.post("billing/credit", body | {"organisation": 10**9}).status_code == 404
    assert Account.objects.get(organisation=tenant).balance_micros == 7
    (entry,) = AuditEntry.objects.filter(action="billing.credit")
    assert (entry.detail["reason"], entry.api_key.name) == ("goodwill", "bills")


def test_the_api_says_what_the_pages_read(host, busy):
    from django.db.models import Q

    today = timezone.now().date()
    (money,) = selectors.totals(Q(), today, today)
    (said,) = host.get("billing/usage", range="7d").json()["totals"]
    assert said["hits_billed"] == money.hits_billed == 4
    assert said["saved_s_per_unit"] == money.saved_s_per_unit
