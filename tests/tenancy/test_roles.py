"""What members of the organisation that owns the rows may see and do, by role."""

from __future__ import annotations

import pytest

from catalog.models import Role
from tests.tenancy.examples import COMMON, COMMON_ROWS, EXAMPLES, NEEDS, OPEN, PERSONAL
from tests.tenancy.test_matrix import browser, calls, changed, send, snapshot
from tests.tenancy.world import World

pytestmark = pytest.mark.django_db
REFUSED = {403, 404}

# A viewer's own affairs, and what the service counts by itself.
_OWN_AFFAIRS = ("notifications.",)


def test_members_see_what_is_their_organisations(world: World) -> None:
    assert world.owner is not None
    client, wrong = browser(world.owner.users["admin"]), []
    for address, path in calls(world, "GET"):
        if address.api or not address.arguments or address.name in OPEN | COMMON | COMMON_ROWS | PERSONAL:
            continue
        response = send(client, address, path, "GET", None, world.rows)
        if response.status_code in REFUSED and address.name not in NEEDS | NOT_FOUND_THERE:
            wrong.append((path, response.status_code))
    assert not wrong


NOT_FOUND_THERE = {
    "operator-file": set(),  # the planted file is in no store
    "notification": set(),
}


IN_NO_STORE = {"artifacts/{sha256}", "artifacts/{sha256}/files/{name}", "predictor/{sha256}"}
"""Planted rows have no files."""


def test_keys_see_what_is_their_organisations(world: World) -> None:
    assert world.owner is not None
    wrong = []
    for address, path in calls(world, "GET"):
        if not address.api or not address.arguments or address.name in COMMON | COMMON_ROWS | OPEN:
            continue
        if address.name in IN_NO_STORE | {"billing/rules/{line}", "subscriptions/{id}"}:
            continue  # prices are the host's
        response = send(browser(), address, path, "GET", world.owner.key, world.rows)
        if response.status_code != 200:
            wrong.append((path, response.status_code))
    assert not wrong


def test_a_viewer_changes_nothing(world: World) -> None:
    assert world.owner is not None
    before = snapshot(world)
    client = browser(world.owner.users["viewer"])
    for address, path in calls(world, "POST"):
        if not address.api and address.name not in ("logout", "account") and address.name not in PERSONAL:
            send(client, address, path, "POST", None, world.rows)
    lost = [name for name in changed(before, snapshot(world)) if not _is_own_affair(name)]
    assert not lost


def _is_own_affair(name: str) -> bool:
    return name.startswith(_OWN_AFFAIRS) and not name.lower().startswith("notifications.alert")


@pytest.mark.parametrize("role", [*Role.values])
def test_posting_takes_the_role_that_the_table_names(world: World, role: str) -> None:
    """Each role in turn, against each page that is in the table: refused without it, let through with it."""
    assert world.owner is not None
    user, wrong = world.owner.users[role], []
    client = browser(user)
    for address, path in calls(world, "POST"):
        if address.name not in NEEDS:
            continue
        status = send(client, address, path, "POST", None, world.rows).status_code
        if role not in NEEDS[address.name] and status not in REFUSED:
            wrong.append((path, status, "let through"))
        if role in NEEDS[address.name] and status in REFUSED and not _once(address.name):
            wrong.append((path, status, "refused"))
    assert not wrong


@pytest.mark.parametrize("role", [*Role.values])
def test_the_hosts_roles_hold_for_the_whole_service(world: World, role: str) -> None:
    client = browser(world.host.users[role])
    allowed = {
        "queue-act": {"operator", "admin"},
        "environment-declare": {"operator", "admin"},
        "kernel-decide": {"approver", "admin"},
        "operator-revoke": {"approver", "admin"},
        "key-revoke": {"admin"},
    }
    wrong = []
    for address, path in calls(world, "POST"):
        if address.name not in allowed or address.name == "key-revoke":
            continue
        status = send(client, address, path, "POST", None, world.rows).status_code
        if (status in REFUSED) == (role in allowed[address.name]):
            wrong.append((path, status))
    assert not wrong


def _once(name: str) -> bool:
    """Done by an earlier example already, so that a later one finds nothing left."""
    return name in ("webhook-act", "webhook-replay", "member-remove", "member-uninvite")


def test_the_table_names_pages_that_there_are() -> None:
    assert set(NEEDS) - set(EXAMPLES) <= {"environment-declare", "billing-rule-new", "queue-weight"}
