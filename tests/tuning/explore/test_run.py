"""Slices of explorations over a fake laboratory: what is tried, kept, published and left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db.models.functions import Now

from catalog.best.publishing import publish
from catalog.errors import StoreError
from catalog.models import Best, DeclaredEnvironment, Miss, MissState
from catalog.registry import register_setting, register_target
from opatlas.identity import Setting
from tests.catalog.making import new_result
from tests.tuning import fakes
from tests.tuning.fakes import FakeRoute, FakeTunable
from tuning.explore import run
from tuning.models import Exploration, Stage, State, Trial, Worker
from tuning.queue import claims
from tuning.queue.promote import promote_misses
from tuning.worker import stopping
from tuning.worker.process import DISK_PAUSE_S

pytestmark = pytest.mark.django_db(transaction=True)


def winner() -> str:
    best = Best.objects.get(rank=0)
    return f"{best.route} {best.label}"


def statuses(**where: Any) -> list[str]:
    return list(Trial.objects.filter(**where).order_by("pk").values_list("status", flat=True))


def test_a_miss_is_explored_and_its_best_served(make_miss: Callable[..., Any], worker_with: Any) -> None:
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}, {"ratio": 2.5}, {"ratio": 0.5}]))
    miss = make_miss()
    assert worker.run_until_idle() == 3  # first result, opening and contest
    row = Exploration.objects.get()
    assert (row.state, row.stage, row.tries) == (State.DONE, Stage.CONTEST, 0)
    assert winner() == "quick variant 1"
    miss.refresh_from_db()
    assert miss.state == MissState.EXPLORED
    assert row.first_result_at > row.asked_at
    assert {best.route for best in Best.objects.all()} == {"eager", "quick"}


def test_the_default_is_served_before_the_contest_begins(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 2.0}]))
    make_miss()
    promote_misses()
    worker._take(worker._next_turn())
    assert winner() == "eager variant 0"
    row = Exploration.objects.get()
    assert (row.state, row.stage) == (State.QUEUED, Stage.CONTEST)
    assert row.first_result_at is not None


def test_failures_are_kept_with_their_status_and_harm_nobody(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(
        FakeRoute("bad", offers=[{"behave": b} for b in ("build_failed", "crashed", "wrong")]),
        FakeRoute("narrow", only=frozenset({"Conv"})),
        FakeRoute("absent", missing="it is not installed"),
        FakeRoute("buggy", breaks=True),
        FakeRoute("good", offers=[{"ratio": 1.2}]),
    )
    make_miss("Relu")
    worker.run_until_idle()
    assert statuses(route="bad") == ["build_failed", "crashed", "wrong_result"]
    assert Trial.objects.get(route="narrow").detail == "narrow knows only Conv."
    assert Trial.objects.get(route="absent").detail == "Not available: it is not installed"
    assert "a bug in the route" in Trial.objects.get(route="buggy").detail
    assert Trial.objects.get(route="bad", status="build_failed").log_tail == "error: line 1"
    assert winner() == "good variant 0"
    assert Exploration.objects.get().state == State.DONE


def test_who_would_win_is_confirmed_and_luck_does_not_count(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(FakeRoute("lucky", offers=[{"ratio": 1.6, "behave": "lucky"}]))
    make_miss()
    worker.run_until_idle()
    assert winner() == "eager variant 0"
    best = Best.objects.get(route="lucky")
    assert best.measurement.purpose == "final"
    assert best.ratio_to_default == pytest.approx(0.8)


def test_only_the_best_of_a_route_is_confirmed(make_miss: Callable[..., Any], worker_with: Any) -> None:
    make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.2}, {"ratio": 1.9}, {"ratio": 1.5}])).run_until_idle()
    assert winner() == "quick variant 1"
    from catalog.models import Measurement

    of_quick = Measurement.objects.filter(implementation__route="quick")
    purposes = dict(of_quick.values_list("implementation__label", "purpose"))
    assert purposes == {"variant 0": "contest", "variant 1": "final", "variant 2": "contest"}
    assert statuses(route="quick") == ["ok", "ok", "ok"]


def test_where_confirming_the_best_was_a_disappointment_the_next_one_has_its_chance(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    make_miss()
    worker = worker_with(
        FakeRoute("lucky", offers=[{"ratio": 2.0, "behave": "lucky"}]),
        FakeRoute("steady", offers=[{"ratio": 1.5}, {"ratio": 1.4}]),
    )
    worker.run_until_idle()
    assert winner() == "steady variant 0"
    assert Best.objects.get(route="steady").measurement.purpose == "final"


def test_who_would_not_win_is_not_timed_twice(make_miss: Callable[..., Any], worker_with: Any) -> None:
    worker = worker_with(FakeRoute("slow", offers=[{"ratio": 0.7}]))
    make_miss()
    worker.run_until_idle()
    assert Best.objects.get(route="slow").measurement.purpose == "contest"


def test_where_the_default_fails_another_route_becomes_it(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    broken = FakeRoute("eager", offers=[{"behave": "crashed"}])
    worker = worker_with(FakeRoute("other", offers=[{"ratio": 1.0}]), default=broken)
    make_miss()
    worker.run_until_idle()
    assert winner() == "other variant 0"
    assert statuses(route="eager", stage=Stage.FIRST) == ["crashed", "crashed"], "it had a second chance"


def test_unsupported_by_every_route_is_said_with_the_reasons(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(
        FakeRoute("a", only=frozenset({"Conv"})), FakeRoute("b", missing="no library"), default=None
    )
    miss = make_miss("Relu")
    worker.run_until_idle()
    row = Exploration.objects.get()
    miss.refresh_from_db()
    assert (row.state, miss.state) == (State.UNSUPPORTED, MissState.UNSUPPORTED)
    assert row.reason == miss.reason == "a: a knows only Conv.; b: Not available: no library"
    assert statuses() == ["unsupported", "unsupported"]


def test_a_default_that_never_works_ends_dead_after_its_tries(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(default=FakeRoute("eager", offers=[{"behave": "wrong"}]))
    miss = make_miss()
    worker.run_until_idle()
    row = Exploration.objects.get()
    miss.refresh_from_db()
    assert (row.state, row.tries, miss.state) == (State.DEAD, 3, MissState.FAILED)
    assert row.error.startswith("No implementation passed") and "wrong result" in row.error


def test_an_error_in_the_workers_own_code_is_kept_and_tried_again(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(
        FakeRoute("cursed", offers=[{"behave": "die"}]), FakeRoute("quick", offers=[{"ratio": 2.0}])
    )
    miss = make_miss()
    worker.run_until_idle()
    row = Exploration.objects.get()
    miss.refresh_from_db()
    assert (row.state, row.stage, row.tries) == (State.DEAD, Stage.CONTEST, 3)
    assert "internal error" in row.error and f"Exploration {row.pk}" in row.error
    assert miss.state == MissState.EXPLORED, "the default was published: it is served"


def test_a_contest_makes_room_for_first_results_and_goes_on_where_it_was(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_with(
        FakeRoute("a", offers=[{"ratio": 0.9}, {"ratio": 1.3}]), FakeRoute("b", offers=[{"ratio": 1.5}])
    )
    make_miss("Relu", 1)
    promote_misses()
    worker._take(worker._next_turn())
    from tuning.explore.race import heats

    original, waiting = heats._run_heat, [2]

    def another_miss_comes(*args: Any) -> Any:
        measured = original(*args)
        if waiting:
            make_miss("Relu", waiting.pop())
            promote_misses()
        return measured

    monkeypatch.setattr(heats, "_run_heat", another_miss_comes)
    worker.run_until_idle()
    stages = list(
        Trial.objects.order_by("pk").values_list("exploration__operator__summary", "stage", "route")
    )
    tried = [(one, 1, route) for one in ("Relu 1", "Relu 2") for route in ("a", "a", "b")]
    assert stages[0] == ("Relu 1", 0, "eager")
    assert stages[4] == ("Relu 2", 0, "eager")
    assert sorted(stages[1:4] + stages[5:]) == tried, "nothing was tried twice"
    assert {best.route for best in Best.objects.filter(rank=0)} == {"b"}, "and the finals were held"
    assert all(row.tries == 0 for row in Exploration.objects.all())


def test_no_candidate_is_tried_twice_in_a_round_but_all_are_in_the_next(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    from tuning.queue import steering as queues

    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}, {"ratio": 1.7}]))
    make_miss()
    worker.run_until_idle()
    assert Trial.objects.count() == 3
    queues.retry(Exploration.objects.get().pk)
    worker.run_until_idle()
    assert Trial.objects.count() == 6
    assert Best.objects.count() == 2


def test_a_worker_told_to_stop_gives_back_what_it_had_begun(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}]))
    for size in (1, 2, 3):
        make_miss("Relu", size)
    from tests.tuning.fakes import FakeLaboratory

    original = FakeLaboratory.build

    def build_while_stopping(*args: Any, **kwargs: Any) -> Any:
        stopping.ask()
        return original(*args, **kwargs)

    monkeypatch.setattr(FakeLaboratory, "build", build_while_stopping)
    assert worker.run_until_idle() == 0
    rows = list(Exploration.objects.all())
    assert [(row.state, row.tries, row.lease_owner) for row in rows] == [(State.QUEUED, 0, "")] * 3
    assert not Trial.objects.exists(), "what the stop killed is nobody's failure"


def test_a_lost_claim_publishes_nothing(make_miss: Callable[..., Any], worker_with: Any) -> None:
    from tests.tuning.fakes import FakeLaboratory

    worker = worker_with()
    make_miss()
    promote_misses()
    turn = worker._next_turn()
    (held,) = worker._claim(turn)
    Exploration.objects.update(state=State.QUEUED, fence=5)  # swept, as it were
    assert worker._run_pack(turn, [held]) == 0
    assert not Best.objects.exists()
    assert FakeLaboratory is not None


def test_a_claim_lost_during_the_measurement_publishes_nothing(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tuning.fakes import FakeLaboratory

    worker = worker_with()
    make_miss()
    promote_misses()
    original = FakeLaboratory.build

    def build_for_too_long(*args: Any, **kwargs: Any) -> Any:
        claims.sweep(owner_prefix="w1/")
        return original(*args, **kwargs)

    monkeypatch.setattr(FakeLaboratory, "build", build_for_too_long)
    assert worker._take(worker._next_turn()) == 0
    assert not Best.objects.exists()
    assert not Trial.objects.exists()
    assert Miss.objects.get().state == MissState.PROMOTED


def test_evidence_from_an_undeclared_environment_is_kept_but_does_not_lead(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    from tuning.queue import steering as queues

    make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}])).run_until_idle()
    newer = FakeRoute("quick", offers=[{"ratio": 3.0}], installed={"fakes": "2"})
    Worker.objects.update(stopped_at=Now())  # while it lived, the newer one would leave the work to it
    queues.retry(Exploration.objects.get().pk)
    worker_with(newer, name="w2").run_until_idle()
    best = Best.objects.get(rank=0)
    assert best.ratio_to_default == pytest.approx(1.5)
    assert DeclaredEnvironment.objects.get(route="quick").environment.versions == {"fakes": "1"}
    assert Trial.objects.filter(route="quick", ratio_to_default__gt=2.9, status="ok").exists()


def test_tuning_goes_on_in_slices_and_publishes_what_is_better(
    make_miss: Callable[..., Any], worker_with: Any, tmp_path: Any
) -> None:
    searcher = FakeTunable(
        "searcher", "compiler", offers=[{"ratio": 0.9}], finds=[{"ratio": 1.4}, {"ratio": 2.0}]
    )
    make_miss("Conv", calls=3)
    worker_with(searcher).run_until_idle()
    row = Exploration.objects.get()
    assert (row.state, row.stage, row.tuning_slices) == (State.DONE, Stage.TUNE, row.max_tuning_slices)
    assert row.max_tuning_slices == 4
    assert winner() == "searcher found in slice 1"
    (count,) = (tmp_path / "tuning").glob("*/searcher/slices")
    assert count.read_text() == "4", "what a slice learnt is there for the next"


def test_no_tuning_while_a_first_result_waits(make_miss: Callable[..., Any], worker_with: Any) -> None:
    searcher = FakeTunable("searcher", "compiler", offers=[{"ratio": 0.9}], finds=[{"ratio": 1.4}])
    for size in (1, 2):
        make_miss("Conv", size)
    worker_with(searcher).run_until_idle()
    stages = list(Trial.objects.order_by("pk").values_list("stage", flat=True))
    assert stages == sorted(stages)


def test_tuning_can_be_switched_off(make_miss: Callable[..., Any], worker_with: Any, configure: Any) -> None:
    configure(tuning=False)
    make_miss("Conv")
    worker_with(FakeTunable("searcher", "compiler", finds=[{"ratio": 9.0}])).run_until_idle()
    assert Exploration.objects.get().max_tuning_slices == 0


def test_what_the_host_was_too_noisy_for_is_timed_a_second_time_later(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    make_miss()
    worker_with(FakeRoute("shy", offers=[{"ratio": 1.5, "behave": "noisy"}])).run_until_idle()
    assert statuses(route="shy") == ["noisy", "noisy"]
    assert Exploration.objects.get().state == State.DONE


def test_times_that_are_none_are_noise(make_miss: Callable[..., Any], worker_with: Any) -> None:
    make_miss()
    worker_with(FakeRoute("odd", offers=[{"ratio": float("inf")}])).run_until_idle()
    assert statuses(route="odd") == ["noisy", "noisy"]
    assert winner() == "eager variant 0"


def test_the_incumbents_evidence_is_renewed_when_a_newcomer_would_beat_it(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    """The one that looked like 1.5 alone is 1.7 in turns with a newcomer of 1.6: it stays."""
    make_miss()
    worker = worker_with(
        FakeRoute("held", offers=[{"ratio": 1.5}]),
        FakeRoute("new", "compiler", offers=[{"ratio": 1.6, "incumbent": 1.7}]),
    )
    worker.run_until_idle()
    assert winner() == "held variant 0"
    best = Best.objects.get(route="held")
    assert (best.ratio_to_default, best.measurement.purpose) == (pytest.approx(1.7), "final")


@pytest.mark.parametrize("tried", [True, False])
def test_what_jobs_were_given_of_a_neighbour_is_the_first_that_is_tried(
    make_miss: Callable[..., Any], worker_with: Any, tried: bool
) -> None:
    """A winner of the same processor with more cores, which no route offers by itself; where the features
    differ too, nothing of it."""
    features = fakes.TARGET.features if tried else (*fakes.TARGET.features, "avx512f")
    there = register_target(replace(fakes.TARGET, cores=8, features=features))
    miss = make_miss()
    place = {"operator": miss.operator, "target": there, "setting": miss.setting}
    publish(new_result(place, "quick", 2.0, candidate={"ratio": 1.8, "found": "there"}))
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 1.2}, {"ratio": 1.3}]))
    worker.run_until_idle()
    mine = Trial.objects.filter(route="quick").order_by("pk")
    found = {"ratio": 1.8, "found": "there"}
    assert (mine[0].stage == Stage.FIRST, mine[0].candidate == found) == (tried, tried), "before all others"
    contested = mine.filter(stage=Stage.CONTEST).values_list("candidate", flat=True)
    assert (found in list(contested)) == tried
    here = Best.objects.get(rank=0, target=miss.target)
    assert here.implementation.candidate == (found if tried else {"ratio": 1.3})
    assert here.ratio_to_default == pytest.approx(1.8 if tried else 1.3), "measured here"


@pytest.mark.parametrize(("there_threads", "tried"), [(8, True), (6, False)])
def test_so_is_what_won_on_all_cores_there_where_all_are_asked_for(
    make_miss: Callable[..., Any], worker_with: Any, there_threads: int, tried: bool
) -> None:
    """With all cores of here: a call that had all of those there is made with these."""
    there = register_target(replace(fakes.TARGET, cores=8))
    miss = make_miss()
    own = register_setting(Setting(threads=there_threads))
    place = {"operator": miss.operator, "target": there, "setting": own}
    candidate = {"ratio": 1.8, "threads": there_threads}
    publish(new_result(place, "quick", 2.0, candidate=candidate))
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.2}])).run_until_idle()
    first = Trial.objects.filter(route="quick", stage=Stage.FIRST).values_list("candidate", flat=True)
    assert list(first) == ([{"ratio": 1.8, "threads": fakes.TARGET.cores}] if tried else [])


def test_a_full_disk_is_the_workers_trouble_and_costs_no_exploration_a_try(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos: 78 explorations were given up while a node's disk was full for seconds."""
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}]))
    make_miss()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*args: Any, **options: Any) -> None:
        raise StoreError("The artifact store cannot keep it.") from full

    paused: list[float] = []
    monkeypatch.setattr("tuning.worker.process.time.sleep", paused.append)
    with monkeypatch.context() as patch:
        patch.setattr("tuning.explore.results.store_artifact", refuse)
        assert [worker.run_until_idle() for _ in range(5)] == [0] * 5
    row = Exploration.objects.get()
    assert (row.state, row.tries, row.lease_owner) == (State.QUEUED, 0, "")
    assert paused == [DISK_PAUSE_S] * 5
    worker.run_until_idle()
    assert winner() == "quick variant 0"


LEAKY = 'Traceback (most recent call last):\n  File "/srv/opatlas/tuning/x.py", line 1, in f\n    f()\n'


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("/srv/opatlas/tuning/secret"), "An internal error stopped it (KeyError)"),
        (StoreError("The store /srv/opatlas/store/ab is away."), "The store ab is away."),
    ],
)
def test_whatever_breaks_is_told_in_a_sentence(
    error: Exception, told: str, make_miss: Callable[..., Any], worker_with: Any, monkeypatch: Any
) -> None:
    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.setitem(run._STAGES, Stage.FIRST, breaks)
    miss = make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}])).run_until_idle()
    row = Exploration.objects.get()
    miss.refresh_from_db()
    for text in (row.error, row.reason, miss.reason):
        assert "Traceback" not in text and 'File "' not in text and "/srv" not in text
    assert told in row.error and told in miss.reason


def test_a_trials_log_tells_no_place_of_this_machine(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: Any
) -> None:
    plain = fakes.Outcome

    def leaky(status: Any, detail: str = "", **more: Any) -> Any:
        if status != "build_failed":
            return plain(status, detail, **more)
        return plain(status, f"/srv/opatlas/k/kernel.c:1: {detail}", log_tail=f"{LEAKY}ValueError: no")

    worker = worker_with(FakeRoute("quick", offers=[{"behave": "build_failed"}]))
    monkeypatch.setattr(fakes, "Outcome", leaky)
    make_miss()
    worker.run_until_idle()
    trial = Trial.objects.filter(route="quick", status="build_failed").first()
    assert trial is not None
    assert trial.detail.startswith("kernel.c:1: ") and trial.log_tail == "ValueError: no"
