"""What requests leave in the audit log, and Django's own administration."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from catalog.models import AuditEntry, Membership, Organisation
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from tests.dashboard.factory import Factory
from tuning.models import Exploration

pytestmark = pytest.mark.django_db


def actions(after: int = 0) -> list[str]:
    rows = AuditEntry.objects.filter(pk__gt=after).exclude(action="login").order_by("pk")
    return list(rows.values_list("action", flat=True))


def newest() -> int:
    """What the made-up catalogue wrote down itself comes before."""
    return AuditEntry.objects.latest("pk").pk


def test_what_a_page_does_is_written_with_who_what_and_from_where(pages: Client, catalogue: Factory) -> None:
    row = Exploration.objects.filter(state="queued").first()
    assert row is not None
    pages.post(f"/explorations/{row.pk}/pause/", REMOTE_ADDR="192.0.2.7")
    entry = AuditEntry.objects.latest("pk")
    assert entry.actor == "admin" and entry.user is not None and entry.address == "192.0.2.7"
    assert "pause" in entry.action and str(row.pk) in entry.subject


def test_what_was_refused_is_not_written(reader: Client, catalogue: Factory) -> None:
    row, before = Exploration.objects.filter(state="queued").first(), newest()
    assert row is not None
    reader.post(f"/explorations/{row.pk}/pause/")
    reader.post("/queues/pause/")
    assert Client().post("/queues/pause/").status_code == 302  # to the login
    assert actions(before) == []


def test_looking_is_not_written(pages: Client, catalogue: Factory) -> None:
    before = newest()
    for path in ("/", "/operators/", "/explorations/", "/people/"):
        pages.get(path)
    assert actions(before) == []


def test_what_a_key_does_is_written_with_the_key(api: Any, api_key: str) -> None:
    api.post("queues/pause", {"capability": "*", "reason": "a secret reason"})
    entry = AuditEntry.objects.latest("pk")
    assert entry.api_key is not None and entry.api_key.prefix in entry.actor
    assert entry.organisation == default_organisation()
    assert api_key not in str(AuditEntry.objects.values())


def test_lookups_are_machine_traffic(api: Any) -> None:
    api.post("lookup", {"target": "t1:" + "0" * 64, "setting": "s1:" + "0" * 64, "operators": []})
    assert actions() == []


def test_keys_and_members_over_rest(api: Any, api_with: Any, organisation: Organisation) -> None:
    answer = api.post("keys/", {"name": "nightly", "scopes": ["lookup"]})
    assert answer.status_code == 201
    made = answer.json()
    assert api_with(made["key"]).get("operators/").status_code == 200
    assert made["key"] not in api.get("keys/").content.decode()
    assert api.post(f"keys/{made['id']}/revoke").status_code == 200
    assert api_with(made["key"]).get("operators/").status_code == 401
    assert api.post(f"keys/{2**62}/revoke").status_code == 404
    refused = api.post("keys/", {"name": "mine", "scopes": ["kernels"], "personal": True})
    assert refused.status_code == 400 and "nobody's" in refused.json()["error"]
    added = Membership.objects.create(
        user=User.objects.create(username="ada"), organisation=organisation, role="admin"
    )
    one = f"/api/v1/members/{added.pk}"
    change = {"content_type": "application/json", "headers": api.headers}
    last = api.client.patch(one, {"role": "viewer"}, **change)
    assert last.status_code == 409 and "at least one admin" in last.json()["error"]
    Membership.objects.create(
        user=User.objects.create(username="bob"), organisation=organisation, role="admin"
    )
    assert api.client.patch(one, {"role": "viewer"}, **change).json()["role"] == "viewer"
    assert api.client.delete(one, headers=api.headers).status_code == 204
    assert [row["username"] for row in api.get("members/").json()["results"]] == ["bob"]
    token = api.post("members/", {"email": "c@example.org", "role": "viewer"}).json()["invitation"]
    assert Client().get(token).status_code == 200
    said = ["key.create", "key.revoke", "member.role", "member.remove", "member.invite"]
    assert actions() == said
    listed = api.get("audit/", action="key.").json()["results"]
    assert [row["action"] for row in listed] == ["key.revoke", "key.create"]
    assert api.get("audit/", range="never").status_code == 400


@pytest.mark.parametrize("path", ["keys/", "members/", "audit/"])
def test_accounts_take_the_scope_admin(api_with: Any, make_key: Any, path: str) -> None:
    key = make_key("lookup", "models", "operate", "approve", "billing", "kernels")
    assert api_with(key).get(path).status_code == 403


def test_a_tenants_key_sees_its_own_log(api: Any, api_with: Any) -> None:
    tenant = Organisation.objects.create(name="Tenant")
    theirs = api_with(create_api_key(tenant, "k", ["admin"])[1])
    api.post("keys/", {"name": "of-the-host", "scopes": ["lookup"]})
    theirs.post("keys/", {"name": "of-the-tenant", "scopes": ["lookup"]})
    assert "of-the-host" not in theirs.get("audit/").content.decode()
    assert theirs.get("audit/").json()["count"] == 1 and api.get("audit/").json()["count"] == 2


def test_changes_in_djangos_administration_are_written(pages: Client) -> None:
    organisation = Organisation.objects.create(name="Tenant")
    path = reverse("admin:catalog_organisation_change", args=(organisation.pk,))
    rows = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    assert pages.post(path, {"name": "", **rows}).status_code == 200  # refused
    assert actions() == []
    assert pages.post(path, {"name": "Renamed", **rows}).status_code == 302
    entry = AuditEntry.objects.latest("pk")
    assert entry.action == "admin.catalog_organisation_change" and "Renamed" in entry.subject


def test_djangos_administration_is_the_hosts(administrator: User) -> None:
    tenant = Organisation.objects.create(name="Tenant")
    user = User.objects.create_user("eve", is_staff=True)
    Membership.objects.create(user=user, organisation=tenant, role="admin")
    client = Client()
    client.force_login(user)
    assert client.get("/admin/").status_code == 302
    Membership.objects.create(user=user, organisation=default_organisation(), role="viewer")
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize("name", ["auditentry", "signin", "invitation", "trafficslot", "rollup", "best"])
def test_evidence_is_looked_at_and_not_changed(pages: Client, name: str) -> None:
    assert pages.get(reverse(f"admin:catalog_{name}_changelist")).status_code == 200
    assert pages.get(reverse(f"admin:catalog_{name}_add")).status_code == 403


def test_accounts_and_organisations_have_their_members(pages: Client, administrator: User) -> None:
    default_organisation()
    for name, pk in (("auth_user", administrator.pk), ("catalog_organisation", default_organisation().pk)):
        html = pages.get(reverse(f"admin:{name}_change", args=(pk,))).content.decode()
        assert "memberships-TOTAL_FORMS" in html
        assert pages.post(reverse(f"admin:{name}_delete", args=(pk,)), {"post": "yes"}).status_code == 403
