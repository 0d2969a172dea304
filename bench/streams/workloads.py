"""What the simulated engines run: recorded models with measured times, and invented ones.

*Recorded*: the open logs' models (``oplogs``), of each the calls of operators that the contest's sample has,
with the default's time as ``docs/figures/contest.json`` has it (PyTorch eager on two cores, medians of 200
operators). A log is sorted by operator and says nothing of an order: its calls are shuffled once, by its
name. Its suite is its tenant.

*Invented*: ``KINDS`` kinds of operators in families whose times lie apart by three orders of magnitude, in
models of several tenants, with steps of one to three operators side by side.

Of every ten operators one has no reference time (its family's median stands in); of the invented ones another
says ten times what it takes, and a third a tenth of it. A run takes its operator's time, give or take a
tenth. Runs arrive by chance, so many that the engines are busy for ``LOAD`` of the time.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contest.sample import SAMPLE, operator_of
from bench.streams.simulation import SimulatedOperator, SimulatedRun
from opatlas.identity import describe
from opatlas.placement.references import ReferenceTime, ReferenceTimes
from tuning.conf import conf as tuning_conf

PUBLISHED = Path(__file__).parents[2] / "docs/figures/contest.json"

LOAD = 0.85
SPREAD = 0.1
"""Of one operator's runs: the standard deviation of their logarithms."""
MISSING = TEN_TIMES = 0.1
"""Shares of operators: without a reference time; with ten times what they take, and with a tenth of it."""
RUNS_PER_ENGINE = 10
LEAST_RUNS = 400
MOST_CALLS = 32
"""Of a recorded model's run: of longer ones the first."""
LEAST_OPERATORS = 3
"""That are known of a recorded model."""
FAMILIES_S = {
    "layout": 2e-5,
    "elementwise": 5e-5,
    "norm": 3e-4,
    "matmul": 2e-3,
    "conv": 6e-3,
    "attention": 2e-2,
}
KINDS, MODELS, TENANTS = 60, 12, 4


@dataclass(frozen=True)
class TimedOperator:
    """One that models call; ``seconds`` is what it takes."""

    key: str
    family: str
    seconds: float


@dataclass(frozen=True)
class TimedModel:
    """What a run of it calls, step by step."""

    name: str
    tenant: str
    steps: Sequence[Sequence[TimedOperator]]


def simulated_runs(
    models: Sequence[TimedModel], engines: int, seed: int, ten_times: float = 0.0
) -> list[SimulatedRun]:
    """Runs of these models, by chance."""
    chance = random.Random(seed)
    reference = _references(models, chance, ten_times)
    drawn = [chance.choice(models) for _ in range(max(LEAST_RUNS, RUNS_PER_ENGINE * engines))]
    work_s = sum(one.seconds for model in drawn for step in model.steps for one in step)
    between_s = work_s / len(drawn) / (engines * LOAD)
    runs, now = [], 0.0
    for model in drawn:
        now += chance.expovariate(1 / between_s)
        steps = [
            [
                SimulatedOperator(reference[one.key], one.seconds * math.exp(chance.gauss(0.0, SPREAD)))
                for one in step
            ]
            for step in model.steps
        ]
        runs.append(SimulatedRun(model.name, model.tenant, now, steps))
    return runs


def _references(
    models: Sequence[TimedModel], chance: random.Random, ten_times: float
) -> Mapping[str, ReferenceTime]:
    """What is believed of each operator."""
    operators = {one.key: one for model in models for step in model.steps for one in step}
    said = []
    for one in operators.values():
        drawn = chance.random()
        factor = 10.0 if drawn < ten_times else 0.1 if drawn < 2 * ten_times else 1.0
        if drawn < 1 - MISSING:
            said.append((one.family, one.key, one.seconds * factor))
    known = ReferenceTimes(said)
    return {one.key: known.of(one.key, one.family) for one in operators.values()}


def invented_models(seed: int) -> list[TimedModel]:
    chance = random.Random(f"models {seed}")
    families = list(FAMILIES_S.items())
    kinds = []
    for number in range(KINDS):
        family, typical_s = families[number % len(families)]
        seconds = typical_s * math.exp(chance.gauss(0.0, 0.8))
        kinds.append(TimedOperator(f"{family} {number}", family, seconds))
    made = []
    for number in range(MODELS):
        own = chance.sample(kinds, 12)
        sizes = [chance.randint(1, 3) for _ in range(chance.randint(6, 20))]
        steps = [[chance.choice(own) for _ in range(size)] for size in sizes]
        made.append(TimedModel(f"model {number}", f"tenant {number % TENANTS}", steps))
    return made


def recorded_models(logs: Path | None = None) -> list[TimedModel]:
    """Those of the open logs that call at least ``LEAST_OPERATORS`` operators with a published time; none
    where the logs are not at hand."""
    timed = _published()
    made = []
    for path in sorted(((logs or tuning_conf().workloads) / "oplogs").rglob("*.json")):
        calls = [
            timed[key]
            for record in json.loads(path.read_text())
            if (key := _call(record)) in timed
            for _ in range(min(int(record["count"]), MOST_CALLS))
        ]
        if len({one.key for one in calls}) >= LEAST_OPERATORS:
            random.Random(path.stem).shuffle(calls)
            made.append(TimedModel(path.stem, path.parent.name, [[one] for one in calls[:MOST_CALLS]]))
    return made


def _published() -> dict[str, TimedOperator]:
    """The sample's operators by the call that was recorded, with the default's published time. Two operators
    that are written alike have no time: nothing says which of them a row is."""
    rows = defaultdict[str, list[float]](list)
    [table] = json.loads(PUBLISHED.read_text())
    for operator, default_us, *_ in table["rows"]:
        if default_us is not None:  # it has an answer
            rows[operator].append(default_us / 1e6)
    found = {}
    written = list(_written())
    alike = Counter(summary for summary, _ in written)
    for summary, record in written:
        if alike[summary] == len(rows[summary]) == 1:
            found[_call(record)] = TimedOperator(_call(record), record["family"], rows[summary][0])
    return found


def _written() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for record in json.loads(SAMPLE.read_text()):
        if (operator := operator_of(record)) is not None:
            yield describe(operator).summary, record


def _call(record: Mapping[str, Any]) -> str:
    return json.dumps([record["op"], record["attrs"], record["inputs"]], sort_keys=True)
