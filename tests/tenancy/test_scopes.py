"""What is private and what is shared: each step of a lookup's and an exploration's life, in each scope.

Three scopes hold the same operator, target and setting: the shared one and those of two organisations. A step
happens in one of them; the others must stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.utils import timezone

from catalog.best.publishing import publish as publish_result
from catalog.best.served import Accepts
from catalog.best.withdrawing import set_aside as set_these_aside
from catalog.best.withdrawing import withdraw as withdraw_these
from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
from catalog.lookup.misses import Wanted, Where, record_misses
from catalog.lookup.results import Result
from catalog.models import SHARED, Best, BestChange, Implementation, Miss, MissState, Organisation
from catalog.people.keys import create_api_key
from catalog.registry import register_operator, register_setting, register_target
from opatlas.identity import Operator
from tests.catalog import making
from tuning.models import Exploration
from tuning.queue.claims import settle_miss

pytestmark = pytest.mark.django_db

SCOPES = ("shared", "own", "other")


class Seen(NamedTuple):
    """A scope's miss (state "": there is none) and who is served in it ("": nobody)."""

    state: str = ""
    count: int = 0
    served: str = ""


class World:
    """One operator on one target; ``owners`` by the name of the scope."""

    def __init__(self) -> None:
        self.operator: Operator = making.relu(64)
        self.place = {
            "operator": register_operator(self.operator),
            "target": register_target(making.TARGET),
            "setting": register_setting(making.SETTING),
        }
        self.owners: dict[str, Organisation | None] = {"shared": None} | {
            name: Organisation.objects.create(name=name) for name in SCOPES[1:]
        }

    def scope(self, name: str) -> dict[str, Any]:
        owner = self.owners[name]
        return {"scope": SHARED if owner is None else f"org:{owner.pk}", "owner": owner}

    def put(self, name: str, route: str = "eager", ratio: float = 1.0, **changes: Any) -> Any:
        """Publish a result into a scope."""
        return publish_result(making.new_result(self.place, route, ratio, **self.scope(name), **changes))

    def make(self, name: str, seen: Seen) -> None:
        """Bring a scope into this state."""
        if seen.served:
            self.put(name, seen.served)
        if seen.state:
            Miss.objects.create(
                **self.place, **self.scope(name), state=seen.state, count=seen.count, reason="earlier"
            )

    def see(self, name: str) -> Seen:
        here = {**self.place, "scope": self.scope(name)["scope"]}
        miss = Miss.objects.filter(**here).first()
        served = Best.objects.filter(**here, rank=0).values_list("route", flat=True).first() or ""
        return Seen(miss.state, miss.count, served) if miss else Seen(served=served)

    def record(self, name: str, **where: Any) -> str:
        """Record the operator as missed in a scope; the state that is answered."""
        wanted = Wanted(self.operator.key, 1.0, self.place["operator"].pk)
        place = Where(self.place["target"], self.place["setting"], **self.scope(name), **where)
        return record_misses([wanted], place)[self.operator.key].state

    def look_up(self, name: str, **changes: Any) -> Result:
        """What a job of this organisation is answered; "shared": one of none."""
        request = LookupRequest(
            target=self.place["target"],
            setting=self.place["setting"],
            operators=[AskedOperator(self.operator.key, graph=self.operator)],
            organisation=self.owners[name],
        )
        (result,) = lookup(replace(request, **changes)).results
        return result


@pytest.fixture
def world(configure: Any, tmp_path: Path) -> World:
    configure(home=tmp_path / "home", store=tmp_path / "store")
    return World()


# ---- steps: what happens in one scope -----------------------------------------------------------------


def miss(world: World, name: str) -> str:
    return world.record(name)


def publish(world: World, name: str) -> None:
    before = Miss.objects.get(scope=world.scope(name)["scope"]).state
    world.put(name, "onednn", 1.5)
    told = Miss.objects.get(scope=world.scope(name)["scope"])
    assert told.reason == ("earlier" if before == MissState.EXPLORED else "")


def publish_what_was_revoked_elsewhere(world: World, name: str) -> None:
    for other in SCOPES:
        if other != name:
            revoked = world.put(other, "cpp", 2.0).implementation
            Implementation.objects.filter(pk=revoked.pk).update(revoked_at=timezone.now())
            Best.objects.filter(implementation=revoked).delete()
    world.put(name, "cpp", 2.0)


def publish_what_was_revoked_here(world: World, name: str) -> None:
    withdraw_these(Implementation.objects.filter(pk=world.put(name, "cpp", 2.0).implementation.pk), "no")
    world.put(name, "cpp", 3.0)


def settle(world: World, name: str) -> None:
    row = Exploration(**world.place, **world.scope(name), asked_at=timezone.now())
    settle_miss(row, MissState.FAILED, "gave up")
    told = Miss.objects.get(scope=row.scope)
    assert told.reason == ("" if told.state == MissState.EXPLORED else "gave up")


def withdraw(world: World, name: str) -> None:
    withdraw_these(Implementation.objects.filter(scope=world.scope(name)["scope"]), "no licence")


def set_aside(world: World, name: str) -> None:
    set_these_aside(Implementation.objects.filter(scope=world.scope(name)["scope"]), "crashed")


NOTHING, WAITING = Seen(), Seen("waiting", 1)
SERVED = Seen("explored", 1, "eager")

STEPS: list[tuple[Callable[[World, str], Any], Seen, Seen, Seen]] = [
    # step, the scope before, the other scopes before and after, the scope after
    (miss, NOTHING, Seen("failed", 7), Seen("waiting", 1)),
    (miss, Seen("failed", 3), WAITING, Seen("failed", 4)),
    (miss, Seen("explored", 1), SERVED, Seen("waiting", 2)),
    (miss, Seen("waiting", 1, "eager"), WAITING, Seen("explored", 2, "eager")),
    (publish, WAITING, WAITING, Seen("explored", 1, "onednn")),
    (publish, WAITING, SERVED, Seen("explored", 1, "onednn")),
    (publish, SERVED, WAITING, Seen("explored", 1, "onednn")),
    (publish_what_was_revoked_elsewhere, WAITING, NOTHING, Seen("explored", 1, "cpp")),
    (publish_what_was_revoked_here, WAITING, WAITING, WAITING),
    (settle, Seen("promoted", 1), Seen("promoted", 1), Seen("failed", 1)),
    (settle, Seen("promoted", 1), SERVED, Seen("failed", 1)),
    (settle, Seen("promoted", 1, "eager"), Seen("promoted", 1), SERVED),
    (withdraw, SERVED, SERVED, WAITING),
    (set_aside, SERVED, SERVED, WAITING),
]


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize(("step", "before", "elsewhere", "after"), STEPS)
def test_a_step_in_one_scope_changes_that_one_alone(
    world: World,
    step: Callable[[World, str], Any],
    before: Seen,
    elsewhere: Seen,
    after: Seen,
    name: str,
) -> None:
    for each in SCOPES:
        world.make(each, before if each == name else elsewhere)
    answer = step(world, name)
    assert {each: world.see(each) for each in SCOPES} == {
        each: after if each == name else elsewhere for each in SCOPES
    }
    assert answer in (None, after.state)


@pytest.mark.parametrize("name", SCOPES)
def test_what_is_recorded_and_published_in_a_scope_is_its_owners(world: World, name: str) -> None:
    world.record(name)
    published = world.put(name)
    rows = [Miss.objects.get(), Best.objects.get(), BestChange.objects.get(), published.implementation]
    assert [(row.scope, row.owner) for row in rows] == [tuple(world.scope(name).values())] * 4


# ---- lookups: what each organisation is answered ------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "answers"),
    [
        # who is served where; what a job of nobody, of the one and of the other organisation gets
        ({}, ("", "", "")),
        ({"shared": "eager"}, ("eager", "eager", "eager")),
        ({"own": "tvm"}, ("", "tvm", "")),
        ({"other": "xla"}, ("", "", "xla")),
        ({"own": "tvm", "other": "xla"}, ("", "tvm", "xla")),
        ({"shared": "eager", "own": "tvm"}, ("eager", "tvm", "eager")),
        ({"shared": "eager", "own": "tvm", "other": "xla"}, ("eager", "tvm", "xla")),
    ],
)
def test_a_lookup_sees_its_own_before_the_shared_and_nobody_elses(
    world: World, served: dict[str, str], answers: tuple[str, ...]
) -> None:
    for name, route in served.items():
        world.put(name, route, 0.5 if name == "own" else 1.0)  # its own comes first, fast or not
    found = [world.look_up(name).best for name in SCOPES]
    assert tuple(best.route if best else "" for best in found) == answers


@pytest.mark.parametrize(
    ("name", "explored"),
    [("shared", (True, True, True)), ("own", (False, True, False)), ("other", (False, False, True))],
)
def test_a_best_that_cannot_be_loaded_is_queued_only_by_who_does_not_see_it(
    world: World, name: str, explored: tuple[bool, ...]
) -> None:
    world.put(name, "tvm", 2.0, kind="c-abi")
    recipes = Accepts(kinds=frozenset({"recipe"}))
    for asker, known in zip(SCOPES, explored, strict=True):
        Miss.objects.all().delete()
        assert world.look_up(asker, accepts=recipes).state == ("explored" if known else "waiting")
        assert Miss.objects.exists() is not known


@pytest.mark.parametrize("name", SCOPES)
def test_what_a_lookup_misses_is_missed_by_all(world: World, name: str) -> None:
    """Nobody explores for one organisation what all may use."""
    world.make("own", Seen("failed", 7))
    world.make("other", Seen("unsupported", 7))
    assert world.look_up(name).state == "waiting"
    assert [world.see(each) for each in SCOPES] == [WAITING, Seen("failed", 7), Seen("unsupported", 7)]


@pytest.mark.parametrize("name", SCOPES)
def test_what_is_queued_in_another_scope_makes_no_room_in_a_quota(world: World, name: str) -> None:
    owner = world.owners["own"]
    assert owner is not None
    key, _ = create_api_key(owner, "none", ["lookup"], max_queued_misses=0)
    for each in SCOPES:
        world.make(each, NOTHING if each == name else WAITING)
    assert world.record(name, api_key=key) == "refused"
    assert world.see(name) == NOTHING


@pytest.mark.parametrize("name", ["own", "other"])
def test_behind_a_private_winner_that_cannot_be_loaded_comes_its_own_runner_up(
    world: World, name: str
) -> None:
    world.put("shared", "eager", 1.5)
    world.put(name, "onednn", 1.1)
    world.put(name, "tvm", 2.0, kind="c-abi")
    recipes = Accepts(kinds=frozenset({"recipe"}))
    best = world.look_up(name, accepts=recipes).best
    assert best is not None and best.route == "onednn"
    best = world.look_up("shared", accepts=recipes).best
    assert best is not None and best.route == "eager"
