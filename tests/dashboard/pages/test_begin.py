"""The first minutes: a key of one's own, the first request with it, steps that are ticked off."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from catalog import models as c
from catalog.people.keys import authenticate
from catalog.selectors import statistics
from tests.dashboard.factory import Factory, resnet_operators
from tests.dashboard.people import member_client
from tuning.models import Worker

pytestmark = pytest.mark.django_db
KEY = re.compile(r"opk_[a-z0-9]{12}_[\w-]{20,}")


@pytest.fixture
def viewer(tenant: c.Organisation) -> Client:
    return member_client(tenant, "viewer", "bob")


def done(client: Client) -> list[str]:
    html = client.get("/begin/live/").content.decode()
    return re.findall(r'data-done="yes">.*?<strong>(.*?)</strong>', html, re.S)


def test_an_empty_service_makes_a_key_and_shows_the_request_with_it_once(viewer, tenant) -> None:
    before = viewer.get("/").content.decode()
    assert "The map is empty" in before and "$OPATLAS_KEY" in before and not KEY.search(before)
    assert not c.ApiKey.objects.exists()  # looking makes none
    answer = viewer.post("/begin/key/")
    html = answer.content.decode()
    found = set(KEY.findall(html))
    assert len(found) == 1 and answer["Cache-Control"] == "no-store"
    key = authenticate(found.pop())
    assert (key.user.username, key.organisation, key.scopes) == ("bob", tenant, ["lookup"])
    assert f"Authorization: Bearer opk_{key.prefix}_" in html and f'key="opk_{key.prefix}_' in html.replace(
        "&quot;", '"'
    )
    assert "$OPATLAS_KEY" not in html
    assert not KEY.search(viewer.get("/").content.decode())
    entry = c.AuditEntry.objects.get(action="key.create")
    assert (entry.actor, entry.organisation, entry.detail) == ("bob", tenant, {"scopes": ["lookup"]})
    assert not KEY.search(str(c.AuditEntry.objects.values()))


def test_who_belongs_nowhere_gets_none(reader: Client) -> None:
    html = reader.get("/").content.decode()
    assert "administrator can invite you" in html and "/begin/key/" not in html
    assert reader.post("/begin/key/").status_code == 403
    assert reader.get("/account/keys/").status_code == 403
    assert reader.post("/account/keys/create/", {"name": "x", "scopes": ["lookup"]}).status_code == 403
    assert not c.ApiKey.objects.exists() and not c.AuditEntry.objects.filter(action="key.create").exists()


def test_steps_are_ticked_off_as_they_happen(viewer: Client, tenant: c.Organisation) -> None:
    assert done(viewer) == []
    factory = Factory()
    factory.organisation = tenant
    viewer.post("/begin/key/")
    assert done(viewer) == ["An API key"]
    worker = Worker.objects.first()
    Worker.objects.update(last_seen_at=timezone.now(), stopped_at=None)
    assert ("A worker that explores" in done(viewer)) == (worker is not None)
    (operator,) = resnet_operators(factory, 1)
    key = c.ApiKey.objects.get()
    c.Miss.objects.create(operator=operator, **factory.where, scope="shared", api_key=key)
    assert "The first lookup" in done(viewer) and "The first hit" not in done(viewer)
    c.Usage.objects.create(
        organisation=tenant, operator=operator, method="library", route="eager", median_us=1, default_us=1,
        served_at=timezone.now(), node="n", segment="s", offset=0, item=0,
    )  # fmt: skip
    assert "The first hit" in done(viewer)


def test_what_others_did_ticks_nothing(viewer: Client, catalogue: Factory) -> None:
    assert set(done(viewer)) <= {"A worker that explores"}


def test_the_overview_reminds_in_the_first_week_only(viewer, tenant, catalogue, monkeypatch) -> None:
    assert "First steps" in re.sub(r"<nav.*?</nav>", "", viewer.get("/").content.decode(), flags=re.S)
    monkeypatch.setattr(statistics, "began", lambda viewer: timezone.now() - timedelta(days=8))
    assert 'id="steps-title"' not in viewer.get("/").content.decode()


def test_a_member_makes_and_closes_keys_within_the_role(viewer, tenant) -> None:
    page = viewer.get("/account/keys/").content.decode()
    assert 'value="lookup"' in page and 'value="admin"' not in page and 'value="operate"' not in page
    wide = viewer.post("/account/keys/create/", {"name": "wide", "scopes": ["lookup", "admin"]})
    assert wide.status_code == 403 and "does not allow the scope admin" in wide.content.decode()
    made = viewer.post("/account/keys/create/", {"name": "mine", "scopes": ["models"]}).content.decode()
    key = authenticate(KEY.findall(made)[0])
    assert key.scopes == ["models"] and key.user.username == "bob"
    assert [row["name"] for row in viewer.get("/account/keys/?export=json&table=keys").json()["rows"]] == [
        "mine"
    ]
    viewer.post(f"/account/keys/{key.pk}/revoke/")
    key.refresh_from_db()
    assert key.revoked_at and c.AuditEntry.objects.filter(action="key.revoke", organisation=tenant).exists()


def test_nobody_sees_or_closes_anothers(viewer: Client, tenant: c.Organisation) -> None:
    other = member_client(tenant, "admin", "ada")
    other.post("/account/keys/create/", {"name": "adas own", "scopes": ["lookup"]})
    key = c.ApiKey.objects.get()
    assert "adas own" not in viewer.get("/account/keys/").content.decode()
    assert viewer.post(f"/account/keys/{key.pk}/revoke/").status_code == 404
    key.refresh_from_db()
    assert key.revoked_at is None


def test_a_form_that_was_sent_from_elsewhere_makes_no_key(tenant: c.Organisation) -> None:
    client = Client(enforce_csrf_checks=True)
    user = User.objects.create_user("bob")
    c.Membership.objects.create(user=user, organisation=tenant, role="viewer")
    client.force_login(user)
    assert client.post("/begin/key/").status_code == 403
    assert not c.ApiKey.objects.exists()
