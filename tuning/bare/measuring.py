"""One problem measured: every route's candidates in a race, the best of each in a final, and the winner once
more; one line of it."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.identity.cost import describe
from tuning.bare.clock import RACE_S, SliceClock
from tuning.bare.problems import Problem
from tuning.measure.device.driver_versions import environment_of
from tuning.measure.judging.roofline import floor_us
from tuning.measure.laboratory import SUBMITTED, Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import Budget, BuiltArtifact, Candidate, Route

FORMAT = "opatlas-measurements 1"
MOST_CANDIDATES = 12
CANDIDATES_S = 30.0
MOST_FILE_BYTES = 1 << 20
BASELINE_S = 120.0
"""``torch.compile`` compiles in the process that is timed, and times templates meanwhile."""

DefaultCandidate = Callable[[Operator, Target, Setting], tuple[Route, Candidate] | None]


def needed_after_s(baseline: Route | None) -> float:
    """What races and the baseline may take once all is built."""
    return RACE_S + (BASELINE_S if baseline else 0.0)


@dataclass(frozen=True)
class BuiltEntry:
    """A candidate, built or not."""

    route: Route
    candidate: Candidate
    built: BuiltArtifact | Outcome


def measure(
    laboratory: Laboratory,
    routes: Sequence[Route],
    default_candidate: DefaultCandidate,
    problem: Problem,
    setting: Setting,
    baseline: Route | None = None,
    clock: SliceClock | None = None,
) -> dict[str, Any]:
    """A line, whatever comes of it. Raises :class:`~tuning.bare.clock.PutOff` where ``clock``, a patient one,
    has no time left for what it takes."""
    line: dict[str, Any] = {"format": FORMAT, "problem": problem.name, "setting": setting.to_json()}
    line["target"] = laboratory.target.to_json()
    if laboratory.device is not None:
        reading = laboratory.device.reading()
        line["device"] = {
            "name": laboratory.device.gpu.product,
            "reading": asdict(reading) if reading else None,
        }
    if problem.operator is None:
        return {**line, "uncovered": problem.reason}
    operator = problem.operator
    line["operator"] = operator.to_json()
    given = default_candidate(operator, laboratory.target, setting)
    if given is None:
        return {**line, "uncovered": "no default can run it"}
    with TemporaryDirectory(prefix="opatlas-bare-", dir=laboratory.home) as folder:
        bound = (laboratory, routes, given, operator, setting, Path(folder), baseline, clock)
        return {**line, **_Measured(*bound).line()}


class _Measured:
    def __init__(
        self,
        laboratory: Laboratory,
        routes: Sequence[Route],
        default: tuple[Route, Candidate],
        operator: Operator,
        setting: Setting,
        folder: Path,
        baseline: Route | None,
        clock: SliceClock | None,
    ) -> None:
        self.baseline = baseline
        self.clock = clock and replace(clock, after_s=needed_after_s(baseline))
        self.laboratory, self.routes, self.default = laboratory, routes, default
        self.operator, self.setting, self.folder = operator, setting, folder
        self.began = time.monotonic()

    def line(self) -> dict[str, Any]:
        route, candidate = self.default
        built = self._build(route, candidate, "default")
        if isinstance(built, Outcome):
            return {"uncovered": f"the default does not build: {built.detail}"}
        with self.laboratory.bench(self.operator, self.setting, built) as bench:
            if not bench.default.ok:
                return {"uncovered": f"the default does not run: {bench.default.detail}"[:500]}
            first_s = time.monotonic() - self.began
            entrants, refused = self._entrants()
            outcomes = self._raced(bench, entrants)
            entries = [BuiltEntry(route, candidate, built), *entrants]
            timed = [bench.default, *outcomes]
            again = self._again(bench, entries, timed)
            best_s = time.monotonic() - self.began
            against = self._against(bench)
        described = describe(self.operator)
        return {
            "default": {"route": route.name, "versions": self._versions(route)},
            "entries": [
                {**_entry(one, outcome), "versions": self._versions(one.route)}
                for one, outcome in zip(entries, timed, strict=True)
            ],
            "again": again,
            "max_autotune": against,
            "refused": refused,
            "first_s": round(first_s, 3),
            "best_s": round(best_s, 3),
            "flops": described.flops,
            "bytes_moved": described.bytes_moved,
            "floor_us": floor_us(self.operator, self.laboratory.target, self.setting),
        }

    def _versions(self, route: Route) -> dict[str, str]:
        return environment_of(route, self.laboratory.target.kind)

    def _entrants(self) -> tuple[list[BuiltEntry], dict[str, str]]:
        """Candidates of every route, built, those first that may take longest; and why routes have none."""
        named: list[tuple[Route, Candidate]] = []
        refused: dict[str, str] = {}
        for route in self.routes:
            for answer in (
                route.available(self.laboratory.target),
                route.supports(self.operator, self.setting),
            ):
                if not answer:
                    refused.setdefault(route.name, str(getattr(answer, "reason", "")))
            if route.name in refused:
                continue
            budget = Budget(seconds=CANDIDATES_S, candidates=MOST_CANDIDATES)
            found = route.candidates(self.operator, self.laboratory.target, self.setting, budget)
            named += [(route, candidate) for candidate in itertools.islice(found, MOST_CANDIDATES)]
        named.sort(key=lambda one: -self.laboratory.longest_build_s(one[0]))
        made = [
            BuiltEntry(route, candidate, self._build(route, candidate, f"{route.name}-{number}"))
            for number, (route, candidate) in enumerate(named)
            if (route, candidate) != self.default
        ]
        return made, refused

    def _build(self, route: Route, candidate: Candidate, name: str) -> BuiltArtifact | Outcome:
        if self.clock and (why_not := self.clock.why_not(self.laboratory.longest_build_s(route))):
            return Outcome(Status.TIMED_OUT, why_not)
        return self.laboratory.build(route, self.operator, self.setting, candidate, self.folder / name)

    def _raced(self, bench: Bench, entrants: Sequence[BuiltEntry]) -> list[Outcome]:
        """Our own code in heats, what somebody submitted alone with the default; then a final of each
        route's best."""
        outcomes = [
            one.built if isinstance(one.built, Outcome) else Outcome(Status.NOISY) for one in entrants
        ]
        built = {n: one.built for n, one in enumerate(entrants) if isinstance(one.built, BuiltArtifact)}
        ours = [n for n in built if entrants[n].route.name not in SUBMITTED]
        for number, outcome in zip(ours, bench.heat([built[n] for n in ours]), strict=True):
            outcomes[number] = outcome
        for number in built.keys() - set(ours):
            outcomes[number] = bench.measure(built[number])
        bests: dict[str, int] = {}
        for number, outcome in enumerate(outcomes):
            name = entrants[number].route.name
            if outcome.ok and outcome.ratio > (outcomes[bests[name]].ratio if name in bests else 0):
                bests[name] = number
        final = bench.line_up([built[n] for n in bests.values()])
        for number, outcome in zip(bests.values(), final.outcomes, strict=True):
            outcomes[number] = replace(outcome, facts={**outcome.facts, "final": True})
        return outcomes

    def _again(
        self, bench: Bench, entries: Sequence[BuiltEntry], timed: Sequence[Outcome]
    ) -> dict[str, Any] | None:
        """The winner's ratio once more, in fresh processes."""
        number = winner(timed)
        artifact = entries[number].built
        if number == 0 or not isinstance(artifact, BuiltArtifact):
            return None
        (outcome,) = bench.line_up([artifact]).outcomes
        if outcome.timing is None:
            return {"entry": number, "status": outcome.status, "detail": outcome.detail}
        ratios = outcome.timing.ratios
        return {"entry": number, "status": outcome.status, **asdict(ratios)}

    def _against(self, bench: Bench) -> dict[str, Any]:
        """The ratio of what users have beside the default (``torch.compile``): it takes part in no race and
        is published nowhere; why there is none, where there is none."""
        if self.baseline is None:
            return {"why_not": "nobody asked for it"}
        route, target = self.baseline, self.laboratory.target
        for answer in (route.available(target), route.supports(self.operator, self.setting)):
            if not answer:
                return {"why_not": str(getattr(answer, "reason", ""))}
        budget = Budget(seconds=CANDIDATES_S, candidates=1)
        candidate = next(iter(route.candidates(self.operator, target, self.setting, budget)), None)
        if candidate is None:
            return {"why_not": f"{route.name} has no candidate"}
        if self.clock and (why_not := replace(self.clock, after_s=0).why_not(BASELINE_S)):
            return {"why_not": why_not}
        built = self.laboratory.build(route, self.operator, self.setting, candidate, self.folder / "baseline")
        if isinstance(built, Outcome):
            return {"why_not": built.detail[:500]}
        (outcome,) = bench.line_up([built], limits=Limits(run_s=BASELINE_S), sittings=1).outcomes
        if not outcome.ok or outcome.timing is None:
            return {"why_not": f"{outcome.status}: {outcome.detail}"[:500]}
        return {"route": route.name, "label": candidate.label, **asdict(outcome.timing.ratios)}


def winner(timed: Sequence[Outcome]) -> int:
    """Of the default (0) and those of the final, the fastest."""
    final = [n for n, one in enumerate(timed) if one.ok and (n == 0 or one.facts.get("final"))]
    return max(final, key=lambda number: (timed[number].ratio, -number))


def _entry(one: BuiltEntry, outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "route": one.route.name,
        "method": one.route.method,
        "label": one.candidate.label,
        "candidate": dict(one.candidate.parameters),
        "status": outcome.status,
        "detail": outcome.detail[:1000],
        "facts": dict(outcome.facts),
        "evidence": asdict(outcome.evidence) if outcome.timing is not None else None,
    }
    if isinstance(one.built, BuiltArtifact) and outcome.ok:
        files = {name: (Path(one.built.folder) / name).read_bytes() for name in one.built.manifest.files}
        if sum(map(len, files.values())) <= MOST_FILE_BYTES:
            entry["manifest"] = one.built.manifest.to_json()
            entry["files"] = {name: base64.b64encode(content).decode() for name, content in files.items()}
            entry["schedule"], entry["source"] = one.built.schedule, one.built.source
    return entry
