"""Further rounds: nothing that is asked for is lost, whatever runs meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from catalog.best.publishing import publish
from catalog.models import Purpose
from tests.catalog.making import new_result
from tests.tuning.fakes import FakeRoute
from tuning.models import Exploration, Stage, State, Trial
from tuning.queue import claims
from tuning.queue.rounds import ask_for_round, begin_rounds, routes_of

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


def ask(*routes: str, reason: str = "a kernel was approved") -> int:
    return ask_for_round(Exploration.objects.all(), routes, reason)


def timed(row: Exploration, route: str, purpose: Purpose) -> None:
    """A trial of a first result, with its evidence."""
    place = {"operator": row.operator, "target": row.target, "setting": row.setting}
    made = publish(new_result(place, route, 1.0, purpose=purpose)).implementation
    Trial.objects.create(
        exploration=row, route=route, method="library", stage=Stage.FIRST, status="ok", implementation=made
    )


def only() -> Exploration:
    return Exploration.objects.get()


def test_one_that_has_ended_contests_these_routes_again(make_exploration: Make) -> None:
    row = make_exploration(state=State.DONE, stage=Stage.TUNE, round=2, tries=3, error="old", reason="old")
    assert ask("tvm", "cpp") == 1
    assert (only().state, only().pending_routes) == (State.DONE, "cpp,tvm")
    assert only().round_reason == "a kernel was approved"
    assert begin_rounds() == 1
    row = only()
    assert (row.state, row.stage, row.round, row.tries) == (State.QUEUED, Stage.CONTEST, 3, 0)
    assert (row.routes, row.pending_routes, row.error, row.reason) == ("cpp,tvm", "", "", "")
    assert routes_of(row) == {"cpp", "tvm"}
    assert begin_rounds() == 0


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.PAUSED])
def test_one_that_has_not_ended_is_left_alone_until_it_has(make_exploration: Make, state: State) -> None:
    make_exploration(state=state, stage=Stage.CONTEST)
    assert ask("cpp") == 1
    assert begin_rounds() == 0
    assert only().state == state
    Exploration.objects.update(state=State.DONE)
    assert begin_rounds() == 1
    assert only().routes == "cpp"


@pytest.mark.parametrize("state", [State.DISCARDED, State.DEAD])
def test_what_was_given_up_begins_only_when_somebody_says_so(make_exploration: Make, state: State) -> None:
    make_exploration(state=state)
    ask("cpp")
    assert begin_rounds() == 0
    assert only().pending_routes == "cpp"


def test_asked_twice_before_it_begins_is_one_round_of_both(make_exploration: Make) -> None:
    make_exploration(state=State.DONE)
    ask("cpp")
    ask("tvm", "cpp", reason="another one")
    assert begin_rounds() == 1
    assert (only().routes, only().round_reason) == ("cpp,tvm", "another one")


def test_asked_while_a_round_runs_begins_after_it(make_exploration: Make) -> None:
    row = make_exploration(state=State.DONE)
    ask("cpp")
    begin_rounds()
    (held,) = claims.claim("w/1", row.target_id)
    ask("tvm")
    assert begin_rounds() == 0
    assert routes_of(held.load()) == {"cpp"}
    held.update(state=State.DONE, lease_owner="")  # as a slice ends: it knows nothing of what was asked
    assert only().pending_routes == "tvm"
    assert begin_rounds() == 1
    assert (only().routes, only().round) == ("tvm", 2)


def test_asked_between_reading_and_beginning_is_kept(
    make_exploration: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever begins has read one wish; another comes before it writes: its update must not win."""
    from tuning.queue import rounds

    make_exploration(state=State.DONE)
    ask("cpp")
    first_stage = rounds._first_stage

    def asked_meanwhile(row: Exploration) -> Stage:
        ask("tvm")
        return first_stage(row)

    monkeypatch.setattr(rounds, "_first_stage", asked_meanwhile)
    assert begin_rounds() == 0
    monkeypatch.setattr(rounds, "_first_stage", first_stage)
    assert only().pending_routes == "cpp,tvm"
    assert begin_rounds() == 1
    assert only().routes == "cpp,tvm"


def test_a_round_with_the_defaults_route_begins_with_the_default(make_exploration: Make) -> None:
    row = make_exploration(state=State.DONE, stage=Stage.TUNE)
    timed(row, "eager", Purpose.DEFAULT)
    ask("tvm")
    begin_rounds()
    assert only().stage == Stage.CONTEST
    Exploration.objects.update(state=State.DONE)
    ask("eager", "tvm")
    begin_rounds()
    assert only().stage == Stage.FIRST


def test_the_default_is_whoever_was_timed_as_that_last(make_exploration: Make) -> None:
    row = make_exploration(state=State.DONE, stage=Stage.TUNE)
    timed(row, "eager", Purpose.DEFAULT)
    timed(row, "onednn", Purpose.DEFAULT)
    timed(row, "onnxruntime", Purpose.FIRST)  # it ran beside the default
    Trial.objects.create(exploration=row, route="mkl", method="library", stage=Stage.FIRST, status="crashed")
    for asked, stage in (("onnxruntime", Stage.CONTEST), ("mkl", Stage.CONTEST), ("onednn", Stage.FIRST)):
        ask(asked)
        begin_rounds()
        assert only().stage == stage
        Exploration.objects.update(state=State.DONE)


def test_only_those_that_were_named_are_asked(make_exploration: Make) -> None:
    for size in (1, 2, 3):
        make_exploration(size=size, state=State.DONE)
    chosen = Exploration.objects.order_by("pk")[:2]
    assert ask_for_round(Exploration.objects.filter(pk__in=[row.pk for row in chosen]), ["cpp"], "why") == 2
    assert begin_rounds(limit=1) == 1
    assert begin_rounds() == 1
    assert Exploration.objects.filter(state=State.DONE).count() == 1


def test_those_who_can_are_woken(make_exploration: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning.queue import rounds

    rung: list[set[str]] = []
    monkeypatch.setattr(rounds.bell, "ring", lambda names: rung.append(set(names)))
    make_exploration(state=State.DONE)
    ask("cpp")
    assert rung == [{"cpu.zen3"}]


@pytest.mark.django_db(transaction=True)
def test_a_worker_tries_the_asked_routes_alone_and_tunes_nothing(make_miss: Make, worker_with: Make) -> None:
    make_miss()
    worker = worker_with(FakeRoute("quick"), FakeRoute("other"))
    worker.run_until_idle()
    ask("quick")
    worker.run_until_idle()
    tried = set(Trial.objects.filter(round=1).values_list("route", flat=True))
    assert tried == {"quick"}
    assert only().state == State.DONE


@pytest.mark.django_db(transaction=True)
def test_many_ask_while_rounds_begin_and_end_and_nothing_is_lost(make_exploration: Make) -> None:
    """Three processes' worth of threads: two ask, one begins and ends rounds, as fast as they can."""
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("threads share one connection of an in-memory database: see tests on PostgreSQL")
    make_exploration(state=State.DONE)
    asked = [f"r{number}" for number in range(24)]
    begun: set[str] = set()
    done = threading.Event()
    failures: list[BaseException] = []

    def in_thread(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
            finally:
                connection.close()

        return threading.Thread(target=run)

    def end_rounds() -> None:
        while True:
            last = done.is_set()
            if begin_rounds():
                begun.update(routes_of(only()))
                Exploration.objects.update(state=State.DONE)
            elif last:
                return

    askers = [in_thread(lambda part=part: [ask(name) for name in part]) for part in (asked[::2], asked[1::2])]
    ender = in_thread(end_rounds)
    for thread in (*askers, ender):
        thread.start()
    for thread in askers:
        thread.join(60)
    done.set()
    ender.join(60)
    assert not failures
    assert begun == set(asked)
    assert only().pending_routes == ""
