"""Keys that members make for themselves: never more than the role allows, and no longer than it lasts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from catalog.errors import RequestError
from catalog.models import ApiKey, Membership, Organisation, Role
from catalog.people.keys import SCOPES, KeyRefused, authenticate, create_api_key, revoke_api_key
from catalog.people.members import change_role, remove_member
from catalog.people.own_keys import (
    MOST_OWN_KEYS,
    OwnKeyRefused,
    closing_keys_beyond,
    make_own_key,
    own_scopes,
    scopes_within,
)
from catalog.viewing import MAY, viewer_of_key

EVERYBODYS = {"lookup", "models"}
WITHIN = {
    Role.VIEWER: EVERYBODYS,
    Role.OPERATOR: EVERYBODYS | {"operate", "kernels"},
    Role.APPROVER: EVERYBODYS | {"approve", "kernels"},
    Role.BILLING: EVERYBODYS | {"billing"},
    Role.ADMIN: set(SCOPES),
}


@pytest.fixture
def joins(tenant: Organisation):
    def join(role: str, name: str = "bob", organisation: Organisation = tenant) -> Membership:
        user, _ = User.objects.get_or_create(username=name)
        return Membership.objects.create(user=user, organisation=organisation, role=role)

    return join


@pytest.mark.parametrize("role", [*Role.values])
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_is_had_where_the_role_allows_it_and_nowhere_else(joins, role, scope) -> None:
    member = joins(role)
    if scope in WITHIN[role]:
        key, text = make_own_key(member.user, member.organisation, "mine", [scope])
        assert authenticate(text) == key and key.user == member.user
        assert viewer_of_key(key).roles[member.organisation_id] <= MAY[role]
    else:
        with pytest.raises(OwnKeyRefused, match=f"does not allow the scope {scope}"):
            make_own_key(member.user, member.organisation, "mine", ["lookup", scope])
        assert not ApiKey.objects.exists()


def test_every_scope_is_judged() -> None:
    assert {role: set(scopes_within(MAY[role])) for role in Role.values} == WITHIN


def test_a_role_elsewhere_opens_nothing_here(joins, tenant) -> None:
    elsewhere = Organisation.objects.create(name="elsewhere")
    joins("viewer")
    admin = joins("admin", organisation=elsewhere)
    with pytest.raises(OwnKeyRefused, match="scope admin"):
        make_own_key(admin.user, tenant, "mine", ["admin"])
    with pytest.raises(OwnKeyRefused, match="no member"):
        make_own_key(User.objects.create_user("eve"), tenant, "mine", ["lookup"])
    host = Organisation.objects.create(name="host", host=True)
    operator = joins("operator", "olga", host)
    assert own_scopes(operator.user, tenant) == []  # who steers the whole service is no member of each tenant


def test_unknown_scopes_are_the_callers_fault(joins) -> None:
    member = joins("admin")
    with pytest.raises(RequestError, match="Scopes must be some of"):
        make_own_key(member.user, member.organisation, "mine", ["everything"])


def test_what_a_role_gave_goes_with_it(joins) -> None:
    member = joins("operator")
    joins("admin", "ada")
    _, steers = make_own_key(member.user, member.organisation, "steers", ["lookup", "operate"])
    _, asks = make_own_key(member.user, member.organisation, "asks", ["lookup"])
    _, others = create_api_key(member.organisation, "the service's", ["operate"])
    change_role(member, "approver")
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(steers)
    assert authenticate(asks) and authenticate(others)
    remove_member(member)
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(asks)


def test_an_admins_own_key_does_not_outlive_the_role(joins) -> None:
    joins("admin", "ada")
    member = joins("admin")
    _, text = make_own_key(member.user, member.organisation, "all", ["admin"])
    change_role(member, "viewer")
    with pytest.raises(KeyRefused):
        authenticate(text)


def test_only_so_many_are_open_at_a_time(joins) -> None:
    member = joins("viewer")
    made = [make_own_key(member.user, member.organisation, "n", ["lookup"]) for _ in range(MOST_OWN_KEYS)]
    with pytest.raises(OwnKeyRefused, match="revoke one"):
        make_own_key(member.user, member.organisation, "n", ["lookup"])
    revoke_api_key(made[0][0].prefix)
    assert make_own_key(member.user, member.organisation, "n", ["lookup"])


@pytest.fixture
def root(tenant: Organisation) -> User:
    """A superuser, who is a member of nothing."""
    return User.objects.create_superuser("root")


def test_a_superusers_own_keys_do_not_outlive_that(root, tenant, joins) -> None:
    member = joins("operator", "root")
    all_of_it = make_own_key(root, tenant, "all", ["admin"])[1]
    steers = make_own_key(root, tenant, "steers", ["operate"])[1]
    given = create_api_key(tenant, "others'", ["admin"])[1]
    with closing_keys_beyond([root.pk]):
        User.objects.filter(pk=root.pk).update(is_superuser=False)
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(all_of_it)
    assert authenticate(steers).user == member.user, "the role allows it still"
    assert authenticate(given)


def test_a_role_at_the_host_gives_keys_elsewhere_and_takes_them(joins, tenant) -> None:
    host = Organisation.objects.create(name="host", host=True)
    joins("admin", "ada", host)
    member = joins("admin", "bob", host)
    text = make_own_key(member.user, tenant, "all of a tenant's", ["operate"])[1]
    change_role(member, "operator")
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(text)


def test_a_member_of_the_host_who_goes_keeps_no_key_elsewhere(joins, tenant) -> None:
    host = Organisation.objects.create(name="host", host=True)
    joins("admin", "ada", host)
    member = joins("admin", "bob", host)
    text = make_own_key(member.user, tenant, "a tenant's", ["lookup"])[1]
    remove_member(member)
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(text)


def test_nothing_is_closed_where_nothing_was_taken(root, tenant) -> None:
    text = make_own_key(root, tenant, "all", ["admin"])[1]
    with closing_keys_beyond([root.pk]):
        User.objects.filter(pk=root.pk).update(last_name="Root")
    assert authenticate(text)


class TestInDjangosAdministration:
    """Its forms change the same rows, and take the same keys."""

    @pytest.fixture
    def person(self, tenant, joins):
        boss = User.objects.create_superuser("boss")
        joins("admin", "keeper")
        client = Client()
        client.force_login(boss)
        return client

    def change(self, client: Client, user: User, *, memberships: int = 0, **changed: str) -> None:
        """The form of a person, as its page sends it."""
        asked = {
            "username": user.username,
            "date_joined_0": "2026-01-01",
            "date_joined_1": "12:00:00",
            "memberships-TOTAL_FORMS": str(memberships),
            "memberships-INITIAL_FORMS": str(memberships),
        }
        answer = client.post(reverse("admin:auth_user_change", args=[user.pk]), asked | changed)
        assert answer.status_code == 302, answer.context["errors"]

    @pytest.mark.parametrize(
        ("kept", "closed"),
        [
            ({"is_active": "on"}, True),
            ({"is_superuser": "on"}, True),
            ({"is_active": "on", "is_superuser": "on"}, False),
        ],
    )
    def test_who_is_no_superuser_any_more_or_is_switched_off(self, person, root, tenant, kept, closed):
        key, _ = make_own_key(root, tenant, "all", ["admin"])
        self.change(person, root, **kept)
        key.refresh_from_db()
        assert (key.revoked_at is not None) is closed

    def test_who_has_another_role(self, person, joins):
        member = joins("operator")
        key, _ = make_own_key(member.user, member.organisation, "steers", ["operate"])
        row = {
            "id": member.pk,
            "user": member.user_id,
            "organisation": member.organisation_id,
            "role": "viewer",
        }
        row = {f"memberships-0-{name}": str(value) for name, value in row.items()}
        self.change(person, member.user, memberships=1, is_active="on", **row)
        key.refresh_from_db()
        assert key.revoked_at is not None
