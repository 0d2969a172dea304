"""A worker's tools for exploring, and the state of one slice."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from django.db.models import Q
from django.utils import timezone

from opatlas.identity import Operator, Setting, Target
from tuning.conf import conf
from tuning.explore.elsewhere import winners_of_neighbours
from tuning.explore.knowledge import taught
from tuning.explore.results import Judged, Tried, keep_trial
from tuning.measure.laboratory import SUBMITTED, Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.measure.provenance import candidate_digest
from tuning.models import Exploration, Trial, TrialQuerySet
from tuning.queue.claims import EVERYTHING, Claim
from tuning.queue.held import HeldRow
from tuning.queue.rounds import routes_of
from tuning.routes.base import BuiltArtifact, Candidate, No, Route
from tuning.routes.manual.own import is_own
from tuning.routes.manual.submitted import SubmittedRoute

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workshop:
    """A worker's tools. ``check`` raises StaleLease or Stopping when a claim must not go on."""

    laboratory: Laboratory
    routes: tuple[Route, ...]
    default_candidate: Callable[[Operator, Target, Setting], tuple[Route, Candidate] | None]
    target: Target
    home: Path  # scratch and tuning state lie below it
    worker: str
    check: Callable[[HeldRow[Any]], None]
    reach: Callable[[], Q] = lambda: EVERYTHING  # what this worker may claim
    works: Callable[[Route], str] = lambda _: ""  # why a route that is here does not work in this sandbox
    proved: Callable[[Route], str] = lambda _: ""  # the same as far as it is known; nothing is tried

    @property
    def limits(self) -> Limits:
        return Limits(build_s=conf().build_s, run_s=conf().run_s, memory_bytes=conf().memory_mib << 20)

    def known_default(
        self, trials: TrialQuerySet, operator: Operator, setting: Setting
    ) -> tuple[Route, Candidate] | None:
        """The default timed last among these trials, else what a user would have."""
        first = trials.of_the_default().first()
        for route in self.routes:
            if first is not None and route.name == first.route:
                return route, Candidate(route.name, first.candidate, first.label)
        return self.default_candidate(operator, self.target, setting)

    def available(self, route: Route) -> str:
        """Why the route is not available; empty if it is on this machine and works in this worker's sandbox.
        The first question about a route may take the seconds of a tiny build."""
        answer = route.available(self.target)
        return answer.reason if isinstance(answer, No) else self.works(route)

    def why_unsafe(self, route: str, source: str = "") -> str:
        """Why this worker's sandbox is too weak for a route's code; empty if it is not. ``source``: the exact
        text that is compiled. Compiled code from the catalogue has none."""
        return self.laboratory.tier.why_not_for(route in SUBMITTED, is_own(source))

    def safe(self, route: Route) -> Route:
        """A route with those of its kernels that may be built here; the route itself if it has none."""
        if not isinstance(route, SubmittedRoute):
            return route
        return route.with_kernels(
            kernel for kernel in route.kernels if not self.why_unsafe(route.name, kernel.source)
        )


@dataclass
class ClaimedSlice:
    """One claimed exploration in work, with the means to try candidates and keep the results."""

    workshop: Workshop
    claim: Claim
    row: Exploration
    workdir: Path
    _builds: int = field(default=0)

    @cached_property
    def operator(self) -> Operator:
        return Operator.from_json(self.row.operator.graph)

    @cached_property
    def setting(self) -> Setting:
        return Setting.from_json(self.row.setting.description)

    @cached_property
    def tried(self) -> set[str]:
        """Candidates (and routes without any, as an empty one) that this round has tried before and skips.
        What a noisy host prevented is tried a second time."""
        return {digest for digest, statuses in self.history.items() if statuses != [Status.NOISY]}

    @cached_property
    def default_route(self) -> Route | None:
        """The route of the default for every ratio here: the one with the latest first result."""
        found = self.known_default()
        return found[0] if found else None

    def known_default(self) -> tuple[Route, Candidate] | None:
        """The default of the latest first result (a further round has none of its own)."""
        return self.workshop.known_default(self.row.trials.all(), self.operator, self.setting)

    @cached_property
    def favourites(self) -> list[Candidate]:
        """Winners of targets that differ in sizes alone, which jobs here were given unmeasured."""
        return winners_of_neighbours(self.row)

    @property
    def history(self) -> dict[str, list[str]]:
        """Candidate → statuses of its trials in this round and stage."""
        seen = Trial.objects.filter(exploration=self.row, round=self.row.round, stage=self.row.stage)
        statuses: dict[str, list[str]] = {}
        for route, candidate, status in seen.values_list("route", "candidate", "status").order_by("pk"):
            statuses.setdefault(candidate_digest(route, candidate), []).append(status)
        return statuses

    @cached_property
    def contested(self) -> list[Route]:
        """The routes of this round: all, or those that a further round was asked for, with what the database
        has for them."""
        only = routes_of(self.row)
        routes = [route for route in self.workshop.routes if not only or route.name in only]
        return [self.workshop.safe(taught(route, self.row.operator)) for route in routes]

    def doing(self, what: str, **values: object) -> None:
        """Note the next action, for people and for the error if the worker dies. Raises if it must not go
        on."""
        self.workshop.check(self.claim)
        self.claim.update(doing=what[:200], updated_at=timezone.now(), **values)

    def supports(self, route: Route) -> str:
        """Why the operator is not possible; empty if the route is here and can express it."""
        # Of what was taught (``contested``) only our own is left where the sandbox is weak.
        unsafe = "" if getattr(route, "kernels", ()) else self.workshop.why_unsafe(route.name)
        if reason := self.workshop.available(route) or unsafe:
            return f"Not available: {reason}"
        answer = route.supports(self.operator, self.setting)
        return answer.reason if isinstance(answer, No) else ""

    def build(self, route: Route, candidate: Candidate) -> BuiltArtifact | Outcome:
        return self.workshop.laboratory.build(
            route, self.operator, self.setting, candidate, self._new_folder(), self.workshop.limits
        )

    def build_all(self, candidates: Sequence[tuple[Route, Candidate]]) -> list[BuiltArtifact | Outcome]:
        """Build several in parallel and return them in order; a worker's memory and cores bound how many."""
        jobs = [(route, candidate, self._new_folder()) for route, candidate in candidates]
        return self.workshop.laboratory.build_all(self.operator, self.setting, jobs, self.workshop.limits)

    def build_each(
        self, candidates: Sequence[tuple[Route, Candidate]]
    ) -> Generator[tuple[int, BuiltArtifact | Outcome], None, None]:
        """The same, each with its number as soon as it is built; for ``Bench.heat``, which holds the lock."""
        jobs = [(route, candidate, self._new_folder()) for route, candidate in candidates]
        return self.workshop.laboratory.build_each(self.operator, self.setting, jobs, self.workshop.limits)

    def _new_folder(self) -> Path:
        self._builds += 1
        folder = self.workdir / f"{self._builds:03d}"
        folder.mkdir()
        return folder

    def bench(self, default: BuiltArtifact) -> AbstractContextManager[Bench]:
        return self.workshop.laboratory.bench(self.operator, self.setting, default)

    def judged(self, tried: Tried, outcome: Outcome, artifact: BuiltArtifact | None = None) -> Judged:
        """The record of a try. Raises if the worker stops: what that kills is no failure."""
        self.workshop.check(self.claim)
        if outcome.build_s is None and artifact is not None:
            outcome = replace(outcome, build_s=tried.build_s)
        took_s = time.monotonic() - tried.began if tried.took_s is None else tried.took_s
        return Judged(
            tried, outcome, self.claim, self.row, self.workshop.worker, took_s, artifact, self.default_route
        )

    def keep(self, attempt: Tried, outcome: Outcome) -> None:
        """Keep a candidate without a result."""
        keep_trial(self.judged(attempt, outcome))

    def keep_absent(self, route: Route, reason: str) -> None:
        """Keep that a route has nothing for this operator."""
        self.keep(Tried(route, None), Outcome(Status.UNSUPPORTED, reason))
