"""The webhooks' pages: made, shown once, tried, replayed; and who may."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog.models import AuditEntry, Organisation, Role
from dashboard.webhooks import endpoints
from dashboard.webhooks.models import Delivery, Endpoint
from tests.dashboard.people import member_client
from tests.dashboard.webhooks.making import webhooks_of

pytestmark = pytest.mark.django_db
URL = "https://hooks.example.com/opatlas"


@pytest.fixture
def biller(tenant: Organisation) -> Client:
    return member_client(tenant, Role.BILLING)


def text(answer: Any) -> str:
    return answer.content.decode()


def test_secret_is_shown_once(biller: Client, tenant: Organisation) -> None:
    answer = biller.post("/webhooks/endpoints/create/", {"url": URL, "event_types": ["best.changed"]})
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/=]+", text(answer))
    assert answer["Cache-Control"] == "no-store"
    row = Endpoint.objects.get()
    assert (row.organisation, row.event_types) == (tenant, ["best.changed"])
    assert endpoints.valid_secrets(row) == [secret]
    assert "whsec_" not in text(biller.get(f"/webhooks/endpoints/{row.pk}/"))
    assert secret not in str(AuditEntry.objects.values_list("detail", "subject"))
    assert AuditEntry.objects.latest("pk").action == "webhook.create"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"url": "http://127.0.0.1/"}, "not a public one"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "not a public one"),
        ({"url": "https://localhost/"}, "not a public one"),
        ({"url": "ftp://example.com/"}, "must begin with"),
        ({"url": URL, "event_types": ["no.such"]}, "Event types are some of"),
        ({"url": URL, "description": "d" * 201}, "at most 200"),
        ({}, "must begin with"),
    ],
)
def test_bad_input_is_said_and_kept(biller: Client, given: dict[str, Any], why: str) -> None:
    answer = biller.post("/webhooks/endpoints/create/", given)
    assert answer.status_code == 400 and why in text(answer)
    assert not given.get("url") or f'value="{given["url"]}"' in text(answer)
    assert Endpoint.objects.count() == 0


def test_same_address_twice_is_refused(biller: Client) -> None:
    biller.post("/webhooks/endpoints/create/", {"url": URL})
    answer = biller.post("/webhooks/endpoints/create/", {"url": URL})
    assert answer.status_code == 409 and "already" in text(answer)


def test_what_people_do(biller: Client, tenant: Organisation) -> None:
    row = endpoints.create(tenant, URL)[0]
    path = f"/webhooks/endpoints/{row.pk}/"
    assert "is on its way: msg_" in text(biller.post(path + "test/", follow=True))
    assert "gets nothing more" in text(biller.post(path + "disable/", follow=True))
    answer = biller.post(path + "test/")
    assert answer.status_code == 409 and "enable it first" in text(answer)
    assert "sent to again" in text(biller.post(path + "enable/", follow=True))
    row.refresh_from_db()
    assert row.disabled_at is None
    answer = biller.post(path + "edit/", {"url": URL + "/2", "event_types": ["credit.added"]}, follow=True)
    row.refresh_from_db()
    assert (row.url, row.event_types) == (URL + "/2", ["credit.added"])
    new = re.findall(r"whsec_[A-Za-z0-9+/=]+", text(biller.post(path + "rotate/")))
    assert endpoints.valid_secrets(row)[0] == new[0] and len(endpoints.valid_secrets(row)) == 2
    answer = biller.post(path + "replay/", {"since": "yesterday"})
    assert answer.status_code == 400 and 'value="yesterday"' in text(answer)
    assert biller.post(path + "explode/").status_code == 404
    sent = Delivery.objects.count()
    assert biller.get(path + "test/?range=7d")["Location"] == f"{path}?range=7d"
    assert biller.get("/webhooks/endpoints/create/?range=7d")["Location"] == "/webhooks/?range=7d"
    assert Delivery.objects.count() == sent
    assert "was deleted" in text(biller.post(path + "delete/", follow=True))
    assert Endpoint.objects.count() == 0
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"webhook.test", "webhook.disable", "webhook.enable", "webhook.edit", "webhook.rotate",
            "webhook.delete"} <= actions  # fmt: skip


def test_replay_since_a_time(biller: Client, tenant: Organisation) -> None:
    rows = webhooks_of(tenant)
    since = Delivery.objects.order_by("message__created_at").last().message.created_at  # type: ignore[union-attr]
    answer = biller.post(
        f"/webhooks/endpoints/{rows[1].pk}/replay/", {"since": f"{since:%Y-%m-%dT%H:%M}"}, follow=True
    )
    assert re.search(r"\d+ messages? (is|are) sent again", text(answer))


def test_delivery_with_its_tries_and_replay(biller: Client, tenant: Organisation) -> None:
    webhooks_of(tenant)
    row = Delivery.objects.filter(state="delivered", endpoint__url=URL).latest("pk")
    page = text(biller.get(f"/webhooks/deliveries/{row.pk}/"))
    assert row.message.public_id in page and "{&quot;ok&quot;: true}" in page
    answer = biller.post(f"/webhooks/deliveries/{row.pk}/replay/", follow=True)
    row.refresh_from_db()
    assert row.state == "pending" and "sent again" in text(answer)
    gone = Delivery.objects.filter(endpoint__disabled_at__isnull=False).latest("pk")
    assert "enable it first" in text(biller.post(f"/webhooks/deliveries/{gone.pk}/replay/", follow=True))
    exported = biller.get(f"/webhooks/deliveries/{row.pk}/?export=json&table=attempts").json()
    assert [one["status"] for one in exported["rows"]] == [200]


def test_filters_and_exports(biller: Client, tenant: Organisation) -> None:
    webhooks_of(tenant)

    def rows(query: str) -> list[dict[str, Any]]:
        return biller.get(f"/webhooks/?export=json&table=deliveries&{query}").json()["rows"]

    assert len(rows("")) == 72
    assert {one["state"] for one in rows("state=failed")} == {"failed"}
    assert {one["event_type"] for one in rows("event_type=hit.served")} == {"hit.served"}
    number = Endpoint.objects.get(url=URL).pk
    assert {one["endpoint"] for one in rows(f"endpoint={number}")} == {URL}
    assert len(rows("q=made:23")) == 3 and rows("q=nothing-like-this") == []
    assert 0 < len(rows("range=24h")) <= 72
    for odd in (
        "state=odd",
        "endpoint=x",
        "endpoint=99999999999999999999",
        "range=odd",
        "q=%00",
        "page=9999",
    ):
        assert biller.get(f"/webhooks/?{odd}").status_code == 200
    answer = biller.get("/webhooks/?export=csv&table=endpoints")
    assert text(answer).splitlines()[0].startswith("url,organisation,description")


def test_another_tenant_sees_nothing(biller: Client, tenant: Organisation) -> None:
    other = Organisation.objects.create(name="other")
    theirs = webhooks_of(other)[0]
    delivery = Delivery.objects.filter(endpoint=theirs).latest("pk")
    assert "example" not in re.sub(r'placeholder="[^"]*"', "", text(biller.get("/webhooks/")))
    assert biller.get("/webhooks/?export=json").json()["rows"] == []
    for path in (f"endpoints/{theirs.pk}/", f"deliveries/{delivery.pk}/"):
        assert biller.get(f"/webhooks/{path}").status_code == 404
    for verb in ("test", "rotate", "disable", "delete", "edit", "replay", "enable"):
        assert biller.post(f"/webhooks/endpoints/{theirs.pk}/{verb}/").status_code == 404
    assert biller.post(f"/webhooks/deliveries/{delivery.pk}/replay/").status_code == 404
    theirs.refresh_from_db()
    assert theirs.disabled_at is None and Delivery.objects.filter(state="delivered").count() > 0


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.APPROVER])
def test_other_roles_may_not(tenant: Organisation, role: str) -> None:
    row = endpoints.create(tenant, URL)[0]
    client = member_client(tenant, role)
    assert "/webhooks/" not in text(client.get("/account/"))
    for path in ("", f"endpoints/{row.pk}/"):
        assert client.get(f"/webhooks/{path}").status_code == 403
    assert client.post("/webhooks/endpoints/create/", {"url": URL}).status_code == 403
    assert client.post(f"/webhooks/endpoints/{row.pk}/delete/").status_code == 403


def test_host_sees_all_and_an_admin_may(tenant: Organisation, pages: Client) -> None:
    webhooks_of(tenant)
    page = text(pages.get("/webhooks/"))
    assert URL in page and "Tenant" in page
    assert member_client(tenant, Role.ADMIN).get("/webhooks/").status_code == 200


def test_page_takes_no_more_queries_for_more_rows(biller: Client, tenant: Organisation) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert biller.get("/webhooks/").status_code == 200
        return len(queries)

    row = endpoints.create(tenant, URL + "/first")[0]
    endpoints.test(row)
    count()
    few = count()
    webhooks_of(tenant)
    assert count() <= few <= 16


def test_part_for_htmx(biller: Client, tenant: Organisation) -> None:
    webhooks_of(tenant)
    answer = biller.get("/webhooks/?state=failed", headers={"HX-Request": "true"})
    assert "<html" not in text(answer) and "410" in text(answer)


def test_data_is_escaped(biller: Client, tenant: Organisation) -> None:
    from dashboard.webhooks.sending import send

    endpoints.create(tenant, URL)
    send(tenant, "best.changed", {"summary": "<script>alert(1)</script>"}, key="<b>key</b>")
    row = Delivery.objects.get()
    page = text(biller.get(f"/webhooks/deliveries/{row.pk}/"))
    assert "<script>alert" not in page and json.dumps("x") not in page
