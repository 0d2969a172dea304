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

``concurrent``: models in streams against one step after the other (:mod:`bench.streams.concurrent`), which is
timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, quantiles
from typing import Any

from bench.record import BenchRecord
from bench.streams.concurrent import (
    counted,
    measure_model,
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
    record.finish(
        {
            "placement": placement,
            "concurrent": {"models": figures, "two_models": together, **counted(figures)},
        },
        ["concurrent"],
    )


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
