"""Published bests are timed again: the default built anew, both loaded into fresh processes, in one race.

By ``manage.py retime_bests`` for a service, by the contest for its own catalogue.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from django.utils import timezone

from catalog.errors import StoreError, UnvouchedArtifact
from catalog.models import SHARED, Best, Implementation, Purpose
from catalog.steps import reason_of
from opatlas.identity import Operator, Setting, Target
from tuning.explore.results import artifact_from_catalogue
from tuning.measure.laboratory import SUBMITTED, Bench, Laboratory, Limits
from tuning.queue.clock import DATABASE_GONE
from tuning.retiming.holding import Retimed
from tuning.routes import registry
from tuning.routes.base import BuiltArtifact, Candidate, Route

logger = logging.getLogger(__name__)

LIMITS = Limits(run_s=60.0)


class CannotBeTimed(Exception):
    """One sentence that says why."""


class Served(Protocol):
    """What a catalogue serves: an ``Implementation``, or what another catalogue has."""

    @property
    def route(self) -> str: ...
    @property
    def candidate(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Stand:
    """An operator on the bench, with who stands there as the default."""

    bench: Bench
    route: Route
    candidate: Candidate

    def is_default(self, one: Served) -> bool:
        """Whether it is the very call that stands as the default: its ratio is 1, whatever a race says."""
        return one.route == self.candidate.route and one.candidate == dict(self.candidate.parameters)


class Retimer:
    """Takes implementations out of the catalogue and times them; owns no laboratory, but uses one."""

    def __init__(self, laboratory: Laboratory, scratch: Path) -> None:
        self.laboratory = laboratory
        self.scratch = scratch
        self.target: Target = laboratory.target

    def retime(self, best: Best) -> Retimed:
        """The best once more; with a reason in place of times where that cannot be."""
        known: dict[str, Any] = {
            "key": best.operator.key,
            "operator": best.operator.summary,
            "route": best.route,
            "label": best.label,
            "age_s": round((timezone.now() - best.measured_at).total_seconds(), 1),
            "ratio": best.ratio_to_default,
            "low": best.ratio_low,
            "high": best.ratio_high,
        }
        try:
            return Retimed(**known, **self._again(best))
        except CannotBeTimed as why:
            return Retimed(**known, reason=str(why))
        except DATABASE_GONE:
            raise
        except Exception as error:
            logger.exception("A best could not be timed again: %s", best)
            return Retimed(**known, reason=reason_of(error))

    def _again(self, best: Best) -> dict[str, Any]:
        operator = Operator.from_json(best.operator.graph)
        setting = Setting.from_json(best.setting.description)
        artifact = self.fetched(best.implementation)
        with self.stand(operator, setting) as stand:
            if stand.is_default(best.implementation):
                raise CannotBeTimed("it is the default itself")
            (outcome,) = stand.bench.line_up([artifact], limits=LIMITS).outcomes
        if outcome.timing is None or not outcome.ok:
            raise CannotBeTimed(f"{outcome.status}: {outcome.detail}")
        again = outcome.timing.ratios
        return {"again": again.ratio, "again_low": again.low, "again_high": again.high}

    @contextmanager
    def stand(self, operator: Operator, setting: Setting) -> Iterator[Stand]:
        """The operator's default on a bench, checked and timed alone; raises :class:`CannotBeTimed`."""
        choice = registry.default_candidate(operator, self.target, setting)
        if choice is None:
            raise CannotBeTimed("it has no default here")
        route, candidate = choice
        default = self.built(route, candidate, operator, setting)
        if default is None:
            raise CannotBeTimed("its default cannot be built")
        with self.laboratory.bench(operator, setting, default) as bench:
            if not bench.default.ok or bench.default.timing is None:
                raise CannotBeTimed(f"its default: {bench.default.status} ({bench.default.detail})")
            yield Stand(bench, route, candidate)

    def built(
        self, route: Route, candidate: Candidate, operator: Operator, setting: Setting
    ) -> BuiltArtifact | None:
        built = self.laboratory.build(route, operator, setting, candidate, self.folder(candidate.route))
        return built if isinstance(built, BuiltArtifact) else None

    def fetched(self, implementation: Implementation) -> BuiltArtifact:
        """From the store, verified; raises :class:`CannotBeTimed`, also for what this sandbox may not run."""
        self.check_may_run(implementation.route)
        try:
            return artifact_from_catalogue(implementation.artifact, self.folder(str(implementation.pk)))
        except (StoreError, UnvouchedArtifact) as error:
            raise CannotBeTimed(str(error)) from error

    def check_may_run(self, route: str) -> None:
        """Raises :class:`CannotBeTimed` for submitted code outside of a tight sandbox."""
        if unsafe := self.laboratory.tier.why_not_for(route in SUBMITTED, own=False):
            raise CannotBeTimed(unsafe)

    def folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))


@contextmanager
def retimer(home: Path, target: Target, beside: Iterable[Route] = ()) -> Iterator[Retimer]:
    """With a warm laboratory of its own below ``home``, for all routes and those ``beside``."""
    with (
        tempfile.TemporaryDirectory(prefix="opatlas-retiming-") as scratch,
        Laboratory(home, target) as laboratory,
    ):
        routes = (*registry.ROUTES, *beside)
        laboratory.warm(tuple(route for route in routes if route.available(target)))
        yield Retimer(laboratory, Path(scratch))


def published_bests(target: Target, before: datetime, sample: int | None, seed: str = "") -> list[Best]:
    """Winners that were measured on this target before then, but for those whose evidence is that of the
    default itself; of ``sample`` ones the same for the same seed. The oldest first."""
    rows = Best.objects.filter(rank=0, scope=SHARED, target__key=target.key, measured_at__lte=before).exclude(
        measurement__purpose=Purpose.DEFAULT
    )
    drawn = sorted(
        rows.values_list("pk", "operator__key", "setting__key"),
        key=lambda row: hashlib.sha256(f"{seed} {row[1]} {row[2]}".encode()).digest(),
    )[:sample]
    related = ("operator", "setting", "implementation__artifact")
    chosen = Best.objects.filter(pk__in=[pk for pk, _, _ in drawn]).select_related(*related)
    return list(chosen.order_by("measured_at", "pk"))
