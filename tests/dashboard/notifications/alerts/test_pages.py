"""The pages of alerts and their REST: who sees what, and who may do what."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from catalog.models import AuditEntry, Organisation
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.models import Alert, AlertDeed
from tests.dashboard.people import member_client

pytestmark = pytest.mark.django_db
HOSTILE = '<script>alert(1)</script> & "quoted"'


@pytest.fixture
def alert(world, silent) -> Alert:
    watch()
    return Alert.objects.get()


@pytest.fixture
def spending(world) -> Alert:
    now = timezone.now()
    return Alert.objects.create(
        rule="spend", cause="spend:1", organisation=world.home, severity="warning", text="Credit ends.",
        path="/billing/", fired_at=now, seen_at=now,
    )  # fmt: skip


def test_an_operator_takes_it_up_and_its_history_says_so(alert):
    client = member_client(default_organisation(), "operator", "ann")
    page = client.get("/alerts/").content.decode()
    assert alert.text in page and f"/alerts/{alert.pk}/" in page
    assert f"/alerts/{alert.pk}/acknowledge/" in client.get(f"/alerts/{alert.pk}/").content.decode()
    client.post(f"/alerts/{alert.pk}/acknowledge/", {"reason": "it is mine"})
    page = client.get(f"/alerts/{alert.pk}/").content.decode()
    assert "ann sees to it" in page and "it is mine" in page
    assert AuditEntry.objects.filter(action="alert.acknowledge", actor="ann").exists()
    client.post(f"/alerts/{alert.pk}/mute/", {"for_s": "3600"})
    assert "Nobody is told until" in client.get(f"/alerts/{alert.pk}/").content.decode()
    client.post(f"/alerts/{alert.pk}/resolve/")
    assert "was resolved by hand" in client.get(f"/alerts/{alert.pk}/").content.decode()


def test_who_looks_only_changes_nothing(alert):
    viewer = member_client(default_organisation(), "viewer", "vera")
    assert "/acknowledge/" not in viewer.get(f"/alerts/{alert.pk}/").content.decode()
    for verb in ("acknowledge", "mute", "resolve"):
        assert viewer.post(f"/alerts/{alert.pk}/{verb}/", {"for_s": "60"}).status_code == 403
    assert viewer.post(f"/alerts/{alert.pk}/explode/").status_code == 404
    assert AlertDeed.objects.count() == 1


def test_the_hosts_alerts_are_no_tenants(world, alert):
    tenant = member_client(world.home, "admin", "tina")
    assert alert.text not in tenant.get("/alerts/").content.decode()
    assert tenant.get(f"/alerts/{alert.pk}/").status_code == 404
    assert tenant.post(f"/alerts/{alert.pk}/resolve/").status_code == 404


def test_what_is_spent_is_seen_by_who_may_see_the_bills(world, spending):
    path = f"/alerts/{spending.pk}/"
    payer = member_client(world.home, "billing", "paul")
    assert payer.get(path).status_code == 200
    assert payer.post(f"{path}acknowledge/").status_code == 302
    assert Alert.objects.get().acknowledged_by == "paul"
    for organisation, role in ((world.home, "operator"), (world.other, "billing"),
                               (default_organisation(), "operator")):  # fmt: skip
        other = member_client(organisation, role, f"{role} {organisation.pk}")
        assert other.get(path).status_code == 404, (organisation, role)
        assert spending.text not in other.get("/alerts/").content.decode()


def test_a_hostile_name_is_text(world, alert, pages: Client):
    Alert.objects.update(text=HOSTILE, facts={"workers": [HOSTILE], HOSTILE: HOSTILE})
    AlertDeed.objects.update(detail=HOSTILE)
    for path in ("/alerts/", f"/alerts/{alert.pk}/"):
        assert "<script>alert" not in pages.get(path).content.decode()


def test_the_menu_and_the_overview_lead_to_what_fires(catalogue, pages: Client):
    now = timezone.now()
    Alert.objects.create(
        rule="queue_old", cause="queue_old:x", severity="warning", text="x waits.", path="/queues/",
        fired_at=now, seen_at=now,
    )  # fmt: skip
    page = pages.get("/").content.decode()
    assert '<a href="/alerts/">1 alert fires</a>' in page and "All well." not in page
    Alert.objects.update(state="acknowledged")
    page = pages.get("/").content.decode()
    assert "1 alert fires" not in page


def rest(client: Client, key: str, method: str, path: str, body: dict | None = None):
    call = getattr(client, method)
    more = {"headers": {"Authorization": f"Bearer {key}"}}
    if body is not None:
        more |= {"data": body, "content_type": "application/json"}
    return call(f"/api/v1/{path}", **more)


def test_rest_lists_acknowledges_mutes_and_resolves(alert, client):
    _, key = create_api_key(default_organisation(), "ops", ["lookup", "operate"])
    listed = rest(client, key, "get", "alerts/?state=firing").json()["results"]
    assert [one["id"] for one in listed] == [alert.pk]
    assert rest(client, key, "get", "alerts/?state=nope").status_code == 400
    assert rest(client, key, "post", f"alerts/{alert.pk}/acknowledge", {}).json()["state"] == "acknowledged"
    muted = rest(client, key, "post", f"alerts/{alert.pk}/mute", {"for_s": 60, "reason": "lunch"}).json()
    assert muted["muted_until"] and muted["history"][0]["what"] == "muted"
    assert rest(client, key, "post", f"alerts/{alert.pk}/mute", {"for_s": 10**9}).status_code == 400
    assert rest(client, key, "post", f"alerts/{alert.pk}/resolve", {}).json()["state"] == "resolved"
    assert rest(client, key, "post", f"alerts/{alert.pk}/resolve", {}).status_code == 409
    assert AuditEntry.objects.filter(action="alert.mute").exists()


def test_rest_keeps_tenants_and_roles_apart(world, alert, client):
    _, tenant = create_api_key(world.home, "theirs", ["lookup", "operate", "admin"])
    _, reader = create_api_key(default_organisation(), "reads", ["lookup", "approve"])
    assert rest(client, tenant, "get", "alerts/").json()["results"] == []
    assert rest(client, tenant, "post", f"alerts/{alert.pk}/resolve", {}).status_code == 404
    assert rest(client, reader, "get", f"alerts/{alert.pk}").status_code == 200
    assert rest(client, reader, "post", f"alerts/{alert.pk}/resolve", {}).status_code == 403
    assert Organisation.objects.filter(pk=world.home.pk).exists() and Alert.objects.get().state == "firing"


def test_no_text_of_the_list_is_cut(alert, pages: Client):
    long = f"cpu.zen3: {'tvm failed on all of its trials ' * 4}"
    Alert.objects.update(text=long)
    page = pages.get("/alerts/").content.decode()
    assert long.strip() in page and "clip-name" not in page
