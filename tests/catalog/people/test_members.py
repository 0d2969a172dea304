"""Members, roles, invitations, accounts: what changes, and what is refused in one sentence."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.core.management import CommandError, call_command
from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import ApiKey, AuditEntry, Invitation, Membership, Organisation, Role
from catalog.people import audit
from catalog.people import members as people
from catalog.people.keys import create_api_key
from catalog.viewing import ADMINISTER, APPROVE, BILL, OPERATE, viewer_of, viewer_of_key
from tests.dashboard.people import member_client

pytestmark = pytest.mark.django_db
STRONG = "a-long-walk-in-winter"


@pytest.fixture
def host() -> Organisation:
    return Organisation.objects.create(name="Host", host=True)


def member(name: str, organisation: Organisation, role: str) -> Membership:
    user, _ = User.objects.get_or_create(username=name)
    return Membership.objects.create(user=user, organisation=organisation, role=role)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("viewer", set()), ("operator", {OPERATE}), ("approver", {APPROVE}), ("billing", {BILL}),
     ("admin", {OPERATE, APPROVE, BILL, ADMINISTER})],
)  # fmt: skip
def test_a_role_holds_at_home_and_the_hosts_everywhere(
    tenant: Organisation, host: Organisation, role: str, allowed: set[str]
) -> None:
    at_home = viewer_of(member("ada", tenant, role).user)
    everywhere = viewer_of(member("bob", host, role).user)
    for what in (OPERATE, APPROVE, BILL, ADMINISTER):
        assert at_home.may(what, tenant.pk) == (what in allowed)
        assert not at_home.may(what) and not at_home.may(what, host.pk)
        assert everywhere.may(what) == everywhere.may(what, tenant.pk) == (what in allowed)
    assert not at_home.sees_all and everywhere.sees_all


def test_who_looks_at_one_organisation_sees_its_rows_and_the_shared(
    tenant: Organisation, host: Organisation
) -> None:
    viewer = viewer_of(member("bob", host, "admin").user)
    assert viewer.scopes is None and viewer.tenant == "all"
    focused = viewer.focused(tenant.pk)
    assert focused.tenant == f"org:{tenant.pk}"
    assert set(focused.scopes or ()) == {"shared", f"org:{tenant.pk}", f"org:{host.pk}"}
    other = viewer_of(member("ada", tenant, "admin").user)
    assert other.focused(host.pk) == other and other.focused(None) == other


def test_a_key_is_no_more_than_its_organisation(tenant: Organisation, host: Organisation) -> None:
    scopes = ["operate", "approve", "billing", "admin"]
    theirs = viewer_of_key(create_api_key(tenant, "k", scopes)[0])
    assert not theirs.sees_all and not theirs.may(OPERATE) and theirs.may(OPERATE, tenant.pk)
    assert viewer_of_key(create_api_key(host, "k", ["approve"])[0]).may(APPROVE)
    assert not viewer_of_key(create_api_key(host, "k", ["lookup"])[0]).sees_all


def test_the_last_admin_can_neither_leave_nor_step_down(tenant: Organisation) -> None:
    first = member("ada", tenant, "admin")
    for refused in (
        lambda: people.change_role(first, "viewer"),
        lambda: people.remove_member(first),
        lambda: people.deactivate(first.user),
    ):
        with pytest.raises(people.MembershipRefused, match="at least one admin"):
            refused()
    second = member("bob", tenant, "admin")
    User.objects.filter(pk=second.user_id).update(is_active=False)
    with pytest.raises(people.MembershipRefused):  # one who cannot log in does not count
        people.remove_member(first)
    User.objects.filter(pk=second.user_id).update(is_active=True)
    people.change_role(first, "viewer")
    assert tenant.memberships.get(role="admin").user.username == "bob"


def test_removing_a_member_closes_the_keys_there(tenant: Organisation) -> None:
    row = member("ada", tenant, "operator")
    here, _ = create_api_key(tenant, "here", ["lookup"], user=row.user)
    there, _ = create_api_key(Organisation.objects.create(name="There"), "there", ["lookup"], user=row.user)
    service, _ = create_api_key(tenant, "nobody's", ["lookup"])
    people.remove_member(row)
    closed = set(ApiKey.objects.exclude(revoked_at=None).values_list("pk", flat=True))
    assert closed == {here.pk} and {there.pk, service.pk}.isdisjoint(closed)


def test_services_keys_do_not_outlive_the_administrator_who_made_them(api_with, tenant: Organisation) -> None:
    """Who made a key knows its text, whoever it was made for."""
    member("bob", tenant, "admin")
    row = member("ada", tenant, "admin")
    own, text = create_api_key(tenant, "own", ["admin"], user=row.user)
    ci = api_with(text).post("keys/", {"name": "ci", "scopes": ["admin"]}).json()
    further = api_with(ci["key"]).post("keys/", {"name": "further", "scopes": ["lookup"]}).json()
    others, _ = create_api_key(tenant, "of the shell", ["lookup"])
    people.change_role(row, "viewer")
    closed = ApiKey.objects.exclude(revoked_at=None).values_list("pk", flat=True)
    assert set(closed) == {own.pk, ci["id"]}, "what a viewer may have stays"
    assert people.remove_member(row) == 1
    assert set(closed.all()) == {own.pk, ci["id"], further["id"]} and others.pk not in closed.all()


def test_what_a_key_of_the_shell_made_is_known_when_it_is_closed(api_with, tenant: Organisation) -> None:
    """Closing it closes none of them, since keys are exchanged so; but nobody overlooks them."""
    made, text = create_api_key(tenant, "of the shell", ["admin"])
    ci = api_with(text).post("keys/", {"name": "ci", "scopes": ["admin"]}).json()
    further = api_with(ci["key"]).post("keys/", {"name": "further", "scopes": ["lookup"]}).json()
    assert (ci["made_by_key"], further["made_by_key"]) == (made.prefix, ci["prefix"])
    mine = member_client(tenant, "admin")
    assert f"made with the key {made.prefix}" in mine.get("/keys/").content.decode()
    said = mine.post(f"/keys/{made.pk}/revoke/", follow=True).content.decode()
    assert "stay open" in said and ci["prefix"] in said and further["prefix"] in said
    closed = api_with(ci["key"]).post(f"keys/{ci['id']}/revoke").json()
    assert closed["still_open"] == [further["prefix"]] and closed["made_by_key"] == made.prefix


def test_switching_an_account_off_closes_every_key_of_it(tenant: Organisation) -> None:
    row = member("ada", tenant, "operator")
    create_api_key(tenant, "k", ["lookup"], user=row.user)
    people.deactivate(row.user)
    assert ApiKey.objects.get().revoked_at and not User.objects.get().is_active
    people.reactivate(row.user)
    assert User.objects.get().is_active and ApiKey.objects.get().revoked_at


@pytest.mark.parametrize("role", ["", "owner", "ADMIN", "\0"])
def test_no_other_roles(tenant: Organisation, role: str) -> None:
    with pytest.raises(RequestError, match="A role is one of"):
        people.invite(tenant, role)
    assert not Invitation.objects.exists()


def test_whoever_is_a_member_keeps_the_role(tenant: Organisation) -> None:
    row = member("ada", tenant, "viewer")
    people.accept(people.invite(tenant, "admin")[0], row.user)
    assert tenant.memberships.get().role == "viewer"


def test_a_name_that_is_taken_elsewhere_is_not_told(tenant: Organisation) -> None:
    """Who may invite could else ask for every name whether it has an account."""
    User.objects.create(username="ada")
    User.objects.create(username="bob@7000000")
    refused = []
    for name in ("ada", "nobody", "bob@7000000", "nobody@7000000"):
        with pytest.raises(RequestError) as refusal:
            people.accept_with_account(people.invite(tenant, "viewer")[0], name, STRONG)
        refused.append((str(refusal.value), refusal.value.where))
    assert len(set(refused)) == 1 and f"ends in @{tenant.pk} here" in refused[0][0]
    assert User.objects.count() == 2
    people.accept_with_account(people.invite(tenant, "viewer")[0], f" ada@{tenant.pk}", STRONG)
    with pytest.raises(people.MembershipRefused, match="taken"):  # by a member
        people.accept_with_account(people.invite(tenant, "viewer")[0], f"ada@{tenant.pk}", STRONG)


def test_an_invitation_is_taken_once(tenant: Organisation) -> None:
    row, token = people.invite(tenant, "operator", email="a@example.org")
    found = people.read_invitation(token)
    assert found == row and token not in str(Invitation.objects.values())
    user = people.accept_with_account(found, f"ada@{tenant.pk}", STRONG)
    assert user.check_password(STRONG) and user.email == "a@example.org"
    assert tenant.memberships.get().role == "operator"
    with pytest.raises(people.MembershipRefused):  # read before it was used: the claim decides
        people.accept_with_account(found, f"bob@{tenant.pk}", STRONG)
    assert User.objects.get() == user
    with pytest.raises(people.MembershipRefused, match="used already"):
        people.read_invitation(token)


def test_an_invitation_ends(tenant: Organisation) -> None:
    row, token = people.invite(tenant, "viewer")
    with pytest.raises(Unknown, match="expired"):
        people.read_invitation(token, now=timezone.now() + people.INVITATION_LIFE + timedelta(seconds=1))
    people.withdraw_invitation(row)
    with pytest.raises(people.MembershipRefused, match="withdrawn"):
        people.read_invitation(token)


@pytest.mark.parametrize("token", ["", "x", "a:b:c", "\0", "é" * 500])
def test_a_token_that_is_none_opens_nothing(token: str) -> None:
    with pytest.raises(Unknown, match="opens no invitation"):
        people.read_invitation(token)


def test_a_token_signed_for_something_else_opens_nothing(tenant: Organisation) -> None:
    row, _ = people.invite(tenant, "admin")
    with pytest.raises(Unknown):
        people.read_invitation(signing.dumps({"invitation": row.nonce}, salt="something else"))


@pytest.mark.parametrize("password", ["short", "1234567890123", "password123", "adalovelace"])
def test_weak_passwords_are_refused_and_make_no_account(tenant: Organisation, password: str) -> None:
    row, _ = people.invite(tenant, "viewer")
    with pytest.raises(RequestError) as refusal:
        people.accept_with_account(row, f"adalovelace@{tenant.pk}", password)
    assert refusal.value.where == "password" and not User.objects.exists()


def test_organisations_have_names_of_their_own(tenant: Organisation) -> None:
    with pytest.raises(people.MembershipRefused, match="of this name"):
        people.make_organisation("  Tenant ")
    with pytest.raises(RequestError, match="1 to 200"):
        people.make_organisation("   ")
    other = people.make_organisation("Other")
    with pytest.raises(people.MembershipRefused):
        people.rename_organisation(other, "Tenant")
    assert not other.host and people.rename_organisation(other, "Another").name == "Another"


def test_commands_make_accounts_and_invitations(host: Organisation, tenant: Organisation) -> None:
    out, err = io.StringIO(), io.StringIO()
    call_command("create_user", "ada", organisation="Tenant", role="billing", stdout=out, stderr=err)
    assert User.objects.get().check_password(out.getvalue().strip())
    assert tenant.memberships.get().role == Role.BILLING
    with pytest.raises(CommandError, match="taken"):
        call_command("create_user", "ada", stdout=out, stderr=err)
    out = io.StringIO()
    call_command(
        "invite", organisation="Tenant", role="admin", url="https://map.example/", stdout=out, stderr=err
    )
    link = out.getvalue().strip()
    assert link.startswith("https://map.example/invited/")
    assert people.read_invitation(link.split("/")[-2]).role == "admin"
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"account.make", "member.invite"}


def test_the_log_is_only_ever_added_to(tenant: Organisation) -> None:
    from django.db import DatabaseError, connection, transaction

    user = User.objects.create(username="ada")
    row = audit.record("tried", subject="it", user=user, organisation=tenant)
    for refused in (
        lambda: AuditEntry.objects.all().delete(),
        lambda: AuditEntry.objects.update(actor="somebody else"),
        row.delete,
        row.save,
    ):
        with pytest.raises(TypeError, match="only ever added to"):
            refused()
    refused_by_the_database = pytest.raises(DatabaseError, match="only ever added to")
    with refused_by_the_database, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE catalog_auditentry SET actor = 'somebody else'")
    user.delete()  # what it says outlives the account
    row.refresh_from_db()
    assert (row.actor, row.user_id, row.action) == ("ada", None, "tried")


def test_what_is_written_is_bounded_and_on_one_line(tenant: Organisation) -> None:
    row = audit.record("x" * 200, subject="a\n\0b " * 200, actor="é" * 900)
    row.refresh_from_db()
    assert len(row.action) == 80 and len(row.subject) <= 300 and "\n" not in row.subject
    assert len(row.actor) == 200
