"""Keys that members make for themselves: never more than the role allows, and no longer than it lasts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from catalog.errors import RequestError
from catalog.models import ApiKey, Membership, Organisation, Role
from catalog.people.keys import SCOPES, KeyRefused, authenticate, create_api_key, revoke_api_key
from catalog.people.members import change_role, remove_member
from catalog.people.own_keys import MOST_OWN_KEYS, OwnKeyRefused, make_own_key, own_scopes, scopes_within
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
