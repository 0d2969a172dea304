"""How far explorations have come is told to the catalogue as they move on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.models import Best
from tests.tuning.fakes import FakeRoute, FakeTunable
from tuning.models import Exploration, Stage, State
from tuning.queue import steering
from tuning.queue.promote import promote_misses
from tuning.queue.reached import is_final, stage_of
from tuning.queue.rounds import ask_for_round, begin_rounds

pytestmark = pytest.mark.django_db(transaction=True)

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("stage", "state", "slices", "reached"),
    [
        (Stage.FIRST, State.RUNNING, 0, "first"),
        (Stage.CONTEST, State.QUEUED, 0, "first"),
        (Stage.CONTEST, State.DEAD, 0, "first"),
        (Stage.CONTEST, State.DONE, 0, "contest"),
        (Stage.TUNE, State.QUEUED, 0, "contest"),
        (Stage.TUNE, State.DEAD, 0, "contest"),
        (Stage.TUNE, State.QUEUED, 1, "tuned"),
        (Stage.TUNE, State.DONE, 3, "tuned"),
        (Stage.CONTEST, State.QUEUED, 3, "tuned"),  # a further round
    ],
)
def test_the_furthest_stage_that_has_ended(stage: int, state: State, slices: int, reached: str) -> None:
    assert stage_of(Exploration(stage=stage, state=state, tuning_slices=slices)) == reached


@pytest.mark.parametrize(
    ("state", "pending", "final"),
    [
        (State.QUEUED, "", False),
        (State.RUNNING, "", False),
        (State.PAUSED, "", False),
        (State.DONE, "", True),
        (State.DONE, "cpp", False),
        (State.UNSUPPORTED, "cpp", False),
        (State.DISCARDED, "cpp", True),  # begins again only when somebody says so
        (State.DEAD, "", True),
    ],
)
def test_final_is_where_nothing_more_is_planned(state: State, pending: str, final: bool) -> None:
    assert is_final(Exploration(state=state, pending_routes=pending)) is final


def told() -> tuple[str, bool, bool]:
    """Stage, final and whether the winner is the default; all bests of the place say the same."""
    ((stage, final),) = set(Best.objects.values_list("stage", "final"))
    return stage, final, Best.objects.get(rank=0).is_default


def test_each_slice_tells_what_it_came_to(make_miss: Make, worker_with: Any, configure: Any) -> None:
    configure(tuning=True)
    worker = worker_with(
        FakeRoute("quick", offers=[{"ratio": 2.0}]), FakeTunable("deep", offers=[], finds=[{"ratio": 3.0}])
    )
    make_miss("Conv", calls=1e9)
    promote_misses()
    heard = []
    while turn := worker._next_turn():
        worker._take(turn)
        heard.append(told())
    opening = ("first", False, True)  # with nothing to try: the default is served as before
    assert heard[1] == opening
    del heard[1]
    assert heard[:3] == [("first", False, True), ("contest", False, False), ("tuned", heard[2][1], False)]
    assert heard[-1] == ("tuned", True, False)


def test_what_people_do_is_told_as_well(make_miss: Make, worker_with: Any) -> None:
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 2.0}]))
    make_miss()
    worker.run_until_idle()
    row = Exploration.objects.get()
    assert told() == ("contest", True, False)
    ask_for_round(Exploration.objects.all(), ["quick"], "a kernel was approved")
    assert told() == ("contest", False, False)
    begin_rounds()
    assert told() == ("contest", False, False)
    worker.run_until_idle()
    assert told() == ("contest", True, False)
    steering.retry(row.pk)
    assert told() == ("contest", False, False)
    steering.discard(row.pk, "enough")
    assert told() == ("contest", True, False)


def test_what_gave_up_is_final(make_miss: Make, worker_with: Any) -> None:
    worker = worker_with(FakeRoute("cursed", offers=[{"behave": "die"}]))
    make_miss()
    worker.run_until_idle()
    assert Exploration.objects.get().state == State.DEAD
    assert told() == ("first", True, True)
