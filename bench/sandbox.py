"""What the sandbox costs: the same kernels measured in the tier in use and without a sandbox, in turns.

Each pair is one artifact in two fresh processes, one of either tier, raced like a candidate against the
default (short turns, alternating order). A pair of two processes *without* a sandbox is raced beside each:
two processes of one kernel differ by about a percent by themselves, and that is the bench's own error.
``BUDGET_S`` bounds the whole (300); ``SITTINGS`` says how many pairs of each operator (9).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.record import BenchRecord
from opatlas.cores import usable_cores
from opatlas.identity import Operator, Setting, detect_target, parse_operator
from tuning.measure.laboratory import Laboratory, Limits, zygote_of
from tuning.measure.sandbox.tiers import best_tier
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import Specimen
from tuning.measure.subject import Subject
from tuning.measure.timing.timer import Effort, race
from tuning.routes.base import BuiltArtifact
from tuning.routes.registry import default_candidate

EFFORT = Effort(seconds=0.4, rounds=8, stop_losers=False)
RUN_S = 20.0
LEAST_SITTINGS = 2

OPERATORS: dict[str, dict[str, Any]] = {
    "Relu 128×128": {"op": "Relu", "inputs": [{"shape": [128, 128], "dtype": "float32"}]},
    "Relu 1024×2048": {"op": "Relu", "inputs": [{"shape": [1024, 2048], "dtype": "float32"}]},
    "Softmax 512×1000": {
        "op": "Softmax",
        "attrs": {"axis": -1},
        "inputs": [{"shape": [512, 1000], "dtype": "float32"}],
    },
    "MatMul 512×512×512": {
        "op": "MatMul",
        "inputs": [{"shape": [512, 512], "dtype": "float32"}, {"shape": [512, 512], "dtype": "float32"}],
    },
    "Conv 64→64 3×3, 56×56": {
        "op": "Conv",
        "attrs": {"pads": [1, 1, 1, 1]},
        "inputs": [
            {"shape": [1, 64, 56, 56], "dtype": "float32"},
            {"shape": [64, 64, 3, 3], "dtype": "float32", "const": True},
        ],
    },
}


def main() -> None:
    record = BenchRecord("sandbox")
    tier = best_tier()
    if tier.name == "T0":
        record.finish({"tier": "T0", "overhead": None, "why": dict(tier.missing)})
        return
    deadline = time.monotonic() + (conf().budget_s or 300)
    sittings = conf().sittings
    rows = measure(tier.name, deadline, sittings)
    measured = [row["overhead"] for row in rows.values() if row]
    record.finish(
        {
            "tier": tier.name,
            "overhead": round(statistics.median(measured), 4) if measured else None,
            "largest": max(measured, default=None),
            "operators": rows,
        }
    )


def measure(tier: str, deadline: float, sittings: int) -> dict[str, dict[str, Any]]:
    """A row for each operator: empty where the budget ended before it."""
    setting, rows = Setting(threads=usable_cores()), {}
    with tempfile.TemporaryDirectory() as name:
        folder, target = Path(name), detect_target()
        with (
            Laboratory(folder / "in", target, tier=tier) as inside,
            Laboratory(folder / "out", target, tier="T0") as outside,
        ):
            inside.warm(()), outside.warm(())
            share = (deadline - time.monotonic()) / len(OPERATORS)
            for number, (label, document) in enumerate(OPERATORS.items()):
                operator = parse_operator(document)
                artifact = default_of(inside, operator, setting, folder / str(number))
                until = min(deadline, time.monotonic() + share)
                rows[label] = _row((inside, outside), operator, setting, artifact, sittings, until)
                print(f"{label}: {rows[label]}", flush=True)
    return rows


def default_of(lab: Laboratory, operator: Operator, setting: Setting, folder: Path) -> BuiltArtifact:
    """The default's artifact, which needs no build."""
    chosen = default_candidate(operator, lab.target, setting)
    assert chosen is not None
    built = lab.build(chosen[0], operator, setting, chosen[1], folder)
    assert isinstance(built, BuiltArtifact), built
    return built


def _row(
    labs: tuple[Laboratory, Laboratory],
    operator: Operator,
    setting: Setting,
    artifact: BuiltArtifact,
    sittings: int,
    until: float,
) -> dict[str, Any]:
    zygotes = [lab.zygotes[zygote_of(artifact.manifest)] for lab in labs]
    inside, outside = zygotes
    specimen = Specimen(operator, setting)
    pairs: list[float] = []
    alone: list[float] = []
    microseconds: list[float] = []
    try:
        with labs[0].lock.measuring():
            while len(pairs) < sittings and (len(pairs) < LEAST_SITTINGS or time.monotonic() < until):
                # Who is loaded first may lie better in memory: the order alternates too.
                first = len(pairs) % 2 == 0
                ratio, took_us = _race(
                    *((outside, inside) if first else (inside, outside)), specimen, artifact
                )
                pairs.append(ratio if first else 1 / ratio)
                microseconds.append(took_us)
                alone.append(_race(outside, outside, specimen, artifact)[0])
    finally:
        specimen.close()
    return _summary(pairs, alone, microseconds)


def _race(one: Zygote, other: Zygote, specimen: Specimen, artifact: BuiltArtifact) -> tuple[float, float]:
    """The other's time ÷ the one's, and the other's in microseconds, in fresh processes of both."""
    subjects = [Subject(zygote, specimen, artifact, Limits().bounds, RUN_S) for zygote in (one, other)]
    try:
        for subject in subjects:
            subject.open()
            subject.start_runner(cold=False)
        runners = [subject.runner for subject in subjects if subject.runner is not None]
        timing = race(runners, EFFORT).timings[0]
        return 1 / timing.ratio_to_default, timing.median_us
    finally:
        for subject in subjects:
            subject.close()


def _summary(pairs: list[float], alone: list[float], microseconds: list[float]) -> dict[str, Any]:
    """``overhead`` is a fraction: 0.01 is one percent. ``without``: what two processes outside differ by."""
    return {
        "median_us": round(statistics.median(microseconds), 3),
        "overhead": round(statistics.median(pairs) - 1, 4),
        "spread": [round(min(pairs) - 1, 4), round(max(pairs) - 1, 4)],
        "without": round(statistics.median(abs(ratio - 1) for ratio in alone), 4),
        "sittings": len(pairs),
    }
