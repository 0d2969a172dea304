"""Billing's pages: who sees what, forms, exports, and bounded queries."""

import json
import re

import pytest

from catalog.models import AuditEntry, Organisation, Usage
from dashboard.billing.models import Account, LedgerEntry, PriceRule
from tests.dashboard.people import member_client


@pytest.fixture
def tenant(db):
    return Organisation.objects.create(name="Tenant Works")


@pytest.fixture
def host(organisation):
    """Somebody of the host organisation with the billing role."""
    return member_client(organisation, "billing")


@pytest.fixture
def busy(ask, put, price, credit, tenant):
    """Charges of a tenant and of the host."""
    for length in range(1, 5):
        put(length, "tvm", 2.0, method="compiler")
    put(9, "eager", 1.0)
    rule = price(0.5, name="Compilers", method="compiler")
    credit(10, to=tenant)
    ask(*range(1, 5), 9, organisation=tenant, job="train")
    ask(1, job="own")
    return rule


def text_of(answer):
    assert answer.status_code == 200, answer.content[:500]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_a_tenant_sees_its_prices_its_charges_and_its_credit(tenant, busy):
    text = text_of(member_client(tenant, "billing").get("/billing/"))
    assert "Each compiler hit costs 0.50 EUR" in text
    assert "8.00 EUR" in text  # in credit
    assert "2.00 EUR" in text  # charged
    assert Account.objects.get(organisation=tenant).reference in text
    assert "Give credit" not in text


def test_a_tenant_sees_nothing_of_others(tenant, busy, organisation):
    mine = member_client(tenant, "billing")
    assert mine.get(f"/billing/organisations/{organisation.pk}/").status_code == 404
    for path in ("/billing/prices/", "/billing/prices/new/", f"/billing/prices/{busy.line}/"):
        assert mine.get(path).status_code == 403, path
    answer = mine.get("/billing/ledger/", {"export": "json", "organisation": organisation.pk})
    rows = json.loads(answer.content)["rows"]
    assert len(rows) == 5
    assert Organisation.objects.get(pk=organisation.pk).ledger.count() == 1


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_bills_are_for_the_billing_role(tenant, role):
    reader = member_client(tenant, role)
    assert reader.get("/billing/").status_code == 403
    assert reader.get("/billing/ledger/").status_code == 403
    assert reader.post(f"/billing/organisations/{tenant.pk}/credit/").status_code == 403


def test_a_tenants_billing_role_cannot_give_itself_credit_or_a_plan(tenant):
    mine = member_client(tenant, "billing")
    for verb, fields in (("credit", {"amount": "5", "reason": "me"}), ("plan", {"plan": "prepaid"})):
        assert mine.post(f"/billing/organisations/{tenant.pk}/{verb}/", fields).status_code == 403
    assert not LedgerEntry.objects.exists()


def test_the_host_sees_all_organisations_and_each(host, tenant, busy):
    text = text_of(host.get("/billing/"))
    assert "Tenant Works" in text and "default" in text
    assert "2.50 EUR" in text  # charged in all
    assert "8.00 EUR" in text_of(host.get(f"/billing/organisations/{tenant.pk}/"))


def test_credit_by_hand_needs_a_reason_and_is_in_the_audit_log(host, tenant):
    path = f"/billing/organisations/{tenant.pk}/credit/"
    refused = host.post(path, {"amount": "5", "reason": ""})
    assert refused.status_code == 400
    assert not LedgerEntry.objects.exists()
    assert host.post(path, {"amount": "5.25", "reason": "goodwill"}).status_code == 302
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.amount_micros, entry.reason) == ("credit", 5_250_000, "goodwill")
    assert host.post(path, {"amount": "-1", "reason": "typed wrong"}).status_code == 302
    assert Account.objects.get(organisation=tenant).balance_micros == 4_250_000
    actions = AuditEntry.objects.filter(organisation=tenant).order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["billing.credit", "billing.adjustment"]


@pytest.mark.parametrize("amount", ["0", "x", "1e99", "0.0000001", "NaN", ""])
def test_an_amount_that_cannot_be_is_refused_with_a_sentence(host, tenant, amount):
    answer = host.post(f"/billing/organisations/{tenant.pk}/credit/", {"amount": amount, "reason": "r"})
    assert answer.status_code == 400
    assert 'class="wrong"' in answer.content.decode()
    assert not LedgerEntry.objects.exists()


def test_a_plan_is_given_until_a_date(host, tenant):
    path = f"/billing/organisations/{tenant.pk}/plan/"
    fields = {"plan": "postpaid", "until": "2030-01-01", "credit_limit": "20"}
    assert host.post(path, fields).status_code == 302
    account = Account.objects.get(organisation=tenant)
    assert (account.plan, account.plan_until.year, account.credit_limit_micros) == (
        "postpaid",
        2030,
        20_000_000,
    )
    assert host.post(path, {"plan": "gold"}).status_code == 400


RULE = {
    "name": "Convolutions", "mode": "withhold", "currency": "EUR", "per_hit": "0.01", "priority": "3",
    "op_type": "Conv", "tiers": "1001 0.005\n5001 0.001", "cap_month": "20",
}  # fmt: skip


def put_in_force(host, path, rule):
    """As somebody does: try it, look, and confirm exactly that."""
    tried = host.post(path, rule)
    assert tried.status_code == 200, text_of(tried)
    return host.post(path, rule | {"confirm": confirm_of(tried)})


def confirm_of(tried):
    """What the button under a price that was tried confirms."""
    (confirm,) = re.findall(r'name="confirm" value="([^"]+)"', tried.content.decode())
    return confirm


def test_a_rule_is_added_changed_and_ended_and_every_version_is_kept(host):
    assert put_in_force(host, "/billing/prices/new/", RULE).status_code == 302
    first = PriceRule.objects.get()
    assert (first.per_hit_micros, first.cap_month_micros, first.version) == (10_000, 20_000_000, 1)
    assert first.tiers[1] == {"from_hit": 5001, "per_hit_micros": 1_000}
    path = f"/billing/prices/{first.line}/"
    assert 'value="0.01"' in host.get(path).content.decode()
    assert put_in_force(host, path, RULE | {"per_hit": "0.02"}).status_code == 302
    old, new = PriceRule.objects.order_by("version")
    assert (old.per_hit_micros, new.per_hit_micros, new.version) == (10_000, 20_000, 2)
    assert old.until_at == new.from_at
    assert host.post(f"{path}end/").status_code == 302
    assert PriceRule.objects.filter(until_at=None).count() == 0
    assert "has ended" in text_of(host.get(path))
    assert host.post(path, RULE).status_code == 400  # an ended rule stays ended
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {
        "billing.rule.add",
        "billing.rule.change",
        "billing.rule.end",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("tiers", "ten 0.1"), ("tiers", "5 0.1\n3 0.1"), ("tiers", "1 0.1"), ("per_hit", "-1"), ("name", ""),
     ("cap_month", "1e30"), ("currency", "XXX"), ("priority", "5000"), ("tiers", "5 NaN"),
     ("route", "tvmm"), ("op_type", "Convv"), ("from_at", "2020-01-01T00:00")],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused_and_keeps_what_was_typed(host, field, value):
    answer = host.post("/billing/prices/new/", RULE | {field: value})
    assert answer.status_code == 400
    assert 'class="wrong"' in answer.content.decode()
    if field != "name":
        assert "Convolutions" in answer.content.decode()
    assert not PriceRule.objects.exists()


@pytest.mark.parametrize("field", ["route", "op_type"])
def test_what_there_is_to_charge_for_is_chosen_not_typed(host, field):
    page = host.get("/billing/prices/new/").content.decode()
    offered = re.search(rf'<select name="{field}".*?</select>', page, re.DOTALL)
    assert offered and {"route": ">tvm<", "op_type": ">Conv<"}[field] in offered[0]


def test_a_price_counts_only_after_it_was_seen_what_it_would_have_cost(host, tenant):
    path, dear = "/billing/prices/new/", RULE | {"per_hit": "9999", "tiers": ""}
    seen = {}
    for name, rule in (("cheap", RULE), ("dear", dear)):
        tried = host.post(path, rule)
        seen[name] = confirm_of(tried)
    text = text_of(tried)
    assert "costs 9,999.00 EUR" in text and "it holds for every organisation , 2 today" in text
    again = host.post(path, dear | {"confirm": seen["cheap"]})  # what was looked at was another price
    assert "the price was changed after it was tried" in text_of(again)
    assert not PriceRule.objects.exists()
    assert host.post(path, dear | {"confirm": seen["dear"]}).status_code == 302
    assert PriceRule.objects.get().per_hit_micros == 9_999_000_000


def test_a_rule_is_tried_on_last_month_without_changing_anything(host, ask, put, organisation):
    from datetime import timedelta

    from django.utils import timezone

    from catalog.models import Usage
    from catalog.usage.draining import drain_journal

    put(1, "tvm", 2.0, method="compiler")
    for _ in range(3):
        ask(1)
    drain_journal()
    last_month = timezone.now().replace(day=1) - timedelta(days=2)
    Usage.objects.update(served_at=last_month)
    rule = RULE | {"op_type": "Relu", "tiers": "3 0.005"}
    text = text_of(host.post("/billing/prices/new/", rule))
    assert "would have charged 0.0250 EUR for 3 hits of 1 organisation" in text
    assert f"{organisation.name} 3 0.0250 EUR" in text
    assert not PriceRule.objects.exists()


class TestLedger:
    def test_it_is_filtered_and_exported(self, host, tenant, busy):
        rows = json.loads(host.get("/billing/ledger/", {"export": "json"}).content)["rows"]
        assert [row["kind"] for row in rows] == ["charge"] * 5 + ["credit"]
        credits = host.get("/billing/ledger/", {"export": "json", "kind": "credit"})
        assert [row["amount_micros"] for row in json.loads(credits.content)["rows"]] == [10_000_000]
        mine = host.get(
            "/billing/ledger/", {"export": "csv", "organisation": tenant.pk, "method": "compiler"}
        )
        assert len(mine.content.decode().splitlines()) == 1 + 4

    def test_older_entries_are_a_page_further(self, host, ask, put, price, monkeypatch):
        put(1, "tvm", 2.0)
        price(0.01)
        monkeypatch.setattr("dashboard.billing.pages.ledger.PAGE_SIZE", 2)
        for _ in range(3):
            ask(1)
        numbers = list(LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True))
        page = host.get("/billing/ledger/").content.decode()
        assert f"before={numbers[1]}" in page
        older = host.get("/billing/ledger/", {"before": numbers[1]}).content.decode()
        assert "Newest" in older and "Older" not in older

    @pytest.mark.parametrize(
        "query", [{"before": "x"}, {"before": "9" * 30}, {"kind": "x"}, {"range": "x"}, {"since": "x"},
                  {"organisation": "x"}, {"organisation": "9" * 18}],
    )  # fmt: skip
    def test_what_the_address_cannot_mean_breaks_nothing(self, host, busy, query):
        assert host.get("/billing/ledger/", query).status_code == 200


@pytest.mark.parametrize("path", ["/billing/", "/billing/ledger/", "/billing/prices/", "/billing/of/"])
def test_no_page_asks_once_a_row(host, tenant, ask, put, price, path, organisation):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    path = path.replace("/of/", f"/organisations/{organisation.pk}/")

    def queries():
        with CaptureQueriesContext(connection) as seen:
            assert host.get(path).status_code == 200
        return len(seen)

    for length in range(1, 21):
        put(length, "tvm", 2.0)
    price(0.01)
    ask(1, job="a")
    few = queries()
    for number in range(10):
        Organisation.objects.create(name=f"o{number}")
        price(0.02, name=f"rule {number}", route="mkl")
        ask(*range(1, 21), job=f"job {number}")
    assert queries() <= few


def test_exports_of_every_table(host, tenant, busy, organisation):
    for table in ("charges", "withheld", "organisations", "prices"):
        answer = host.get("/billing/", {"export": "json", "table": table})
        assert answer.status_code == 200, table
    for table in ("charges", "prices", "ledger"):
        answer = host.get(f"/billing/organisations/{tenant.pk}/", {"export": "csv", "table": table})
        assert answer.status_code == 200, table


def test_the_address_to_pay_at_is_the_page(client):
    from django.urls import reverse

    from dashboard.billing.desk import PAY_URL

    assert reverse("billing") == PAY_URL


def test_an_entry_leads_from_a_charge_to_the_hit_that_was_served(tenant, busy, organisation):
    mine = member_client(tenant, "billing")
    charge = LedgerEntry.objects.filter(organisation=tenant, kind="charge").order_by("pk")[0]
    assert f'href="/billing/ledger/{charge.pk}/"' in mine.get("/billing/ledger/").content.decode()
    hit = Usage.objects.get(pk=charge.usage_number)
    answer = mine.get(f"/billing/ledger/{charge.pk}/")
    text = text_of(answer)
    assert "0.50 EUR for one hit" in text and "Each compiler hit costs 0.50 EUR" in text
    assert f"{hit.served_at:%Y-%m-%d %H:%M:%S} UTC" in text and "tvm" in text
    assert f'href="/jobs/{hit.job_id}/"' in answer.content.decode()
    assert f'href="/operators/{hit.operator.key}/"' in answer.content.decode()
    # Of the default nothing was charged; credit says who gave it; another's entry is not there.
    given = LedgerEntry.objects.get(organisation=tenant, kind="credit")
    assert "for the test" in text_of(mine.get(f"/billing/ledger/{given.pk}/"))
    others = LedgerEntry.objects.filter(organisation=organisation)[0]
    assert mine.get(f"/billing/ledger/{others.pk}/").status_code == 404


def test_a_charge_outlives_the_record_of_its_hit(tenant, busy):
    charge = LedgerEntry.objects.filter(organisation=tenant, kind="charge").order_by("pk")[0]
    Usage.objects.filter(pk=charge.usage_number).delete()
    text = text_of(member_client(tenant, "billing").get(f"/billing/ledger/{charge.pk}/"))
    assert "its month is closed" in text and "0.50 EUR for one hit" in text and "train" in text
