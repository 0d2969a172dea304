"""Whatever the first tenant does, the second is shown the same: not one number, not one row differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.tenancy import addresses
from tests.tenancy.examples import OPEN
from tests.tenancy.test_matrix import browser
from tests.tenancy.world import World, plant, without_the_first
from tuning.models import Worker
from tuning.queue import rates
from tuning.statistics import benefit

pytestmark = pytest.mark.django_db

# What differs between any two answers: tokens, hashes of live parts, times.
_NOISE = re.compile(
    r"csrfmiddlewaretoken\" value=\"\w+|\"seen\": \"\w+|nonce[-=][\w\"+/=-]+|just now"
    r"|[\d.]+ (?:m?s|min|h|seconds?|minutes?)(?: \d+ (?:s|min))? ago"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?|\d\d:\d\d:\d\d(?:\.\d+)?",
    re.IGNORECASE,
)
SHOWS_OTHERWISE = {"login", "healthz", "readyz", "metrics", "logout", "account"}

# How fast the workers are, and what a slice of tuning brings, is learnt from whatever they did: the service's
# own capacity and experience, which are common.
_LEARNT = re.compile(
    r"At most \d+ slices of tuning left[^<]*|a slice of tuning [^\"]*\"(?:>[^<]*)?"
    r"|[\d.]+ m?s, the median of \d+ past contests|slice of [\d.]+ m?s|Time to drain</a></dt><dd>[^<]*"
    r"|Capacity\">[^<]*<span class=\"sub\">[^<]*"
    r"|is expected to save [\d.]+ % of [^<]*? a day(?= at )|Expected gain</a></dt><dd>[^<]*"
    r"|Expected wait\">[^<]*|Next in\">[^<]*|\"(?:wait|free_in|keeps)_s\":[\d.]+"
    r"|\"drain_s\":[\d.]+|\"slices_(?:per|last)_hour\":[\d.]+|\"(?:p50|p95|median)_\w*\":[\d.]+"
)


def shown(world: World) -> Iterator[tuple[str, str]]:
    """Path → what a member of the second tenant, and its key, are shown there."""
    _forget_learnt()
    client = browser(world.other.users["operator"])
    key = {"Authorization": f"Bearer {world.other.key}"}
    for address in [*addresses.pages(), *addresses.api()]:
        if address.arguments or "GET" not in address.methods or address.name in OPEN | SHOWS_OTHERWISE:
            continue
        path = address.filled({})
        response = client.get(path, headers=key if address.api else None)
        if response.status_code == 200:
            yield path, _plain(response)
    operator = world.factory.target.miss_set.order_by("pk").first()
    assert operator is not None
    for path in (f"/operators/{operator.operator.key}/", f"/api/v1/operators/{operator.operator.key}"):
        yield path, _plain(client.get(path, headers=key if "api" in path else None))


def _forget_learnt() -> None:
    """What a process keeps of past slices for half a minute or a whole one: else a busy machine is what
    decides whether both looks are by the same."""
    rates.forget()
    benefit.forget()


def _plain(response: Any) -> str:
    return _LEARNT.sub("·", _NOISE.sub("·", response.content.decode()))


def test_nothing_of_the_first_tenant_changes_what_the_second_is_shown(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = without_the_first()
    Worker.objects.update(last_seen_at=timezone.now() + timedelta(hours=1))  # none falls silent meanwhile
    monkeypatch.setattr(timezone, "now", lambda: world.factory.now + timedelta(minutes=1))
    before = dict(shown(world))
    plant(world)
    after = dict(shown(world))
    assert len(before) > 25
    different = {path: _first_difference(text, after.get(path, "")) for path, text in before.items()}
    assert not {path: where for path, where in different.items() if where}


def _first_difference(one: str, other: str) -> str:
    if one == other:
        return ""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            near = slice(max(number - 60, 0), number + 60)
            return f"{one[near]!r} became {other[near]!r}"
    return f"{len(one)} characters became {len(other)}"
