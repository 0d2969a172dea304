"""Placement in simulation: what the bench says of policies, and that nothing that engines do hangs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import streams
from bench.models.made_models import two_tower
from bench.streams import concurrent, workloads
from bench.streams.regions import branching_regions
from bench.streams.simulation import (
    SILENT_S,
    SimulatedOperator,
    SimulatedRun,
    jain,
    progress,
    simulate,
    waited_by,
)
from bench.streams.workloads import invented_models, recorded_models, simulated_runs
from opatlas.evidence import Ratios
from opatlas.graph.normal import ModelGraph
from opatlas.placement.queues import POLICIES, NoEngine
from opatlas.placement.references import ReferenceTime
from opatlas.plan.line_up import TimedInTurns
from tuning.graph.samples import sample_model


def takes(seconds: float, said: float | None = None, kind: str = "conv") -> SimulatedOperator:
    return SimulatedOperator(ReferenceTime(kind, said or seconds), seconds)


def test_a_run_waits_for_its_steps_and_what_is_side_by_side_runs_side_by_side() -> None:
    run = SimulatedRun("m", "t", 1.0, [[takes(2.0), takes(3.0)], [takes(1.0)]])
    for engines, took_s in ((2, 4.0), (1, 6.0)):
        found = simulate([run], engines, POLICIES["expected_wait"])
        assert found.took_s == {0: pytest.approx(took_s)}
    assert (run.alone_s, run.work_s) == (4.0, 6.0)
    assert sorted(one.waited_s for one in found.waits) == pytest.approx([0.0, 0.0, 2.0])
    assert sorted(one.expected_s for one in found.waits) == pytest.approx([0.0, 0.0, 2.0])


def test_short_operators_do_not_wait_behind_a_long_one() -> None:
    """The document's picture: counting them, every second one does."""
    runs = [SimulatedRun("long", "t", 0.0, [[takes(10.0)]])]
    runs += [SimulatedRun("short", "t", 0.001 * number, [[takes(0.1)]]) for number in range(1, 9)]
    by_policy = {}
    for name, policy in POLICIES.items():
        found = simulate(runs, 2, policy)
        by_policy[name] = sum(one.waited_s for one in found.waits if one.model == "short") / 8
    assert by_policy["expected_wait"] < 0.5
    assert by_policy["shortest_queue"] > 1.0 and by_policy["round_robin"] > 4.0


@pytest.mark.parametrize("policy", POLICIES)
def test_an_engine_that_stops_delays_its_operators_and_no_more(policy: str) -> None:
    runs = [SimulatedRun("m", "t", 0.01 * number, [[takes(0.05)], [takes(0.05)]]) for number in range(40)]
    found = simulate(runs, 3, POLICIES[policy], stops={0: 0.1})
    assert sorted(found.took_s) == list(range(40))
    assert max(found.took_s.values()) < 2 * SILENT_S + 40 * 0.1


def test_when_every_engine_has_stopped_it_is_said() -> None:
    runs = [SimulatedRun("m", "t", 0.1 * number, [[takes(0.05)]]) for number in range(40)]
    with pytest.raises(NoEngine):
        simulate(runs, 2, POLICIES["expected_wait"], stops={0: 0.1, 1: 0.2})


def test_an_urgent_tenant_delays_the_others_by_its_head_start_at_most() -> None:
    """It asks for twice what the engine can do: without a bound the others would wait for ever. What waits
    when the patient one comes takes 5.1 s, and twenty more urgent ones come within their head start."""
    urgent = [
        SimulatedRun("u", "urgent", 0.05 * number, [[takes(0.1)]], head_start_s=1.0) for number in range(400)
    ]
    patient = SimulatedRun("p", "patient", 5.0, [[takes(0.1, kind="p")]])
    found = simulate([*urgent, patient], 1, POLICIES["expected_wait"])
    assert 7.0 < found.took_s[400] < 7.5


def test_wrong_reference_times_are_corrected_by_what_operators_take() -> None:
    """Half of the kinds say a tenth of what they take: after some runs of each, waits are expected well."""
    runs = [
        SimulatedRun("m", "t", 0.3 * number, [[takes(1.0, 0.1, "wrong")], [takes(1.0, kind="right")]])
        for number in range(300)
    ]
    found = simulate(runs, 8, POLICIES["expected_wait"])
    late = found.waits[len(found.waits) // 2 :]
    assert sum(abs(one.expected_s - one.waited_s) for one in late) / len(late) < 0.2


def test_the_same_runs_come_to_the_same() -> None:
    runs = simulated_runs(invented_models(1), 4, 1, ten_times=0.1)
    first, again = (simulate(runs, 4, POLICIES["expected_wait"]) for _ in range(2))
    assert first == again
    assert simulated_runs(invented_models(1), 4, 1, ten_times=0.1) == runs


def test_runs_arrive_as_fast_as_engines_can_do_them() -> None:
    for engines in (4, 20):
        runs = simulated_runs(invented_models(2), engines, 2)
        load = sum(run.work_s for run in runs) / runs[-1].arrives_at / engines
        assert load == pytest.approx(workloads.LOAD, rel=0.15)


def test_jains_index_is_one_for_equals_and_one_nth_for_a_winner_who_takes_all() -> None:
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0, 0.0]) == 1.0


def test_progress_is_what_runs_take_alone_over_what_they_took() -> None:
    runs = [SimulatedRun("a", "t", 0.0, [[takes(1.0)]]), SimulatedRun("b", "t", 0.0, [[takes(1.0)]])]
    found = simulate(runs, 1, POLICIES["expected_wait"])
    assert progress(runs, found) == pytest.approx([1.0, 0.5])
    assert waited_by(found, lambda one: one.model) == pytest.approx([0.0, 1.0])
    assert waited_by(found, lambda one: one.tenant) == pytest.approx([0.5])


def test_with_four_engines_invented_models_wait_the_shortest_by_expected_wait() -> None:
    """The same figures as the bench's, of two seeds. Of fairness docs/g4.md says what it does not win."""
    of_seeds = [simulated_runs(invented_models(seed), 4, seed, ten_times=0.1) for seed in (0, 1)]
    found = streams.compared(of_seeds, 4)
    mine = found.pop("expected_wait")
    for rival in found.values():
        assert mine["mean_wait_ms"] < rival["mean_wait_ms"]
        assert mine["p99_wait_ms"] < rival["p99_wait_ms"]
        assert mine["operators"] == rival["operators"]
    best = mine["best_of_seeds"]
    assert (best["mean_wait_ms"], best["p99_wait_ms"]) == (2, 2)


def test_recorded_models_have_the_times_that_were_published(tmp_path: Path) -> None:
    """A log of three calls of the sample and one that nobody timed."""
    timed = list(workloads._published().values())
    assert len(timed) > 100
    calls = [dict(zip(("op", "attrs", "inputs"), json.loads(one.key), strict=True)) for one in timed[:3]]
    log = [call | {"count": 2} for call in calls] + [{"op": "aten.x", "attrs": {}, "inputs": [], "count": 9}]
    folder = tmp_path / "oplogs" / "suite"
    folder.mkdir(parents=True)
    (folder / "net.json").write_text(json.dumps(log))
    (folder / "too_little.json").write_text(json.dumps(log[:1]))
    (model,) = recorded_models(tmp_path)
    assert (model.name, model.tenant, len(model.steps)) == ("net", "suite", 6)
    wanted = sorted(2 * [one.seconds for one in timed[:3]])
    assert sorted(step[0].seconds for step in model.steps) == wanted
    assert recorded_models(tmp_path / "nowhere") == []


def test_a_published_time_is_its_row() -> None:
    text = workloads.PUBLISHED.read_text()
    assert '"MaxPool float32 16×432×21×21 → 16×432×21×21", 39590.0,' in text
    assert any(one.seconds == pytest.approx(0.03959) for one in workloads._published().values())


def test_the_bench_says_each_figure_of_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ENGINES", (2,))
    monkeypatch.setattr(streams, "SEEDS", range(2))
    monkeypatch.setattr(workloads, "LEAST_RUNS", 30)
    monkeypatch.setattr(streams, "recorded_models", lambda: invented_models(7))
    found: Any = streams.measure_placement()
    assert found.keys() == POLICIES.keys()
    for policy in found.values():
        for workload in ("recorded", "simulated"):
            figures = policy[workload]["2"]
            assert 0 < figures["mean_wait_ms"] < figures["p99_wait_ms"]
            assert 0 < figures["fairness"] <= 1 and 0 < figures["fairness_of_tenants"] <= 1
            assert figures["expected"]["error_ms"]["median"] >= 0


def test_a_model_in_streams_is_timed_against_one_step_after_the_other() -> None:
    """A tiny run: figures are there, and what they say is of one another."""
    made = concurrent.measure_model(two_tower(layers=1, hidden=64, length=16), 0.05, 0.05)
    assert made["streams"] == 2 and made["failed"] == ""
    ratio, low, high = made["ratio"]
    assert 0 < low <= ratio <= high
    assert made["sequential_us"] > 0 and made["concurrent_us"] > 0
    assert made["chosen_ratio"] in (1.0, ratio)


def test_two_models_at_once_are_timed_against_one_after_the_other() -> None:
    small = two_tower(layers=1, hidden=64, length=16)
    made = concurrent.measure_two_models(small, small, 0.05)
    assert 0 < made["ratio"][1] <= made["ratio"][0] <= made["ratio"][2]
    assert made["waits_us"] and all(len(row) == 2 for row in made["waits_us"].values())


def timed(ratio: float, low: float, high: float) -> dict[str, TimedInTurns]:
    one = TimedInTurns("sequential", 100.0, Ratios(1.0, 1.0, 1.0))
    return {"sequential": one, "concurrent": TimedInTurns("concurrent", 80.0, Ratios(ratio, low, high))}


@pytest.mark.parametrize(
    ("interval", "in_streams", "right"),
    [
        ((1.3, 1.2, 1.4), True, True),
        ((1.3, 1.2, 1.4), False, False),
        ((0.7, 0.6, 0.8), True, False),
        ((0.7, 0.6, 0.8), False, True),
        ((1.0, 0.9, 1.1), True, True),
        ((1.0, 0.9, 1.1), False, True),
    ],
)
def test_a_decision_is_wrong_where_the_other_is_faster_beyond_doubt(
    interval: tuple[float, float, float], in_streams: bool, right: bool
) -> None:
    figures = concurrent._figures(timed(*interval), 2, in_streams)
    assert figures["right"] is right
    assert figures["chosen_ratio"] == (interval[0] if in_streams else 1.0)
    told = concurrent.counted([figures])
    assert told["decisions_right"] == f"{int(right)} of 1"
    assert told["told_apart"] == int(not interval[1] < 1 < interval[2])
    assert told["never_slower"] is (not in_streams or interval[0] >= 0.98)


def test_the_bench_is_resumed_part_by_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streams, "measure_placement", dict)
    monkeypatch.setattr(streams, "models_with_branches", lambda: {"a": b"a", "b": b"b"})
    monkeypatch.setattr(streams, "two_models", lambda: (b"a", b"b"))
    asked: list[bytes] = []
    right = {"right": True, "chosen_ratio": 1.0, "chosen": 1, "ratio": [1.0, 1.0, 1.0]}

    def measure(data: bytes) -> dict[str, Any]:
        asked.append(data)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return right

    monkeypatch.setattr(streams, "measure_model", measure)
    monkeypatch.setattr(streams, "measure_regions", lambda data: [right, right | {"right": False}])
    monkeypatch.setattr(streams, "measure_two_models", lambda *_: {"ratio": [1, 1, 1]})
    with pytest.raises(KeyboardInterrupt):
        streams.main()
    streams.main()
    assert asked == [b"a", b"b", b"b"], "a is kept from the run before"
    told = json.loads((tmp_path / "var/bench/streams.json").read_text())
    assert told["concurrent"]["decisions_right"] == "2 of 2"
    assert told["aims"]["regions"]["decisions_right"] == "2 of 4"
    assert told["aims"]["regions"]["share_right"] == 0.5 and told["aims"]["models"]["never_slower"] is True


def test_the_aims_say_on_how_many_workloads_the_rule_is_best() -> None:
    """A little more than the best is no more than equal."""

    def policy(mean: float, p99: float, fairness: float) -> dict[str, Any]:
        one = {"mean_wait_ms": mean, "p99_wait_ms": p99, "fairness": fairness}
        return {"recorded": {"4": one}, "simulated": {"4": one | {"mean_wait_ms": 1.0}}}

    placement = {"expected_wait": policy(2.0, 5.0, 0.9), "round_robin": policy(1.0, 4.99, 0.8)}
    none = concurrent.counted([])
    told = streams.aims(placement, none | {"of_regions": none})["expected_wait"]
    assert told["mean_wait_ms"] == "best or equal on 1 of 2"
    assert told["p99_wait_ms"] == told["fairness"] == "best or equal on 2 of 2"


def test_a_models_regions_lie_between_values_that_alone_go_on() -> None:
    """Each fire module of SqueezeNet is one, with what it reads and writes; a chain has none."""
    squeezenet = ModelGraph(sample_model("squeezenet"))
    made = [ModelGraph(one) for one in branching_regions(squeezenet)]
    assert len(made) == 8
    for one in made:
        assert [node.proto.op_type for node in one.nodes].count("Conv") == 2
        assert len(one.inputs) == len(one.outputs) == 1
    assert branching_regions(ModelGraph(sample_model("alexnet"))) == []
