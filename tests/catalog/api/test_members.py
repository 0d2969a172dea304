"""Members of a key's organisation by REST: who joins is invited, and nobody is told of an account."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from catalog.models import Invitation, Membership, Organisation
from catalog.people import members as people
from catalog.people.keys import create_api_key

pytestmark = pytest.mark.django_db
STRONG = "a-long-walk-in-winter"


@pytest.fixture
def admin(api_with, tenant):
    return api_with(create_api_key(tenant, "admin", ["admin"])[1])


@pytest.fixture
def victim():
    """Somebody of another organisation, who is logged in."""
    user = User.objects.create_user("victim", "victim@example.org", STRONG)
    Membership.objects.create(
        user=user, organisation=Organisation.objects.create(name="Theirs"), role="admin"
    )
    browser = Client()
    browser.login(username="victim", password=STRONG)
    return browser


def test_nobody_is_added_by_the_name_of_an_account(admin, victim, tenant):
    answers = [admin.post("members/", {"username": name, "role": "viewer"}) for name in ("victim", "nobody")]
    assert [one.status_code for one in answers] == [400, 400]
    told = [{name: text for name, text in one.json().items() if name != "request_id"} for one in answers]
    assert told[0] == told[1] and "Nobody is added by name" in told[0]["error"]
    assert told[0]["where"] == "username"
    assert not tenant.memberships.exists() and not Invitation.objects.exists()
    assert victim.get("/account/").status_code == 200


def test_an_invitation_is_the_same_whether_the_address_has_an_account(admin, victim):
    answers = [admin.post("members/", {"email": email, "role": "viewer"}) for email in
               ("victim@example.org", "nobody@example.org")]  # fmt: skip
    assert [one.status_code for one in answers] == [201, 201]
    assert [list(one.json()) for one in answers] == [["invitation"]] * 2
    assert len({len(one.json()["invitation"]) for one in answers}) == 1


def test_who_joined_is_shown_without_address_and_last_login(admin, victim, tenant):
    path = admin.post("members/", {"role": "viewer"}).json()["invitation"]
    victim.post(path)
    (row,) = admin.get("members/").json()["results"]
    assert sorted(row) == ["active", "created_at", "id", "role", "username"]
    changed = admin.client.patch(
        f"/api/v1/members/{row['id']}", {"role": "operator"}, content_type="application/json",
        headers=admin.headers,
    )  # fmt: skip
    assert sorted(changed.json()) == sorted(row) and tenant.memberships.get().role == "operator"


def test_taking_somebody_out_ends_no_session_of_theirs(admin, victim, tenant):
    row = people.accept(people.invite(tenant, "viewer")[0], User.objects.get(username="victim"))
    answer = admin.client.delete(f"/api/v1/members/{row.pk}", headers=admin.headers)
    assert answer.status_code == 204 and not tenant.memberships.exists()
    assert victim.get("/people/").status_code == 200
