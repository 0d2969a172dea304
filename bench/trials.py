"""How many trials a core makes in a minute, by route: building, checking and timing one candidate.

``summary`` works on any rows with a route, a status and seconds, such as the contest's ``Trial`` rows.
``main`` makes its own over a small fixed list of operators. ``BUDGET_S`` bounds the whole (240).
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.conf import conf
from bench.record import BenchRecord
from bench.sandbox import OPERATORS, default_of
from opatlas.cores import usable_cores
from opatlas.identity import Operator, Setting, detect_target, parse_operator
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.routes.base import Budget, BuiltArtifact, Route
from tuning.routes.registry import ROUTES

CANDIDATES = 4
BUILD_S = 60.0
"""Of one build, as in a contest. A tiny budget is overrun by what each route's first trial takes."""


class TrialLike(Protocol):
    """What ``summary`` reads: ``tuning.models.Trial`` has it."""

    route: str
    status: str
    took_s: float


@dataclass
class TrialRow:
    """One trial of this bench."""

    route: str
    status: str
    took_s: float


def summary(trials: Iterable[TrialLike], cores: int) -> dict[str, dict[str, Any]]:
    """By route: trials, how many were measured, their seconds, and trials per minute per core. A trial has
    the whole machine while it is measured, so its seconds count on every core."""
    by_route: dict[str, list[TrialLike]] = defaultdict(list)
    for trial in trials:
        by_route[trial.route].append(trial)
    return {route: _line(rows, cores) for route, rows in sorted(by_route.items())}


def _line(rows: list[TrialLike], cores: int) -> dict[str, Any]:
    seconds = sum(row.took_s for row in rows)
    return {
        "trials": len(rows),
        "measured": sum(row.status in ("ok", "slower") for row in rows),
        "seconds": round(seconds, 2),
        "per_minute_per_core": round(60 * len(rows) / seconds / cores, 2) if seconds > 0 else None,
    }


def main() -> None:
    record = BenchRecord("trials")
    cores = usable_cores()
    deadline = time.monotonic() + (conf().budget_s or 240)
    rows, missing = measure(deadline, cores)
    record.finish({"cores": cores, "routes": summary(rows, cores), "without": missing})


def measure(deadline: float, threads: int) -> tuple[list[TrialRow], dict[str, str]]:
    """Trials of each route that is there, in turns over the operators until the time is over; and why the
    other routes have none."""
    setting, target, rows = Setting(threads=threads), detect_target(), []
    here = {one.name: one.available(target) for one in ROUTES}
    routes = tuple(one for one in ROUTES if here[one.name])
    missing = {name: str(getattr(answer, "reason", "")) for name, answer in here.items() if not answer}
    with tempfile.TemporaryDirectory() as name, Laboratory(Path(name) / "lab", target) as lab:
        lab.warm(routes)
        for number, document in enumerate(OPERATORS.values()):
            operator = parse_operator(document)
            folder = Path(name) / str(number)
            default = default_of(lab, operator, setting, folder / "default")
            with lab.bench(operator, setting, default) as bench:
                # What is left goes to this operator in equal parts: an expensive route takes nobody's.
                until = time.monotonic() + (deadline - time.monotonic()) / (len(OPERATORS) - number)
                for index, route in enumerate(routes):
                    share = max(0.0, until - time.monotonic()) / (len(routes) - index)
                    rows += _trials(lab, bench, route, operator, setting, folder / route.name, share)
    return rows, missing


def _trials(
    lab: Laboratory, bench: Bench, route: Route, operator: Operator, setting: Setting, folder: Path,
    share_s: float,
) -> list[TrialRow]:  # fmt: skip
    """At least one, and as many as fit into the seconds."""
    rows: list[TrialRow] = []
    if not route.supports(operator, setting):
        return rows
    began = time.monotonic()
    for candidate in route.candidates(operator, lab.target, setting, Budget(share_s, CANDIDATES)):
        if len(rows) >= CANDIDATES or (rows and time.monotonic() - began > share_s):
            break
        started = time.monotonic()
        limits = Limits(build_s=max(BUILD_S, share_s))
        built = lab.build(route, operator, setting, candidate, folder / str(len(rows)), limits)
        outcome = bench.measure(built) if isinstance(built, BuiltArtifact) else built
        rows.append(TrialRow(route.name, str(outcome.status), time.monotonic() - started))
        print(f"{route.name}: {candidate.label}: {outcome.status} in {rows[-1].took_s:.2f} s", flush=True)
    return rows
