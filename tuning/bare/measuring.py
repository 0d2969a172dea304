"""One problem measured: candidates of several routes in a race, the best of each in a final; one line of it.

A problem is measured in two passes, which have a line each. The quick one, over all problems first, has what
needs no device to be built. The thorough one has what is timed on the device while it is built,
``torch.compile`` beside it, and the winner of the quick one once more, in fresh processes.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.identity.cost import describe
from opatlas.noise import SITTINGS
from tuning.bare.ceilings import Ceilings
from tuning.bare.clock import SliceClock
from tuning.bare.lines import CLOCK, NOT_YET, best_entry
from tuning.bare.prebuilt import Prebuilt
from tuning.bare.problems import Problem
from tuning.measure.device.driver_versions import environment_of
from tuning.measure.laboratory import LEAST_DEVICE_BUILD_S, SUBMITTED, Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import Budget, BuiltArtifact, Candidate, Route

FORMAT = "opatlas-measurements 1"
CANDIDATES_S = 30.0
MOST_FILE_BYTES = 1 << 20
BASELINE_S = 120.0
"""``torch.compile`` compiles in the process that is timed, and times templates meanwhile."""
LEAST_BASELINE_S = 15.0


@dataclass(frozen=True)
class Pass:
    """How much of a slice one problem may take, and how much of that its races take; how many candidates of
    each route there are, and how many of all; with how little left of the slice no problem is begun.
    ``on_device``: of the routes that time something on the device while they build, and of ``torch.compile``;
    else of all others."""

    name: str
    on_device: bool
    problem_s: float
    races_s: float
    least_s: float
    each: int
    all: int
    sittings: int


QUICK = Pass("quick", False, problem_s=20, races_s=8, least_s=12, each=8, all=12, sittings=1)
THOROUGH = Pass("thorough", True, problem_s=330, races_s=30, least_s=50, each=2, all=4, sittings=SITTINGS)

PASSES: Mapping[str, Pass] = {one.name: one for one in (QUICK, THOROUGH)}

DefaultCandidate = Callable[[Operator, Target, Setting], tuple[Route, Candidate] | None]


@dataclass(frozen=True)
class ProblemTools:
    """With what problems are measured. ``prebuilt``: what need not be built here any more. ``ceilings``: what
    the device was measured to do at most. ``rehearsed``: the device is a simulated one, and no line is of
    anything that there is."""

    laboratory: Laboratory
    routes: Sequence[Route]
    default_candidate: DefaultCandidate
    setting: Setting = field(default_factory=Setting)
    baseline: Route | None = None
    prebuilt: Prebuilt | None = None
    ceilings: Ceilings | None = None
    rehearsed: bool = False


@dataclass(frozen=True)
class BuiltEntry:
    """A candidate, built or not."""

    route: Route
    candidate: Candidate
    built: BuiltArtifact | Outcome


def measure(
    tools: ProblemTools,
    problem: Problem,
    clock: SliceClock,
    passing: Pass = QUICK,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A line, whatever comes of it; ``known`` is that of the pass before."""
    laboratory, setting = tools.laboratory, tools.setting
    line: dict[str, Any] = {"format": FORMAT, "problem": problem.name, "pass": passing.name}
    line |= {"setting": setting.to_json(), "target": laboratory.target.to_json(), "clock": CLOCK}
    if tools.rehearsed:
        line["rehearsed"] = True
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
    given = tools.default_candidate(operator, laboratory.target, setting)
    if given is None:
        return {**line, "uncovered": "no default can run it"}
    with TemporaryDirectory(prefix="opatlas-bare-", dir=laboratory.home) as folder:
        own = clock.of_it(passing.problem_s)
        return {**line, **_Measured(tools, given, operator, Path(folder), own, passing, known).line()}


class _Measured:
    def __init__(
        self,
        tools: ProblemTools,
        default: tuple[Route, Candidate],
        operator: Operator,
        folder: Path,
        clock: SliceClock,
        passing: Pass,
        known: Mapping[str, Any] | None,
    ) -> None:
        self.tools, self.laboratory = tools, tools.laboratory
        self.setting, self.default, self.operator = tools.setting, default, operator
        self.folder, self.clock, self.passing, self.known = folder, clock, passing, known
        self.began = time.monotonic()
        self.prebuilt = 0

    def line(self) -> dict[str, Any]:
        route, candidate = self.default
        built = self.laboratory.build(route, self.operator, self.setting, candidate, self.folder / "default")
        if isinstance(built, Outcome):
            return {"uncovered": f"the default does not build: {built.detail}"}
        with self.laboratory.bench(self.operator, self.setting, built) as bench:
            if not bench.default.ok:
                return {"uncovered": f"the default does not run: {bench.default.detail}"[:500]}
            first_s = time.monotonic() - self.began
            named, refused = self._named()
            entrants = self._built(named)
            outcomes = self._raced(bench, entrants)
            entries = [BuiltEntry(route, candidate, built), *entrants]
            timed = [bench.default, *outcomes]
            best_s = time.monotonic() - self.began
            against = self._against(bench)
        described, ceilings = describe(self.operator), self.tools.ceilings
        return {
            "default": {"route": route.name, "versions": self._versions(route)},
            "entries": [
                {**_entry(one, outcome, is_default=number == 0), "versions": self._versions(one.route)}
                for number, (one, outcome) in enumerate(zip(entries, timed, strict=True))
            ],
            "again": self._again(timed),
            "max_autotune": against,
            "refused": refused,
            "prebuilt": self.prebuilt,
            "first_s": round(first_s, 3),
            "best_s": round(best_s, 3),
            "flops": described.flops,
            "bytes_moved": described.bytes_moved,
            "ceiling": ceilings.of(self.operator, self.setting) if ceilings else None,
        }

    def _versions(self, route: Route) -> dict[str, str]:
        return environment_of(route, self.laboratory.target.kind)

    def _named(self) -> tuple[list[tuple[Route, Candidate]], dict[str, str]]:
        """The winner of the pass before, and candidates of this one's routes: the first of each route before
        the second of any; and why routes have none."""
        target, setting = self.laboratory.target, self.setting
        of_each: list[list[tuple[Route, Candidate]]] = []
        refused: dict[str, str] = {}
        for route in self.tools.routes:
            if self.laboratory.times_on_device(route) != self.passing.on_device:
                continue
            for answer in (route.available(target), route.supports(self.operator, setting)):
                if not answer:
                    refused.setdefault(route.name, str(getattr(answer, "reason", "")))
            if route.name in refused:
                continue
            budget = Budget(seconds=CANDIDATES_S, candidates=self.passing.each)
            found = itertools.islice(
                route.candidates(self.operator, target, setting, budget), self.passing.each
            )
            of_each.append([(route, one) for one in found if (route, one) != self.default])
        turns = itertools.chain.from_iterable(itertools.zip_longest(*of_each))
        named = [one for one in turns if one is not None]
        return [*self._known_winner(), *named][: self.passing.all], refused

    def _known_winner(self) -> list[tuple[Route, Candidate]]:
        """Who won the pass before, where that was not the default."""
        if self.known is None or (number := best_entry(self.known["entries"])) == 0:
            return []
        entry = self.known["entries"][number]
        candidate = Candidate(entry["route"], entry["candidate"], entry["label"])
        return [(one, candidate) for one in self.tools.routes if one.name == entry["route"]]

    def _built(self, named: Sequence[tuple[Route, Candidate]]) -> list[BuiltEntry]:
        """Each, as far as there is time to build it: what was built at home needs none, other builds run side
        by side, and what times something on the device runs alone, after all others, in an equal share of
        what is left; the one without options, which takes the least, first."""
        made: dict[int, BuiltArtifact | Outcome] = {}
        folders = [self.folder / f"{route.name}-{number}" for number, (route, _) in enumerate(named)]
        beside: list[int] = []
        alone: list[int] = []
        for number, (route, candidate) in enumerate(named):
            if (built := self._prebuilt(route, candidate, folders[number])) is not None:
                made[number] = built
                self.prebuilt += 1
            else:
                (alone if self.laboratory.times_on_device(route) else beside).append(number)
        alone.sort(key=lambda number: bool(named[number][1].parameters))
        for number, numbers in enumerate([beside, *([one] for one in alone)]):
            jobs = [(*named[one], folders[one]) for one in numbers]
            limits = Limits(ends=self._ends(len(alone) + 1 - number))
            built_now = self.laboratory.build_all(self.operator, self.setting, jobs, limits)
            made |= dict(zip(numbers, built_now, strict=True))
        return [BuiltEntry(*one, made[number]) for number, one in enumerate(named)]

    def _ends(self, shares: int) -> float:
        """When a build must have ended that many more, and the races, have to follow."""
        left_s = self.clock.left_s - self.passing.races_s
        return time.monotonic() + max(left_s / shares, min(left_s, 2 * LEAST_DEVICE_BUILD_S))

    def _prebuilt(self, route: Route, candidate: Candidate, folder: Path) -> BuiltArtifact | None:
        if self.tools.prebuilt is None or route.builds_in_process:
            return None
        about = (route, self.operator, self.laboratory.target, self.setting, candidate)
        return self.tools.prebuilt.get(*about, folder)

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
        final = bench.line_up([built[n] for n in bests.values()], sittings=self.passing.sittings)
        for number, outcome in zip(bests.values(), final.outcomes, strict=True):
            outcomes[number] = replace(outcome, facts={**outcome.facts, "final": True})
        return outcomes

    def _again(self, timed: Sequence[Outcome]) -> dict[str, Any] | None:
        """The ratio of the winner of the pass before, who ran here in fresh processes."""
        if not self._known_winner():
            return None
        outcome = timed[1]
        if outcome.timing is None:
            return {"entry": 1, "status": outcome.status, "detail": outcome.detail}
        return {"entry": 1, "status": outcome.status, **asdict(outcome.timing.ratios)}

    def _against(self, bench: Bench) -> dict[str, Any]:
        """The ratio of what users have beside the default (``torch.compile``): it takes part in no race and
        is published nowhere; why there is none, where there is none."""
        if self.tools.baseline is None or not self.passing.on_device:
            return {"why_not": NOT_YET}
        route, target = self.tools.baseline, self.laboratory.target
        for answer in (route.available(target), route.supports(self.operator, self.setting)):
            if not answer:
                return {"why_not": str(getattr(answer, "reason", ""))}
        budget = Budget(seconds=CANDIDATES_S, candidates=1)
        candidate = next(iter(route.candidates(self.operator, target, self.setting, budget)), None)
        if candidate is None:
            return {"why_not": f"{route.name} has no candidate"}
        if (left_s := self.clock.left_s) < LEAST_BASELINE_S:
            return {"why_not": f"not begun: {left_s:.0f} s are left for it"}
        built = self.laboratory.build(route, self.operator, self.setting, candidate, self.folder / "baseline")
        if isinstance(built, Outcome):
            return {"why_not": built.detail[:500]}
        (outcome,) = bench.line_up([built], limits=Limits(run_s=min(BASELINE_S, left_s)), sittings=1).outcomes
        if not outcome.ok or outcome.timing is None:
            return {"why_not": f"{outcome.status}: {outcome.detail}"[:500]}
        return {"route": route.name, "label": candidate.label, **asdict(outcome.timing.ratios)}


def _entry(one: BuiltEntry, outcome: Outcome, *, is_default: bool) -> dict[str, Any]:
    """With its artifact, where it could be published: those that were dropped on the way would fill what
    travels."""
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
    if isinstance(one.built, BuiltArtifact) and outcome.ok and (is_default or outcome.facts.get("final")):
        files = {name: (Path(one.built.folder) / name).read_bytes() for name in one.built.manifest.files}
        if sum(map(len, files.values())) <= MOST_FILE_BYTES:
            entry["manifest"] = one.built.manifest.to_json()
            entry["files"] = {name: base64.b64encode(content).decode() for name, content in files.items()}
            entry["schedule"], entry["source"] = one.built.schedule, one.built.source
    return entry
