"""The race of a slice over a fake laboratory: who is built, who runs in the final, what is written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from django.core.management import call_command

from catalog.models import Best, Measurement, Miss
from tests.tuning.fakes import FakeRoute
from tuning.explore import odds, trial_history
from tuning.explore.first import TRIES
from tuning.explore.race import heats
from tuning.explore.race.report import RaceReport, decided_text
from tuning.models import Exploration, Race, Stage, Trial
from tuning.queue import steering
from tuning.queue.promote import promote_misses, reweigh
from tuning.queue.rounds import begin_rounds

pytestmark = pytest.mark.django_db(transaction=True)


read_given = trial_history.given_odds.__wrapped__  # not what this process has read before


def report(stage: Stage = Stage.CONTEST) -> RaceReport:
    return RaceReport.from_json(Race.objects.get(stage=stage).report)


def test_what_is_at_hand_and_faster_is_the_first_result(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(FakeRoute("onnxruntime", offers=[{"ratio": 1.4}, {"ratio": 9.0}]))
    make_miss()
    promote_misses()
    worker._take(worker._next_turn())
    best = Best.objects.get(rank=0)
    assert (best.route, best.label, best.measurement.purpose) == ("onnxruntime", "variant 0", "first")
    assert Measurement.objects.filter(purpose="default").count() == 1, "the default is kept beside it"
    assert [entry.won for entry in report(Stage.FIRST).entries] == [True, False]


@pytest.mark.parametrize("ratio", [0.7, 1.4])
def test_the_default_stays_who_it_is_whatever_ran_beside_it_at_first(
    ratio: float, make_miss: Callable[..., Any], worker_with: Any
) -> None:
    worker = worker_with(
        FakeRoute("onnxruntime", offers=[{"ratio": ratio}, {"ratio": 1.1}]), FakeRoute("quick")
    )
    make_miss()
    worker.run_until_idle()
    assert set(Measurement.objects.values_list("default_route", flat=True)) == {"eager"}
    assert Trial.objects.filter(stage=Stage.FIRST, status="ok").count() == 2
    assert Trial.objects.of_the_default().get().route == "eager"
    row = Exploration.objects.get()
    for pending, stage in (("onnxruntime", Stage.CONTEST), ("eager", Stage.FIRST)):
        Exploration.objects.update(pending_routes=pending)
        begin_rounds()
        row.refresh_from_db()
        assert row.stage == stage
        worker.run_until_idle()


def test_what_was_disturbed_in_the_first_race_is_raced_once_more(make_miss: Any, worker_with: Any) -> None:
    worker = worker_with(FakeRoute("onnxruntime", offers=[{"ratio": 1.4, "behave": "noisy"}]))
    make_miss()
    promote_misses()
    worker._take(worker._next_turn())
    notes = map(json.loads, worker._laboratory.log.read_text().splitlines())
    assert [note["what"] for note in notes if note["route"] == "onnxruntime"] == [
        "build",
        *["line up"] * TRIES,
    ]
    assert Best.objects.get().route == "eager"


def test_what_won_for_the_nearest_operators_runs_beside_the_first_default(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_history, "_KNOWN_FOR_S", 0.0)
    worker = worker_with(FakeRoute("quick", offers=[{"ratio": 0.8}, {"ratio": 1.7}]))
    for size in range(1024, 1029):
        make_miss("Relu", size)
    worker.run_until_idle()
    make_miss("Relu", 2048)
    promote_misses()
    worker._take(worker._next_turn())
    best = Best.objects.get(rank=0, operator__summary="Relu 2048")
    assert (best.route, best.label, best.measurement.purpose) == ("quick", "variant 1", "first")


class TestOpening:
    """A contest's first slice tries what past trials say is surely promising, before the rest of others."""

    @pytest.fixture
    def explored(self, make_miss: Any, worker_with: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(trial_history, "_KNOWN_FOR_S", 0.0)
        offers = [{"ratio": 0.8}, {"ratio": 1.7}]
        worker = worker_with(FakeRoute("quick", offers=offers), FakeRoute("other", offers=offers))
        for size in range(1024, 1029):
            make_miss("Relu", size)
        worker.run_until_idle()
        return worker

    def opened(self, worker: Any, make_miss: Any, op: str = "Sigmoid") -> Exploration:
        make_miss(op, 1024)  # of a kind with Relu, whose winners are not raced beside its default
        promote_misses()
        for stage, opened in ((Stage.FIRST, True), (Stage.CONTEST, False), (Stage.CONTEST, True)):
            row = Exploration.objects.get(operator__op_type=op)
            assert (row.stage, row.opened, row.state) == (stage, opened, "queued")
            if (stage, opened) != (Stage.CONTEST, True):
                worker._take(worker._next_turn())
        return row

    def test_it_is_served_as_first_results_are_and_the_contest_does_not_try_it_again(
        self, explored: Any, make_miss: Any
    ) -> None:
        row = self.opened(explored, make_miss)
        best = Best.objects.get(rank=0, operator=row.operator)
        assert (best.label, best.measurement.purpose, best.stage) == ("variant 1", "first", "first")
        assert (row.stage, row.state, row.slices.count()) == (Stage.CONTEST, "queued", 0)
        race = RaceReport.from_json(Race.objects.get(exploration=row, stage=Stage.CONTEST).report)
        assert "variant 1" in {one.label for one in race.entries}

        # What the rest is worth is told by the measured time and the odds.
        assert 0 < row.worth < 0.3 * row.calls * best.median_us, "its best is known to be served already"
        reweigh(row, 1e9, row.priority, 3 * row.calls)  # asked for again: by more calls, not by another gain
        again = Exploration.objects.get(pk=row.pk)
        assert again.worth == pytest.approx(3 * row.worth)

        opened = list(Trial.objects.filter(exploration=row, stage=Stage.CONTEST).values_list("pk", flat=True))
        assert opened
        explored.run_until_idle()
        row.refresh_from_db()
        tries = Trial.objects.filter(exploration=row, stage=Stage.CONTEST).exclude(pk__in=opened)
        assert row.state == "done" and Best.objects.get(rank=0, operator=row.operator).stage == "contest"
        seen = Trial.objects.filter(pk__in=opened).values_list("route", "label")
        assert not {*tries.values_list("route", "label")} & {*seen}

    def test_all_have_theirs_before_the_rest_of_any_and_first_results_come_before_that(
        self, explored: Any, make_miss: Any, worker_with: Any
    ) -> None:
        quick, late = FakeRoute("quick", offers=[{"ratio": 0.8}, {"ratio": 1.7}]), FakeRoute("late")
        for size, calls in ((1024, 1e6), (1025, 1.0)):
            make_miss("Sigmoid", size, calls=calls)
        worker_with(quick, late).run_until_idle()
        trials = Trial.objects.filter(exploration__operator__op_type="Sigmoid").order_by("pk")
        seen = [(one.stage, one.exploration_id) for one in trials]
        first, second = Exploration.objects.filter(operator__op_type="Sigmoid").order_by("-worth")
        turns = [turn for turn, _ in groupby(seen)]
        assert turns == [
            (Stage.FIRST, first.pk),
            (Stage.FIRST, second.pk),
            (Stage.CONTEST, first.pk),
            (Stage.CONTEST, second.pk),
            (Stage.CONTEST, first.pk),
            (Stage.CONTEST, second.pk),
        ]

    def test_what_takes_long_waits_for_the_contest_and_so_does_what_no_route_is_proved_for(
        self, explored: Any, make_miss: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(heats, "OPENING_S", 0.0)
            row = self.opened(explored, make_miss)
        assert Best.objects.get(rank=0, operator=row.operator).route == "eager"
        assert not Trial.objects.filter(exploration=row, stage=Stage.CONTEST).exists()
        monkeypatch.setattr(explored._proofs, "reason", lambda route: "It was not tried yet.")
        row = self.opened(explored, make_miss, "Tanh")
        assert not Trial.objects.filter(exploration=row, stage=Stage.CONTEST).exists()

    def test_where_nothing_is_known_it_is_told_by_the_measured_time(
        self, make_miss: Any, worker_with: Any
    ) -> None:
        row = self.opened(worker_with(FakeRoute("quick")), make_miss)
        best = Best.objects.get(rank=0, operator=row.operator)
        assert 0.2 < row.worth / (row.calls * best.median_us) < 0.5

    def test_a_new_service_begins_with_what_came_with_it(
        self, explored: Any, make_miss: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        call_command("export_odds", str(tmp_path / "odds.json"))
        Exploration.objects.all().delete()
        assert "1024" not in (tmp_path / "odds.json").read_text()
        assert Best.objects.get(rank=0, operator=self.opened(explored, make_miss).operator).route == "eager"
        Exploration.objects.all().delete()
        Best.objects.all().delete()
        Miss.objects.all().delete()
        monkeypatch.setattr(trial_history, "GIVEN", tmp_path / "odds.json")
        monkeypatch.setattr(trial_history, "given_odds", read_given)
        row = self.opened(explored, make_miss)
        assert Best.objects.get(rank=0, operator=row.operator).label == "variant 1"


def test_a_race_says_who_was_left_behind_who_is_equal_and_who_won(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    make_miss()
    worker_with(
        FakeRoute("quick", offers=[{"ratio": 1.5}, {"ratio": 0.6}, {"behave": "build_failed"}]),
        FakeRoute("rival", "compiler", offers=[{"ratio": 1.51}]),
    ).run_until_idle()
    found = {f"{one.route} {one.label}": one for one in report().entries}
    assert {name for name, one in found.items() if one.final} == {
        "quick variant 0", "rival variant 0", "eager variant 0",
    }  # fmt: skip
    assert [name for name, one in found.items() if one.won] == ["rival variant 0"]
    assert [name for name, one in found.items() if one.equal] == ["quick variant 0"]
    assert Best.objects.get(route="quick").equal
    assert found["quick variant 1"].final is None and found["quick variant 1"].heat == 1
    assert found["quick variant 2"].status == "build_failed"
    row = Race.objects.get(stage=Stage.CONTEST)
    assert row.winner == Best.objects.get(rank=0).implementation


@pytest.mark.parametrize(("again", "served"), [(1.51, "quick"), (1.6, "rival")])
def test_who_is_served_stays_in_a_further_round_unless_it_is_told_apart(
    make_miss: Callable[..., Any], worker_with: Any, again: float, served: str
) -> None:
    """In a round that tries everything again the incumbent runs as one candidate of many."""
    make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}])).run_until_idle()
    steering.retry(Exploration.objects.get().pk)
    routes = FakeRoute("quick", offers=[{"ratio": 1.5}]), FakeRoute("rival", offers=[{"ratio": again}])
    worker_with(*routes, name="w2").run_until_idle()
    assert Best.objects.get(rank=0).route == served
    assert Best.objects.get(route="rival").equal == (served == "quick")


def test_served_times_are_those_of_the_final_with_their_samples(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 1.5}])).run_until_idle()
    measured = Best.objects.get(rank=0).measurement
    assert measured.purpose == "final" and len(measured.samples_us) == 5


def test_what_never_wins_is_not_built_any_more_but_for_a_few(
    make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_history, "_KNOWN_FOR_S", 0.0)
    worker = worker_with(
        FakeRoute("good", offers=[{"ratio": 4.0}]), FakeRoute("bad", offers=[{"ratio": 0.2}])
    )
    for size in range(1024, 1024 + 30):
        make_miss("Relu", size, calls=size)
    worker.run_until_idle()
    tried = Trial.objects.filter(route="bad").count()
    assert 3 < tried < 25
    assert Trial.objects.filter(route="good", stage=Stage.CONTEST).count() == Exploration.objects.count()
    skipped = [
        one for row in Race.objects.all() for one in RaceReport.from_json(row.report).entries if one.skipped
    ]
    assert len(skipped) == Exploration.objects.count() - tried
    assert all("to be faster than" in one.skipped for one in skipped)


def two_alike(make_miss: Any, worker_with: Any, configure: Any, *offers: Any) -> Any:
    """Two operators of nearly the same worth, and a worker that has not begun."""
    configure(pack_s=0.1)
    make_miss("Relu", 1024)
    make_miss("Relu", 1025, calls=1.01)
    return worker_with(FakeRoute("many", offers=list(offers)))


def test_the_most_promising_of_every_operator_come_before_the_rest_of_any(
    make_miss: Any, worker_with: Any, configure: Any
) -> None:
    offers = [{"ratio": 1 + n / 100} for n in range(12)]
    two_alike(make_miss, worker_with, configure, *offers).run_until_idle()
    order = Trial.objects.filter(stage=Stage.CONTEST, route="many").order_by("pk")
    runs = [key for key, _ in groupby(order.values_list("exploration", flat=True))]
    assert len(runs) > 4 and len(set(runs)) == 2, "in turns, as long as what waits promises as much"
    assert set(Exploration.objects.values_list("state", flat=True)) == {"done"}
    assert {best.label for best in Best.objects.filter(rank=0)} == {"variant 11"}


def test_a_heat_is_as_long_as_its_tries_are_expected_to_take(
    make_miss: Any, worker_with: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tries_by_heat(seconds: float) -> list[int]:
        monkeypatch.setattr(heats, "HEAT_S", seconds)
        Exploration.objects.all().delete()
        configure(pack_s=0.1)
        make_miss("Relu", int(1024 + seconds))
        worker_with(FakeRoute("many", offers=[{"ratio": 0.9}] * 1 + offers)).run_until_idle()
        numbers = [one.heat for one in report().entries if one.heat]
        return [len(list(group)) for _, group in groupby(sorted(numbers))]

    offers = [{"ratio": 1 + n / 100} for n in range(11)]
    assert odds.PRIOR_S == 2.0
    assert tries_by_heat(7.9) == [3, 3, 3, 3]
    assert tries_by_heat(1.0) == [1] * 12, "the first of a heat may take longer"
    assert tries_by_heat(1000.0) == [8, 4]


def test_who_leads_a_contest_that_gave_way_is_served_after_one_sitting_until_the_final(
    make_miss: Any, worker_with: Any, configure: Any
) -> None:
    offers = [{"ratio": 2.0}, *({"ratio": 1.1 + n / 100} for n in range(5))]
    two_alike(make_miss, worker_with, configure, *offers).run_until_idle()
    row = Race.objects.filter(stage=Stage.CONTEST).earliest("pk").exploration
    races = Race.objects.filter(stage=Stage.CONTEST, exploration=row).order_by("pk")
    reports = [RaceReport.from_json(race.report) for race in races]
    held = [one for one in reports if any(entry.final for entry in one.entries)]
    assert [one.decides for one in held] == [False, True]
    assert held[0].sittings == 1 < held[1].sittings
    assert [decided_text(one).partition(":")[0] for one in held] == [
        "many · variant 0 is served for now, after one sitting",
        "many · variant 0 won",
    ]
    implementation = Best.objects.get(operator=row.operator, rank=0).implementation
    purposes = implementation.measurements.order_by("pk").values_list("purpose", flat=True)
    assert list(purposes)[-2:] == ["first", "final"]
