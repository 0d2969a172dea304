"""People, keys, the audit log, one's account: pages, and what they leave behind."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from catalog.models import ApiKey, AuditEntry, Invitation, Membership, Organisation, Role
from catalog.people.keys import authenticate
from tests.dashboard.people import member_client

pytestmark = pytest.mark.django_db
STRONG = "a-long-walk-in-winter"


def member(name: str, role: str, organisation: Organisation) -> Client:
    return member_client(organisation, role, name, STRONG)


@pytest.fixture
def admin(tenant: Organisation) -> Client:
    return member("ada", Role.ADMIN, tenant)


def last(action: str) -> AuditEntry:
    return AuditEntry.objects.filter(action=action).latest("pk")


@pytest.mark.parametrize("path", ["/people/", "/keys/", "/audit/", "/account/"])
def test_every_page_answers_its_admin(admin: Client, path: str) -> None:
    assert admin.get(path).status_code == 200
    assert Client().get(path)["Location"].startswith("/login/?next=")


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "billing"])
def test_only_admins_see_people_keys_and_the_log(tenant: Organisation, role: str) -> None:
    client = member("eve", role, tenant)
    for path in ("/people/", "/keys/", "/audit/"):
        assert client.get(path).status_code == 403
        assert client.get("/").content.count(b'href="/people/"') == 0
    assert client.get("/account/").status_code == 200


def test_a_member_gets_another_role_and_is_removed(admin: Client, tenant: Organisation) -> None:
    bob = User.objects.create_user("bob", password=STRONG)
    row = Membership.objects.create(user=bob, organisation=tenant, role="viewer")
    admin.post(f"/people/{row.pk}/role/", {"role": "billing"})
    row.refresh_from_db()
    assert row.role == "billing"
    assert last("member.role").detail == {"before": "viewer", "after": "billing"}
    theirs = Client()
    theirs.force_login(bob)
    assert theirs.get("/account/").status_code == 200
    admin.post(f"/people/{row.pk}/remove/")
    assert not Membership.objects.filter(user=bob).exists()
    assert last("member.remove").subject == "bob"


def test_who_is_removed_loses_that_access_at_once_and_no_other(admin: Client, tenant: Organisation) -> None:
    bob = member("bob", "admin", Organisation.objects.create(name="Other"))
    row = Membership.objects.create(user=User.objects.get(username="bob"), organisation=tenant, role="admin")
    bob.post("/account/organisation/", {"organisation": str(tenant.pk)})
    assert b"Who belongs to Tenant" in bob.get("/people/").content
    before = bob.session.session_key
    admin.post(f"/people/{row.pk}/remove/")
    assert b"Who belongs to Other" in bob.get("/people/").content
    assert bob.session.session_key == before


def test_a_page_shows_nobodys_address_or_last_login(admin: Client, tenant: Organisation) -> None:
    bob = User.objects.create_user("bob", "bob@example.org", STRONG)
    Membership.objects.create(user=bob, organisation=tenant, role="viewer")
    Client().login(username="bob", password=STRONG)
    for path in ("/people/", *(f"/people/?export={kind}&table=members" for kind in ("csv", "json"))):
        text = admin.get(path).content.decode()
        assert "bob" in text and "bob@example.org" not in text and "login" not in text.lower()


def test_nobody_is_added_by_name(admin: Client) -> None:
    User.objects.create_user("bob", password=STRONG)
    assert admin.post("/people/add/", {"username": "bob", "role": "viewer"}).status_code == 404
    assert Membership.objects.count() == 1


def test_the_last_admin_stays(admin: Client, tenant: Organisation) -> None:
    row = tenant.memberships.get()
    for path, body in ((f"/people/{row.pk}/role/", {"role": "viewer"}), (f"/people/{row.pk}/remove/", {})):
        html = admin.post(path, body, follow=True).content.decode()
        assert "keeps at least one admin" in html
        row.refresh_from_db()
        assert row.role == "admin"
    assert not AuditEntry.objects.filter(action__startswith="member.").exists()


def test_what_is_wrong_is_said_and_nothing_is_lost(admin: Client) -> None:
    answer = admin.post("/people/invite/", {"email": "no address", "role": "viewer"})
    assert answer.status_code == 400 and b"no e-mail address" in answer.content
    assert b'value="no address"' in answer.content
    answer = admin.post("/keys/create/", {"name": "nightly", "scopes": ["everything"]})
    assert answer.status_code == 400 and b'value="nightly"' in answer.content
    assert not Invitation.objects.exists() and not ApiKey.objects.exists()


def link_in(html: str) -> str:
    found = re.search(r"http://testserver(/invited/[^\"]+)", html)
    assert found
    return found[1]


def test_a_link_is_shown_once_and_opens_once(admin: Client, tenant: Organisation) -> None:
    html = admin.post("/people/invite/", {"email": "", "role": "operator"}).content.decode()
    path = link_in(html)
    assert "/invited/" not in admin.get("/people/").content.decode()
    guest = Client()
    assert b"Join Tenant" in guest.get(path).content
    name = f"carol@{tenant.pk}"
    assert f"it ends in @{tenant.pk}." in guest.get(path).content.decode()
    short = {"username": name, "password": "short", "again": "short"}
    answer = guest.post(path, short)
    assert answer.status_code == 400 and b"too short" in answer.content
    differs = {"username": name, "password": STRONG, "again": STRONG + "!"}
    assert b"differ" in guest.post(path, differs).content and User.objects.count() == 1
    answer = guest.post(path, {"username": name, "password": STRONG, "again": STRONG})
    assert answer["Location"] == "/"
    assert guest.get("/account/").status_code == 200  # logged in
    row = Membership.objects.get(user__username=name)
    assert (row.organisation, row.role) == (tenant, "operator")
    again = Client().get(path)
    assert again.status_code == 409 and b"used already" in again.content
    assert last("member.join").subject == name
    token = path.split("/")[2]
    assert not any(token in f"{one.subject}{one.detail}{one.action}" for one in AuditEntry.objects.all())


def test_an_invitation_goes_by_e_mail_where_there_is_a_mail_server(admin: Client) -> None:
    html = admin.post("/people/invite/", {"email": "dora@example.org", "role": "viewer"}, follow=True)
    assert len(mail.outbox) == 1 and mail.outbox[0].to == ["dora@example.org"]
    assert "/invited/" in mail.outbox[0].body and b"/invited/" not in html.content


def test_a_member_of_another_organisation_joins_with_the_account_there_is(
    admin: Client, tenant: Organisation, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    path = link_in(admin.post("/people/invite/", {"role": "viewer"}).content.decode())
    other = member("dan", "admin", Organisation.objects.create(name="Other"))
    assert b"Join as dan" in other.get(path).content
    other.post(path)
    assert tenant.memberships.filter(user__username="dan", role="viewer").exists()


def test_a_withdrawn_or_changed_link_opens_nothing(admin: Client) -> None:
    path = link_in(admin.post("/people/invite/", {"role": "viewer"}).content.decode())
    assert Client().get(path[:-4] + "/").status_code == 404
    admin.post(f"/people/invitations/{Invitation.objects.get().pk}/withdraw/")
    answer = Client().get(path)
    assert answer.status_code == 409 and b"withdrawn" in answer.content


def test_a_key_is_shown_once_and_opens_until_it_is_revoked(admin: Client, tenant: Organisation) -> None:
    answer = admin.post("/keys/create/", {"name": "nightly", "scopes": ["lookup", "models"]})
    html = answer.content.decode()
    found = re.search(r"value=\"(opk_[^\"]+)\"", html)
    assert found and answer["Cache-Control"] == "no-store"
    key = authenticate(found[1])
    assert (key.organisation, key.scopes, key.user) == (tenant, ["lookup", "models"], None)
    assert found[1] not in admin.get("/keys/").content.decode()
    assert found[1].split("_", 2)[2] not in str(list(AuditEntry.objects.values()))
    assert last("key.create").detail == {"scopes": ["lookup", "models"]}
    admin.post(f"/keys/{key.pk}/revoke/")
    assert ApiKey.objects.get().revoked_at is not None
    assert last("key.revoke").organisation == tenant


def test_a_key_is_limited_in_time_and_to_networks(admin: Client) -> None:
    body = {
        "name": "ci",
        "scopes": ["lookup"],
        "expires": "2099-01-31T18:00",
        "addresses": "192.0.2.0/24,::1",
    }
    html = admin.post("/keys/create/", body).content.decode()
    key = ApiKey.objects.get()
    assert (str(key.expires_at), key.addresses) == ("2099-01-31 18:00:00+00:00", ["192.0.2.0/24", "::1/128"])
    assert "2099-01-31 18:00" in html and "192.0.2.0/24, ::1/128" in html
    assert last("key.create").detail == {
        "scopes": ["lookup"], "expires_at": "2099-01-31T18:00:00+00:00", "addresses": key.addresses,
    }  # fmt: skip
    for field, wrong in (("addresses", "192.0.2.7/24"), ("expires", "2020-01-01"), ("expires", "soon")):
        answer = admin.post("/keys/create/", {**body, field: wrong})
        assert answer.status_code == 400 and f'value="{wrong}"' in answer.content.decode()
    ApiKey.objects.update(expires_at="2026-01-01T00:00:00Z")
    assert "expired" in admin.get("/keys/").content.decode()


def test_a_personal_key_is_the_admins_own(admin: Client) -> None:
    admin.post("/keys/create/", {"name": "mine", "scopes": ["kernels"], "personal": "1"})
    assert ApiKey.objects.get().user == User.objects.get(username="ada")


def test_lists_are_exported(admin: Client) -> None:
    assert admin.get("/people/?export=csv&table=members").content.decode().splitlines()[1].startswith("ada,")
    assert admin.get("/keys/?export=json&table=keys").json()["rows"] == []
    rows = admin.get("/audit/?export=json&table=audit").json()["rows"]
    assert [row["action"] for row in rows] == ["login"]


def test_the_log_is_filtered_and_a_bad_range_is_said(admin: Client) -> None:
    admin.post("/keys/create/", {"name": "nightly", "scopes": ["lookup"]})
    html = admin.get("/audit/?action=key").content.decode()
    assert "key.create" in html and "<code>login</code>" not in html
    assert "<code>key.create</code>" not in admin.get("/audit/?actor=nobody-of-this-name").content.decode()
    assert "range is one of" in admin.get("/audit/?range=forever").content.decode()


def test_hosts_admins_see_every_log_and_choose_an_organisation(
    pages: Client, admin: Client, tenant: Organisation
) -> None:
    admin.post("/keys/create/", {"name": "nightly", "scopes": ["lookup"]})
    assert "key.create" in pages.get("/audit/").content.decode()
    answer = pages.post("/account/organisation/", {"organisation": str(tenant.pk), "next": "/people/"})
    assert answer["Location"] == "/people/"
    assert "Who belongs to Tenant" in pages.get("/people/").content.decode()
    pages.post("/account/organisation/", {"organisation": ""})
    assert "Who belongs to default" in pages.get("/people/").content.decode()


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_the_way_back_stays_here(admin: Client, target: str) -> None:
    assert admin.post("/account/organisation/", {"organisation": "", "next": target})["Location"] == "/"
    user = User.objects.create_user("leo", password=STRONG)
    answer = Client().post(f"/login/?next={target}", {"username": user.username, "password": STRONG})
    assert answer["Location"] == "/"


def test_nobody_looks_at_an_organisation_that_is_not_open(admin: Client, tenant: Organisation) -> None:
    other = Organisation.objects.create(name="Other")
    html = admin.post("/account/organisation/", {"organisation": str(other.pk)}, follow=True).content.decode()
    assert "no such organisation" in html
    assert "Who belongs to Tenant" in admin.get("/people/").content.decode()


def test_organisations_are_made_and_renamed_by_the_host(pages: Client, admin: Client) -> None:
    pages.post("/people/organisations/", {"name": "Fresh"})
    made = Organisation.objects.get(name="Fresh")
    assert not made.host
    pages.post("/people/organisations/", {"organisation": str(made.pk), "name": "Fresher"})
    made.refresh_from_db()
    assert made.name == "Fresher" and last("organisation.rename").detail == {"before": "Fresh"}
    assert admin.post("/people/organisations/", {"name": "Mine"}).status_code == 403
    assert (
        admin.post("/people/organisations/", {"organisation": str(made.pk), "name": "X"}).status_code == 404
    )


def test_an_account_is_switched_off_by_the_host_alone(pages: Client, admin: Client) -> None:
    eve = User.objects.create_user("eve", password=STRONG)
    theirs = Client()
    theirs.force_login(eve)
    assert admin.post(f"/people/accounts/{eve.pk}/off/").status_code == 403
    pages.post(f"/people/accounts/{eve.pk}/off/")
    eve.refresh_from_db()
    assert not eve.is_active and theirs.get("/account/").status_code == 302
    assert last("account.off").subject == "eve"
    pages.post(f"/people/accounts/{eve.pk}/on/")
    eve.refresh_from_db()
    assert eve.is_active


def test_changing_the_password_ends_the_other_sessions(admin: Client) -> None:
    user = User.objects.get(username="ada")
    elsewhere = Client()
    elsewhere.force_login(user)
    before = admin.session.session_key
    body = {
        "old_password": STRONG,
        "new_password1": "winter-in-a-long-walk",
        "new_password2": "winter-in-a-long-walk",
    }
    assert admin.post("/password/", {**body, "old_password": "wrong"}).status_code == 400
    assert elsewhere.get("/account/").status_code == 200
    assert admin.post("/password/", body)["Location"] == "/account/"
    assert admin.get("/account/").status_code == 200 and admin.session.session_key != before
    assert elsewhere.get("/account/").status_code == 302
    assert last("password.change").subject == "ada"
    assert "winter" not in str(list(AuditEntry.objects.values()))


def test_another_role_gives_the_session_another_key(tenant: Organisation, admin: Client) -> None:
    bob = member("bob", "viewer", tenant)
    before = bob.session.session_key
    row = tenant.memberships.get(user__username="bob")
    admin.post(f"/people/{row.pk}/role/", {"role": "operator"})
    assert bob.get("/account/").status_code == 200  # still logged in
    after = bob.session.session_key
    assert after != before
    assert bob.get("/account/").content.count(b"this one") == 1 and bob.session.session_key == after


def test_logging_in_changes_the_sessions_key_and_is_written_down(db: None) -> None:
    User.objects.create_user("ada", password=STRONG)
    client = Client()
    client.get("/login/")
    session = client.session
    session["planted"] = 1
    session.save()
    client.cookies["sessionid"] = planted = session.session_key
    wrong = client.post("/login/", {"username": "ada", "password": "wrong-" + STRONG})
    assert wrong.status_code == 200
    client.post("/login/", {"username": "ada", "password": STRONG})
    assert client.session.session_key != planted
    client.post("/logout/")
    assert [one.action for one in AuditEntry.objects.order_by("pk")] == ["login failed", "login", "logout"]
    assert "wrong-" not in str(list(AuditEntry.objects.values()))


def test_ones_sessions_are_shown_and_ended(admin: Client) -> None:
    elsewhere = Client(headers={"User-Agent": "Elsewhere 1.0"})
    assert elsewhere.post("/login/", {"username": "ada", "password": STRONG}).status_code == 302
    assert "Elsewhere 1.0" in admin.get("/account/").content.decode()
    admin.post("/account/sessions/end/")
    assert elsewhere.get("/account/").status_code == 302 and admin.get("/account/").status_code == 200


def test_the_account_page_saves_the_name_and_address(admin: Client) -> None:
    admin.post("/account/", {"first_name": "Ada", "last_name": "L", "email": "ada@example.org"})
    assert User.objects.get(username="ada").email == "ada@example.org"
    answer = admin.post("/account/", {"email": "nothing"})
    assert answer.status_code == 400 and b"valid email" in answer.content


def test_forms_need_their_token(tenant: Organisation) -> None:
    user = User.objects.create_user("ada", password=STRONG)
    Membership.objects.create(user=user, organisation=tenant, role="admin")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    for path in ("/keys/create/", "/people/invite/", "/account/organisation/", "/logout/"):
        assert strict.post(path, {}).status_code == 403


def test_cookies_are_hardened(settings: Any) -> None:
    User.objects.create_user("ada", password=STRONG)
    client = Client()
    client.get("/login/")
    client.post("/login/", {"username": "ada", "password": STRONG})
    for name in (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME):
        assert client.cookies[name]["httponly"] and client.cookies[name]["samesite"] == "Lax"
