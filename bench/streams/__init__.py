"""Which engine runs an operator: by expected waiting time, by the number of operators, or in turns.

``placement``, by policy, on ``recorded`` and ``simulated`` workloads (:mod:`bench.streams.workloads`), by the
number of engines, in discrete events (:mod:`bench.streams.simulation`), over ``SEEDS`` seeds:

- ``mean_wait_ms``, ``p99_wait_ms``: of an operator, from being placed to running, over all seeds;
- ``fairness``, ``fairness_of_tenants``: Jain's index of what the operators of each model (tenant) waited on
  average; ``fairness_of_progress``: of how fast models got on, which is what their runs take alone ÷ what
  they took; means over the seeds;
- ``best_of_seeds``: in how many seeds each of the three is the best of all policies or equal to it;
- ``expected``: what operators were expected to wait when they were placed, against what they waited:
  ``error_ms`` (median and 90th percentile of the difference) and ``ratio`` (all that was expected ÷ all that
  was waited).

Nothing of that is timed, so it is the same on every machine.

``concurrent``: models, and their regions with branches, in streams against one step after the other
(:mod:`bench.streams.concurrent`), which is timed. ``aims``: what of all that is as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, quantiles
from typing import Any

from bench.record import BenchRecord
from bench.streams.concurrent import (
    counted,
    measure_model,
    measure_regions,
    measure_two_models,
    models_with_branches,
    two_models,
)
from bench.streams.simulation import OperatorWait, SimulatedRun, jain, progress, simulate, waited_by
from bench.streams.workloads import TEN_TIMES, invented_models, recorded_models, simulated_runs
from opatlas.placement.queues import POLICIES

ENGINES = (4, 20, 100)
SEEDS = range(3)
EQUAL = 0.005
"""Of figures: what counts as equal."""


@dataclass(frozen=True)
class PlacedRuns:
    """One workload under one policy."""

    waits: Sequence[OperatorWait]
    fairness: float
    fairness_of_tenants: float
    fairness_of_progress: float

    @property
    def judged(self) -> tuple[float, float, float]:
        """Mean wait, 99th percentile and fairness (less than nothing): the less the better."""
        waited = [one.waited_s for one in self.waits]
        return fmean(waited), _percentile(waited, 99), -self.fairness


def main() -> None:
    record = BenchRecord("streams")
    placement = record.part("placement", measure_placement)
    figures = {
        name: record.part(f"concurrent {name}", partial(measure_model, data))
        for name, data in models_with_branches().items()
    }
    together = record.part("two models", partial(measure_two_models, *two_models()))
    regions = {
        name: record.part(f"regions of {name}", partial(measure_regions, data))
        for name, data in models_with_branches().items()
    }
    every = [one for found in regions.values() for one in found]
    concurrent = {
        "models": figures,
        "two_models": together,
        "regions": regions,
        **counted(figures.values()),
        "of_regions": counted(every),
    }
    _print_placement(placement)
    _print_concurrent({**figures, "two models": together}, regions)
    result = {"placement": placement, "concurrent": concurrent}
    record.finish(result | {"aims": aims(placement, concurrent)}, ["aims"])


def aims(placement: Mapping[str, Any], concurrent: Mapping[str, Any]) -> dict[str, Any]:
    """What the figures come to: where the rule is the best of the policies, and whether what is chosen is."""
    best: dict[str, str] = {}
    for name in ("mean_wait_ms", "p99_wait_ms", "fairness"):
        won = [_is_best(placement, place, name) for place in _places(placement)]
        best[name] = f"best or equal on {sum(won)} of {len(won)}"
    told = ("decisions_right", "share_right", "told_apart", "in_streams", "never_slower", "least_ratio")
    return {
        "expected_wait": best,
        "models": {name: concurrent[name] for name in told},
        "regions": {name: concurrent["of_regions"][name] for name in told},
    }


def _places(placement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Workload and number of engines."""
    mine = placement.get("expected_wait", {})
    return [(workload, engines) for workload, found in mine.items() for engines in found]


def _is_best(placement: Mapping[str, Any], place: tuple[str, str], name: str) -> bool:
    workload, engines = place
    sign = -1 if name == "fairness" else 1
    by_policy = {policy: sign * found[workload][engines][name] for policy, found in placement.items()}
    least = min(by_policy.values())
    return by_policy["expected_wait"] <= least + EQUAL * abs(least)


def _print_placement(placement: Mapping[str, Any]) -> None:
    """Waits in ms; how far off they were expected, in the median and at the 90th percentile."""
    for workload, engines in _places(placement):
        for policy, found in placement.items():
            one = found[workload][engines]
            waits = f"mean {one['mean_wait_ms']:9.4f} ms, p99 {one['p99_wait_ms']:9.3f} ms"
            fair = f"fairness {one['fairness']:.2f} (tenants {one['fairness_of_tenants']:.2f})"
            error, ratio = one["expected"]["error_ms"], one["expected"]["ratio"]
            expected = (
                f"expected off by {error['median']} ms (p90 {error['p90']}), {ratio} of what was waited"
            )
            print(f"{workload:9} {engines:>3} engines, {policy:14}: {waits}, {fair}, {expected}")


def _print_concurrent(
    models: Mapping[str, Mapping[str, Any]], regions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Sequential ÷ concurrent of each, with its interval, and what was chosen."""
    of_regions = {
        f"{name}, region {at}": one for name, found in regions.items() for at, one in enumerate(found)
    }
    for name, one in {**models, **of_regions}.items():
        ratio = "not cut" if one["ratio"] is None else "{} [{}, {}]".format(*one["ratio"])
        chosen = f", chosen: {one['chosen']}, right: {one['right']}" if "chosen" in one else ""
        print(f"{name:24}: sequential ÷ concurrent {ratio}{chosen}")


def measure_placement() -> dict[str, Any]:
    """By policy, workload and number of engines."""
    recorded = recorded_models()
    if not recorded:
        print("The open logs are not at hand: nothing recorded is run.", flush=True)
    found: dict[str, Any] = {name: {"recorded": {}, "simulated": {}} for name in POLICIES}
    for engines in ENGINES:
        simulated = [
            simulated_runs(invented_models(seed), engines, seed, ten_times=TEN_TIMES) for seed in SEEDS
        ]
        workloads = {"simulated": simulated}
        if recorded:
            workloads["recorded"] = [simulated_runs(recorded, engines, seed) for seed in SEEDS]
        for workload, of_seeds in workloads.items():
            print(f"{workload}, {engines} engines: {sum(map(len, of_seeds))} runs …", flush=True)
            for name, figures in compared(of_seeds, engines).items():
                found[name][workload][str(engines)] = figures
    return found


def compared(of_seeds: Sequence[Sequence[SimulatedRun]], engines: int) -> dict[str, dict[str, Any]]:
    """The figures of each policy over the same runs."""
    by_policy = {name: [placed(runs, engines, name) for runs in of_seeds] for name in POLICIES}
    best = [
        tuple(map(min, zip(*(by_policy[name][seed].judged for name in POLICIES), strict=True)))
        for seed in range(len(of_seeds))
    ]
    return {name: _figures(every, best) for name, every in by_policy.items()}


def placed(runs: Sequence[SimulatedRun], engines: int, policy: str) -> PlacedRuns:
    found = simulate(runs, engines, POLICIES[policy])
    return PlacedRuns(
        found.waits,
        jain(waited_by(found, lambda one: one.model)),
        jain(waited_by(found, lambda one: one.tenant)),
        jain(progress(runs, found)),
    )


def _figures(every: Sequence[PlacedRuns], best: Sequence[Sequence[float]]) -> dict[str, Any]:
    waits = [one for seed in every for one in seed.waits]
    waited = [one.waited_s for one in waits]
    errors = [abs(one.expected_s - one.waited_s) for one in waits]
    names = ("mean_wait_ms", "p99_wait_ms", "fairness")
    return {
        "mean_wait_ms": _ms(fmean(waited)),
        "p99_wait_ms": _ms(_percentile(waited, 99)),
        "fairness": round(fmean(one.fairness for one in every), 4),
        "fairness_of_tenants": round(fmean(one.fairness_of_tenants for one in every), 4),
        "fairness_of_progress": round(fmean(one.fairness_of_progress for one in every), 4),
        "best_of_seeds": {
            name: sum(
                one.judged[number] <= least[number] + EQUAL * abs(least[number])
                for one, least in zip(every, best, strict=True)
            )
            for number, name in enumerate(names)
        },
        "expected": {
            "error_ms": {"median": _ms(median(errors)), "p90": _ms(_percentile(errors, 90))},
            "ratio": round(sum(one.expected_s for one in waits) / max(sum(waited), 1e-12), 3),
        },
        "operators": len(waits),
    }


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 4)
