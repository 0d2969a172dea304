"""The contest's second half: everything that may matter is measured again, in fresh processes.

For each operator two line-ups, each on fresh inputs. The first has what a lookup gets, the baselines, each
route's best, and the candidates whose evidence came near. The second has what a lookup gets and the fastest
of the first, where they came near it: from it comes the regret, so that nobody is called the oracle's choice
by luck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contest.rivals import RivalChoice, Rivals
from bench.contest.sample import Entrant
from bench.contest.summary import REGRESSION, ContestRow
from catalog.models import Best, Implementation, Measurement
from opatlas.evidence import Ratios
from opatlas.identity import Setting, default_setting, describe, detect_target
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome
from tuning.retiming.retiming import LIMITS, CannotBeTimed, Retimer, Stand, retimer
from tuning.routes import registry
from tuning.routes.base import Budget, BuiltArtifact, Route
from tuning.routes.compiler.inductor.baseline import TorchCompile

NEAR = 0.75  # of the choice's ratio: below it, a candidate's evidence is not asked again
MOST = 11  # of the catalogue in one line-up, each route's best first
FINALISTS = 2
LED = 0.95  # of the choice's ratio: where nobody comes nearer in the first line-up, there is no second

EAGER, ONNXRUNTIME, MAX_AUTOTUNE = "eager", "onnxruntime", "max_autotune"
RIVAL = "rival"
DEFAULTS_OWN = Ratios(1.0, 1.0, 1.0)


@dataclass
class Field:
    """Who is in a line-up: name → artifact. The names of implementations are their numbers."""

    artifacts: dict[str, BuiltArtifact] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    stand_for_default: tuple[str, ...] = ()  # their ratio is 1: the default's process is their process

    def run(self, bench: Bench) -> None:
        measured = bench.line_up(list(self.artifacts.values()), limits=LIMITS).outcomes
        self.outcomes = dict(zip(self.artifacts, measured, strict=True))

    def ratios(self, name: str) -> Ratios | None:
        if name in self.stand_for_default:
            return DEFAULTS_OWN
        timing = self.outcomes[name].timing if name in self.outcomes else None
        return timing.ratios if timing else None

    def ratio(self, name: str) -> float:
        """0 for who was not timed."""
        ratios = self.ratios(name)
        return ratios.ratio if ratios else 0.0


class Remeasurement:
    """Measures operators again, beside the baselines and what a rival serves."""

    def __init__(self, retimer: Retimer, baselines: Mapping[str, Route], rivals: Rivals | None) -> None:
        self.retimer = retimer
        self.baselines = baselines
        self.rivals = rivals
        self.setting: Setting = default_setting(retimer.target)

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
        if not bests:
            return ContestRow(**known, reason="nothing is served for it")
        try:
            with self.retimer.stand(operator, self.setting) as stand:
                assert stand.bench.default.timing is not None
                known["default_us"] = stand.bench.default.timing.median_us
                known["default_route"] = stand.route.name
                found = self._line_ups(stand, entrant, bests)
        except CannotBeTimed as why:
            return ContestRow(**known, reason=str(why))
        return ContestRow(**known, **found, took_s=time.monotonic() - began)

    def _line_ups(self, stand: Stand, entrant: Entrant, bests: Sequence[Best]) -> dict[str, Any]:
        chosen = bests[0]
        own = str(chosen.implementation_id)
        rival, no_rival = self._rival(entrant)
        everybody = self._everybody(stand, entrant, bests)
        if rival is not None:
            everybody.artifacts[RIVAL] = rival.artifact
        defaults = {own: chosen.implementation, RIVAL: rival}
        everybody.stand_for_default = tuple(
            name for name, one in defaults.items() if one is not None and stand.is_default(one)
        )
        everybody.run(stand.bench)
        ratios = everybody.ratios(own)
        if ratios is None:
            outcome = everybody.outcomes[own]
            raise CannotBeTimed(f"the choice does not run again: {outcome.status} ({outcome.detail})")
        final = self._final(stand.bench, everybody, own)
        again = final.ratios(own) or ratios
        best_name = max(final.artifacts, key=final.ratio)
        labels = {str(one.pk): f"{one.route}: {one.label}" for one in self._all(chosen)}
        return {
            "route": chosen.route,
            "method": chosen.method,
            "label": chosen.label,
            "published_low": chosen.ratio_low,
            "published_high": chosen.ratio_high,
            "chosen": ratios.ratio,
            "chosen_low": ratios.low,
            "chosen_high": ratios.high,
            "chosen_again": again.ratio,
            "again_low": again.low,
            "again_high": again.high,
            "oracle": final.ratio(best_name) or ratios.ratio,
            "oracle_label": labels.get(best_name, best_name),
            "baselines": {
                name: everybody.ratio(name) or 1.0 for name in self.baselines if name in everybody.artifacts
            },
            "routes": {
                best.route: found for best in bests if (found := everybody.ratio(str(best.implementation_id)))
            },
            "candidates": len(everybody.artifacts),
            **_rivals_figures(rival, everybody, final),
            "failed": no_rival
            | {
                labels.get(name, name): str(outcome.status)
                for name, outcome in everybody.outcomes.items()
                if outcome.timing is None
            },
        }

    def _everybody(self, stand: Stand, entrant: Entrant, bests: Sequence[Best]) -> Field:
        fetched = self.retimer.fetched
        everybody = Field({str(best.implementation_id): fetched(best.implementation) for best in bests})
        for implementation in self._near(bests[0]):
            if len(everybody.artifacts) < MOST and str(implementation.pk) not in everybody.artifacts:
                everybody.artifacts[str(implementation.pk)] = fetched(implementation)
        for name, route in self.baselines.items():
            if route.name != stand.route.name:
                everybody.artifacts.update(self._baseline(name, route, entrant))
        return everybody

    def _rival(self, entrant: Entrant) -> tuple[RivalChoice | None, dict[str, str]]:
        """What the rival serves; or why it takes no part, though it serves something."""
        if self.rivals is None:
            return None, {}
        try:
            choice = self.rivals.choice(entrant.operator.key, self.setting.key, self.retimer.folder(RIVAL))
            if choice is not None:
                self.retimer.check_may_run(choice.route)
        except CannotBeTimed as why:
            return None, {RIVAL: str(why)}
        return choice, {}

    def _final(self, bench: Bench, everybody: Field, own: str) -> Field:
        """The choice against the fastest few of the catalogue's candidates, and the rival's. It runs alone
        where the first line-up would make it a regression: that takes two."""
        catalogued = [name for name in everybody.artifacts if name not in self.baselines and name != RIVAL]
        order = sorted(catalogued, key=lambda name: -everybody.ratio(name))
        needed = LED * everybody.ratio(own)
        others = [name for name in order if name != own and everybody.ratio(name) >= needed][:FINALISTS]
        if everybody.ratio(RIVAL):
            others.append(RIVAL)
        names = dict.fromkeys([own, *others])
        final = Field({name: everybody.artifacts[name] for name in names})
        final.stand_for_default = everybody.stand_for_default
        first = everybody.ratios(own)
        if others or (first is not None and first.high < REGRESSION):
            final.run(bench)
        if final.ratios(own) is None:
            final = Field(final.artifacts, {name: everybody.outcomes[name] for name in names})
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
        target = self.retimer.target
        if not route.available(target) or not route.supports(entrant.operator, self.setting):
            return {}
        budget = Budget(seconds=1.0, candidates=1)
        for candidate in route.candidates(entrant.operator, target, self.setting, budget):
            artifact = self.retimer.built(route, candidate, entrant.operator, self.setting)
            return {name: artifact} if artifact else {}
        return {}


def _rivals_figures(rival: RivalChoice | None, everybody: Field, final: Field) -> dict[str, Any]:
    first = everybody.ratios(RIVAL)
    if rival is None or first is None:
        return {}
    again = final.ratios(RIVAL) or first
    return {
        "rival": first.ratio,
        "rival_high": first.high,
        "rival_again": again.ratio,
        "rival_again_high": again.high,
        "rival_label": f"{rival.route}: {rival.label}",
    }


@contextmanager
def remeasurement(home: Path, rival: Path | None, *, max_autotune: bool) -> Iterator[Remeasurement]:
    """With a warm laboratory and the baselines' routes; ``rival`` is another contest's home."""
    baselines: dict[str, Route] = {
        EAGER: registry.route("eager"),
        ONNXRUNTIME: registry.route("onnxruntime"),
    }
    if max_autotune:
        baselines[MAX_AUTOTUNE] = TorchCompile()
    with retimer(home, detect_target(), baselines.values()) as course:
        yield Remeasurement(course, baselines, Rivals(rival) if rival else None)
