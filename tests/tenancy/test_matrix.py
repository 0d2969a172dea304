"""Every page and every address of the API, with everybody's credentials.

An address that is in no table fails here: whoever adds one says whose rows it shows and what posting takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core.serializers.json import DjangoJSONEncoder
from django.test import Client

from catalog.models import Role
from tests import by_day
from tests.tenancy import addresses, planting
from tests.tenancy.addresses import Address
from tests.tenancy.examples import BODIES, COMMON, COMMON_ROWS, EXAMPLES, OPEN
from tests.tenancy.world import COUNT, MARK, World

pytestmark = pytest.mark.django_db
ALL = [*addresses.pages(), *addresses.api()]
THE_SERVICES_OWN = {
    "tuning.Pause", "tuning.Revalidation", "catalog.DeclaredEnvironment", "catalog.Organisation",
    "billing.PriceRule", "billing.LedgerEntry",
}  # fmt: skip
NOT_COMPARED = {"SignIn", "LookupTally", "Measurement", "OperatorTotal", "TrafficSlot", "RouteSlot"}


def calls(world: World, method: str) -> Iterator[tuple[Address, str]]:
    """Every address that takes this method, with each of its examples filled in."""
    for address in ALL:
        if method not in address.methods:
            continue
        if address.arguments and address.name not in EXAMPLES:
            continue  # a test of its own says that it is missing
        examples = EXAMPLES[address.name](world.rows) if address.arguments else [{}]
        for arguments in examples:
            yield address, address.filled(arguments)


def send(client: Client, address: Address, path: str, method: str, key: str | None, rows: Any) -> Any:
    options: dict[str, Any] = {"headers": {"Authorization": f"Bearer {key}"}} if address.api and key else {}
    if method == "GET":
        return client.get(path, **options)
    body = BODIES[address.name](rows) if address.name in BODIES else {}
    if address.api:
        options["content_type"] = "application/json"
    return getattr(client, method.lower())(path, body, **options)


def text_of(response: Any) -> str:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return content.decode("utf-8", "replace") + str(response.headers)


def browser(user: Any = None) -> Client:
    client = Client(raise_request_exception=False)
    if user is not None:
        client.force_login(user)
    return client


def marks_in(response: Any) -> list[str]:
    text = text_of(response).lower()
    return [mark for mark in (MARK, str(COUNT), f"{COUNT:,}") if mark in text]


def snapshot(world: World) -> dict[str, Any]:
    """Every row of the first tenant and of the service as a whole, as text."""
    encode = DjangoJSONEncoder(sort_keys=True).encode
    ignored = {"last_used_at", "updated_at", "last_seen_at"}
    found = {}
    for model in apps.get_models():
        if model._meta.app_label not in planting.APPS or model.__name__ in NOT_COMPARED:
            continue
        for row in model._base_manager.values():
            kept = {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in row.items()
                if name not in ignored
            }
            found[f"{model._meta.label} {row[model._meta.pk.name]}"] = encode(kept)
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What was changed or deleted, and what was added to tables of the whole service."""
    lost = [name for name, row in before.items() if after.get(name) != row]
    return lost + [name for name in after if name not in before and name.split()[0] in THE_SERVICES_OWN]


def test_every_address_is_in_the_tables() -> None:
    nameless = [a.path for a in ALL if a.arguments and a.name not in EXAMPLES]
    assert not nameless, f"name example arguments in tests/tenancy/examples.py for: {nameless}"
    writing = [a.name for a in addresses.api() if set(a.methods) - {"GET"} and a.name not in BODIES]
    assert not writing, f"name a body in tests/tenancy/examples.py for: {writing}"
    assert not addresses.undescribed(), "routes of the API that its schema leaves out"
    known = {a.name for a in ALL}
    stale = sorted((set(EXAMPLES) | set(BODIES) | OPEN | COMMON | COMMON_ROWS) - known)
    assert not stale, f"no such addresses any more: {stale}"


def test_every_page_that_takes_a_post_is_in_the_tables(world: World) -> None:
    client = browser(world.host.users["admin"])
    missing = []
    for address, path in calls(world, "POST"):
        if address.api or address.name in BODIES or address.name in OPEN:
            continue
        if client.options(path).headers.get("Allow", "POST").find("POST") >= 0:
            missing.append(address.name)
    assert not missing, f"name a body in tests/tenancy/examples.py for: {missing}"


def test_every_table_of_an_organisation_is_planted(world: World) -> None:
    assert planting.unplanted(world.rows["organisation"]) == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_without_credentials_nothing_opens(world: World, method: str) -> None:
    before, wrong = snapshot(world), []
    for address, path in calls(world, method):
        response = send(browser(), address, path, method, None, world.rows)
        if address.name not in OPEN:
            refused = response.status_code == 401
            if not address.api:
                refused = response.status_code == 302 and response["Location"].startswith("/login/?next=")
            if not refused:
                wrong.append((method, path, response.status_code))
        if marks_in(response):
            wrong.append((method, path, "shows the first tenant's own"))
    assert not wrong
    assert not changed(before, snapshot(world))


def refused_calls(world: World, user: Any, key: str | None) -> list[Any]:
    """What somebody who must see nothing of the first tenant was shown, and was let do."""
    wrong: list[Any] = []
    done: list[Any] = []  # what was not refused: where to look if something changed
    before = snapshot(world)
    client = browser(user)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        for address, path in calls(world, method):
            if (address.api and key is None) or (address.name == "logout" and method == "POST"):
                continue
            response = send(client, address, path, method, key, world.rows)
            status = response.status_code
            if found := marks_in(response):
                wrong.append((method, path, status, found))
            if status >= 500 and address.name != "readyz":  # no worker runs here: it says so
                wrong.append((method, path, status))
            own = bool(address.arguments) and address.name not in COMMON | COMMON_ROWS | OPEN
            if own and status not in (403, 404, 405):
                wrong.append((method, path, status, "instead of 404"))
            if method != "GET" and status < 400:
                done.append((method, path, status))
    if lost := changed(before, snapshot(world)):
        wrong.append(("changed", lost, "perhaps by", done))
    return wrong


@pytest.mark.parametrize("role", by_day.only([Role.ADMIN], Role.values))
def test_another_tenant_meets_nothing_of_the_first(world: World, role: str) -> None:
    key = world.other.key if role == Role.ADMIN else None
    assert refused_calls(world, world.other.users[role], key) == []


def test_who_belongs_to_nobody_meets_nothing_of_anybodys(world: World) -> None:
    assert refused_calls(world, world.stranger, None) == []
