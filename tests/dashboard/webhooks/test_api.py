"""Webhooks over REST: the same as on the pages, and for no other organisation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Organisation
from catalog.people.keys import create_api_key
from dashboard.webhooks import endpoints
from dashboard.webhooks.models import Delivery, Endpoint
from tests.dashboard.webhooks.making import webhooks_of

pytestmark = pytest.mark.django_db
URL = "https://hooks.example.com/opatlas"


@pytest.fixture
def billing(tenant: Organisation, api_with: Any) -> Any:
    return api_with(create_api_key(tenant, "billing", ["billing"])[1])


def test_made_changed_rotated_disabled_deleted(billing: Any) -> None:
    made = billing.post("webhooks/endpoints/", {"url": URL, "event_types": ["hit.served"]})
    assert made.status_code == 201 and made.json()["secret"].startswith("whsec_")
    path = f"webhooks/endpoints/{made.json()['id']}"
    shown = billing.get(path).json()
    assert "secret" not in shown and shown["event_types"] == ["hit.served"]
    assert [one["url"] for one in billing.get("webhooks/endpoints/").json()["results"]] == [URL]

    changed = billing.client.patch(
        f"/api/v1/{path}", {"description": "CI"}, content_type="application/json", headers=billing.headers
    )
    assert changed.json()["description"] == "CI" and changed.json()["event_types"] == ["hit.served"]
    secret = billing.post(f"{path}/rotate").json()["secret"]
    assert endpoints.valid_secrets(Endpoint.objects.get()) == [secret, made.json()["secret"]]
    sent = billing.post(f"{path}/test").json()
    assert (sent["event_type"], sent["state"]) == ("endpoint.test", "pending")
    assert billing.post(f"{path}/disable", {"reason": "moving"}).json()["disabled_reason"] == "moving"
    assert billing.post(f"{path}/test").status_code == 409
    assert billing.post(f"{path}/enable").json()["disabled_at"] is None
    assert billing.client.delete(f"/api/v1/{path}", headers=billing.headers).status_code == 204
    assert billing.get(path).status_code == 404


NO_RECEIVERS = (
    "10.0.0.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "127.1", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]",
    "localhost", "example.com.", "example.com%00.example.org", "user@example.com", "[fe80::1%25eth0]",
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "where"),
    [
        *(({"url": f"https://{host}/"}, "url") for host in NO_RECEIVERS),
        ({"url": "https://example.com:22/"}, "url"),
        ({}, "url"),
        ({"url": URL, "event_types": ["endpoint.test"]}, "event_types"),
        ({"url": URL, "event_types": "all"}, "event_types"),
    ],
)
def test_bad_input_is_one_sentence(billing: Any, given: dict[str, Any], where: str) -> None:
    answer = billing.post("webhooks/endpoints/", given)
    assert answer.status_code == 400 and answer.json()["where"].startswith(where)
    assert answer.json()["request_id"] == answer["X-Request-ID"]


def test_deliveries_and_replay(billing: Any, tenant: Organisation) -> None:
    rows = webhooks_of(tenant)
    listed = billing.get("webhooks/deliveries/", state="failed,pending", endpoint=rows[1].pk).json()
    assert listed["count"] == 8 and {one["state"] for one in listed["results"]} == {"pending"}
    assert listed["results"][0]["last_error"] == "The connection timed out."
    assert billing.get("webhooks/deliveries/", state="odd").status_code == 400
    assert billing.get("webhooks/deliveries/", event_type="odd").status_code == 400
    pk = Delivery.objects.filter(endpoint=rows[0]).latest("pk").pk
    shown = billing.get(f"webhooks/deliveries/{pk}").json()
    assert [one["status"] for one in shown["attempts"]] == [200] and '"type":' in shown["body"]
    assert billing.post(f"webhooks/deliveries/{pk}/replay").json()["state"] == "pending"

    def replay(**asked: Any) -> Any:
        return billing.post("webhooks/replay", {"endpoint": rows[1].pk, **asked})

    since = (timezone.now() - timedelta(days=1)).isoformat()
    assert replay(since=since, failed_only=True).json() == {"messages": 0}
    assert replay(since=since).json() == {"messages": 24}
    for odd in (
        "yesterday",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2020-01-01T00:00:00Z",
    ):
        assert replay(since=odd).status_code == 400
    assert billing.post("webhooks/replay", {"endpoint": rows[2].pk, "since": since}).status_code == 409


def test_other_tenants_do_not_exist(billing: Any) -> None:
    theirs = webhooks_of(Organisation.objects.create(name="other"))[0]
    pk = Delivery.objects.filter(endpoint=theirs).latest("pk").pk
    assert billing.get("webhooks/endpoints/").json()["results"] == []
    assert billing.get("webhooks/deliveries/").json()["results"] == []
    for path in (f"endpoints/{theirs.pk}", f"deliveries/{pk}"):
        assert billing.get(f"webhooks/{path}").status_code == 404
    for path in ("rotate", "test", "disable", "enable"):
        assert billing.post(f"webhooks/endpoints/{theirs.pk}/{path}").status_code == 404
    assert billing.post(f"webhooks/deliveries/{pk}/replay").status_code == 404
    asked = {"endpoint": theirs.pk, "since": timezone.now().isoformat()}
    assert billing.post("webhooks/replay", asked).status_code == 404
    assert billing.client.delete(
        f"/api/v1/webhooks/endpoints/{theirs.pk}", headers=billing.headers
    ).status_code == 404  # fmt: skip


@pytest.mark.parametrize("scope", ["lookup", "operate", "approve", "models"])
def test_other_scopes_may_not(tenant: Organisation, api_with: Any, scope: str) -> None:
    api = api_with(create_api_key(tenant, scope, [scope])[1])
    for path in ("webhooks/endpoints/", "webhooks/deliveries/", "webhooks/endpoints/1"):
        assert api.get(path).status_code == 403
    assert api.post("webhooks/endpoints/", {"url": URL}).status_code == 403


def test_numbers_beyond_any_row_are_not_there(billing: Any) -> None:
    for number in (2**63, 9_999_999_999_999_999_999, 0):
        assert billing.get(f"webhooks/endpoints/{number}").status_code == 404
        assert billing.get(f"webhooks/deliveries/{number}").status_code == 404
