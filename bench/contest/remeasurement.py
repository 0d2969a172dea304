"""The contest's second half: everything that may matter is measured again, in fresh processes.

For each operator two line-ups, each on fresh inputs. The first has what a lookup gets, the baselines, each
route's best, and the candidates whose evidence came near. The second has what a lookup gets and the fastest
of the first, where they came near it: from it comes the regret, so that nobody is called the oracle's choice
by luck.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contest.sample import Entrant
from bench.contest.summary import ContestRow
from catalog.models import Best, Implementation, Measurement
from opatlas.identity import Setting, Target, default_setting, describe, detect_target
from tuning.explore.results import artifact_from_catalogue
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.lineup import line_up
from tuning.measure.outcome import Outcome
from tuning.routes import registry
from tuning.routes.base import Budget, BuiltArtifact, Candidate, Route
from tuning.routes.compiler.inductor.baseline import TorchCompile

NEAR = 0.75  # of the choice's ratio: below it, a candidate's evidence is not asked again
MOST = 11  # of the catalogue in one line-up, each route's best first
FINALISTS = 2
LED = 0.95  # of the choice's ratio: where nobody comes nearer in the first line-up, there is no second
LIMITS = Limits(run_s=60.0)  # torch.compile compiles within it

EAGER, ONNXRUNTIME, MAX_AUTOTUNE = "eager", "onnxruntime", "max_autotune"


@dataclass
class Field:
    """Who is in a line-up: name → artifact. The names of implementations are their numbers."""

    artifacts: dict[str, BuiltArtifact] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    stands_for_default: str = ""  # its ratio is 1: the default's process is its process

    def run(self, bench: Bench) -> None:
        measured = line_up(bench, list(self.artifacts.values()), limits=LIMITS)
        self.outcomes = dict(zip(self.artifacts, measured, strict=True))

    def ratio(self, name: str) -> float | None:
        if name == self.stands_for_default:
            return 1.0
        timing = self.outcomes[name].timing if name in self.outcomes else None
        return timing.ratio_to_default if timing else None


class Remeasurement:
    """Measures operators again; owns a laboratory of its own."""

    def __init__(self, laboratory: Laboratory, baselines: Mapping[str, Route], scratch: Path) -> None:
        self.laboratory = laboratory
        self.baselines = baselines
        self.scratch = scratch
        self.target: Target = detect_target()
        self.setting: Setting = default_setting(self.target.cores)

    def row(self, entrant: Entrant) -> ContestRow:
        """The operator's figures; without an answer where nothing is served or can be measured."""
        began = time.monotonic()
        operator = entrant.operator
        known: dict[str, Any] = {
            "key": operator.key,
            "operator": describe(operator).summary,
            "example": entrant.example,
            "calls": entrant.calls,
            "halved": entrant.halved,
        }
        bests = list(
            Best.objects.filter(operator__key=operator.key, setting__key=self.setting.key)
            .select_related("implementation__artifact")
            .order_by("rank")
        )
        choice = registry.default_candidate(operator, self.target, self.setting)
        if not bests or choice is None:
            return ContestRow(**known, reason="nothing is served for it")
        default_route, candidate = choice
        default = self._built(default_route, candidate.parameters, operator, "default")
        if default is None:
            return ContestRow(**known, reason="its default cannot be built")
        with self.laboratory.bench(operator, self.setting, default) as bench:
            if not bench.default.ok or bench.default.timing is None:
                return ContestRow(
                    **known, reason=f"its default: {bench.default.status} ({bench.default.detail})"
                )
            known["default_us"] = bench.default.timing.median_us
            known["default_route"] = default_route.name
            served = bests[0].implementation
            is_default = served.route == candidate.route and served.candidate == dict(candidate.parameters)
            found = self._line_ups(bench, entrant, bests, default_route, is_default)
        return ContestRow(**known, **found, took_s=time.monotonic() - began)

    def _line_ups(
        self,
        bench: Bench,
        entrant: Entrant,
        bests: Sequence[Best],
        default_route: Route,
        is_default: bool,
    ) -> dict[str, Any]:
        chosen = bests[0]
        everybody = Field({str(best.implementation_id): self._fetched(best.implementation) for best in bests})
        for implementation in self._near(chosen):
            if len(everybody.artifacts) < MOST:
                everybody.artifacts.setdefault(str(implementation.pk), self._fetched(implementation))
        for name, route in self.baselines.items():
            if route.name != default_route.name:
                everybody.artifacts.update(self._baseline(name, route, entrant))
        everybody.run(bench)
        own = str(chosen.implementation_id)
        if is_default:
            everybody.stands_for_default = own
        ratio = everybody.ratio(own)
        if ratio is None:
            outcome = everybody.outcomes[own]
            return {"reason": f"the choice does not run again: {outcome.status} ({outcome.detail})"}
        final = self._final(bench, everybody, own)
        best_name = max(final.artifacts, key=lambda name: final.ratio(name) or 0.0)
        labels = {str(one.pk): f"{one.route}: {one.label}" for one in self._all(chosen)}
        return {
            "route": chosen.route,
            "method": chosen.method,
            "label": chosen.label,
            "chosen": ratio,
            "chosen_again": final.ratio(own) or ratio,
            "oracle": final.ratio(best_name) or ratio,
            "oracle_label": labels.get(best_name, best_name),
            "baselines": {
                name: everybody.ratio(name) or 1.0 for name in self.baselines if name in everybody.artifacts
            },
            "routes": {
                best.route: found
                for best in bests
                if (found := everybody.ratio(str(best.implementation_id))) is not None
            },
            "candidates": len(everybody.artifacts),
            "failed": {
                labels.get(name, name): str(outcome.status)
                for name, outcome in everybody.outcomes.items()
                if outcome.timing is None
            },
        }

    def _final(self, bench: Bench, everybody: Field, own: str) -> Field:
        """The choice against the fastest few of the catalogue's candidates."""
        catalogued = [name for name in everybody.artifacts if name not in self.baselines]
        order = sorted(catalogued, key=lambda name: -(everybody.ratio(name) or 0.0))
        needed = LED * (everybody.ratio(own) or 0.0)
        rivals = [name for name in order if name != own and (everybody.ratio(name) or 0.0) >= needed]
        names = dict.fromkeys([own, *rivals[:FINALISTS]])
        final = Field({name: everybody.artifacts[name] for name in names})
        final.stands_for_default = everybody.stands_for_default
        if len(final.artifacts) > 1:
            final.run(bench)
        if final.ratio(own) is None:
            final = Field(final.artifacts, {own: everybody.outcomes[own]})
        return final

    def _all(self, chosen: Best) -> list[Implementation]:
        place = {"operator": chosen.operator_id, "target": chosen.target_id, "setting": chosen.setting_id}
        return list(
            Implementation.objects.filter(**place, scope=chosen.scope, revoked_at=None).select_related(
                "artifact"
            )
        )

    def _near(self, chosen: Best) -> Iterator[Implementation]:
        """Every candidate whose evidence came near the choice's, the nearest first."""
        found = []
        for implementation in self._all(chosen):
            evidence = Measurement.objects.filter(implementation=implementation).order_by("-pk").first()
            if evidence and evidence.ratio_to_default >= NEAR * chosen.ratio_to_default:
                found.append((evidence.ratio_to_default, implementation.pk, implementation))
        for _, _, implementation in sorted(found, reverse=True):
            yield implementation

    def _baseline(self, name: str, route: Route, entrant: Entrant) -> dict[str, BuiltArtifact]:
        """What a user would have instead: the route's plain call."""
        if not route.available(self.target) or not route.supports(entrant.operator, self.setting):
            return {}
        budget = Budget(seconds=1.0, candidates=1)
        for candidate in route.candidates(entrant.operator, self.target, self.setting, budget):
            artifact = self._built(route, candidate.parameters, entrant.operator, name)
            return {name: artifact} if artifact else {}
        return {}

    def _built(
        self, route: Route, parameters: Mapping[str, Any], operator: Any, name: str
    ) -> BuiltArtifact | None:
        folder = self._folder(name)
        built = self.laboratory.build(
            route, operator, self.setting, Candidate(route.name, parameters, name), folder
        )
        return built if isinstance(built, BuiltArtifact) else None

    def _fetched(self, implementation: Implementation) -> BuiltArtifact:
        return artifact_from_catalogue(implementation.artifact, self._folder(str(implementation.pk)))

    def _folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))


@contextmanager
def remeasurement(home: Path) -> Iterator[Remeasurement]:
    """A warm laboratory with the baselines' routes."""
    baselines: dict[str, Route] = {
        EAGER: registry.route("eager"),
        ONNXRUNTIME: registry.route("onnxruntime"),
        MAX_AUTOTUNE: TorchCompile(),
    }
    routes = (*registry.ROUTES, *baselines.values())
    with (
        tempfile.TemporaryDirectory(prefix="opatlas-contest-") as scratch,
        Laboratory(home, detect_target()) as laboratory,
    ):
        laboratory.warm(tuple(route for route in routes if route.available(laboratory.target)))
        yield Remeasurement(laboratory, baselines, Path(scratch))
