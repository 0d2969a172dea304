"""Billing over REST: tenants apart, what is refused, and the same figures as the pages."""

import pytest

from catalog.models import AuditEntry
from catalog.people.keys import create_api_key
from dashboard.billing import selectors
from dashboard.billing.models import Account, LedgerEntry, PriceRule
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


def test_a_rules_life(host, tenant):
    body = {
        "name": "Conv", "currency": "EUR", "op_type": "Conv", "per_hit_micros": 10_000, "mode": "withhold",
        "organisation": tenant.pk, "tiers": [{"from_hit": 10, "per_hit_micros": 5_000}],
    }  # fmt: skip
    made = host.post("billing/rules", body)
    assert made.status_code == 201, made.json()
    line = made.json()["line"]
    changed = host.post(f"billing/rules/{line}", body | {"per_hit_micros": 20_000})
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
    from django.utils import timezone

    today = timezone.now().date()
    (money,) = selectors.totals(Q(), today, today)
    (said,) = host.get("billing/usage", range="7d").json()["totals"]
    assert said["hits_billed"] == money.hits_billed == 4
    assert said["saved_s_per_unit"] == money.saved_s_per_unit
