"""Tuning: slices of search by the routes that can, each at most 20 s, resumable anywhere.

A slice is claimed in the order of its worth: calls × time × the gain that past slices let expect
(``worth.py``). After each, what came of it is kept, and the next one is weighed, or tuning ends with the
reason said.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models.functions import Now

from catalog.models import Best
from tuning.conf import conf
from tuning.explore import NothingWorked, default_of, try_candidates
from tuning.measure.outcome import Outcome
from tuning.models import Stage, State, TuningSlice
from tuning.records import keep_records, seed
from tuning.results import winner_of
from tuning.routes.base import Candidate, Learning, Route, Tunable
from tuning.shop import Attempt, Slice
from tuning.slices import about_next, estimator, gained
from tuning.worth import About, Expectation, hopeless_but_tried, not_worth, worth_us

MOST_MEASURED = 3  # candidates of one slice that are measured: the search has ranked them by its own timing
BUILDS_S = 5.0  # what building and measuring them adds to a slice's search, roughly


@dataclass(frozen=True)
class Plan:
    """The next slice: by which route, and what is expected of it."""

    route: Route
    about: About
    expected: Expectation
    best_us: float
    calls: float

    @property
    def worth(self) -> float:
        return worth_us(self.calls, self.best_us, self.expected.gain)

    @property
    def pointless(self) -> str:
        """Why it should not be done; empty where it should."""
        return not_worth(self.calls, self.best_us, self.expected, conf().tune_slice_s + BUILDS_S)


def tune(work: Slice) -> dict[str, Any]:
    """One slice: search, then build, check and time the best of what was found."""
    if not conf().tuning:
        return _done(work, "Tuning is switched off.")
    plan = plan_next(work)
    if plan is None:
        return _done(work, "No route on this worker can tune it.")
    route, began, before = plan.route, time.monotonic(), winner_of(work.row)
    work.doing(f"{route.name}: tuning, slice {work.row.tuning_slices + 1} of {work.row.max_tuning_slices}")
    folder = state_folder(work, route)
    seed(work, route, folder)
    found = work.shop.laboratory.tune(route, work.operator, work.setting, folder, conf().tune_slice_s)
    if isinstance(route, Learning):
        keep_records(work, route, list(route.learnt(folder)))
    if isinstance(found, Outcome):
        work.keep(
            Attempt(route, Candidate(route.name, {"slice": work.row.tuning_slices}, "search"), began=began),
            found,
        )
    else:
        _measure(work, route, found)
    _keep_slice(work, plan, before, time.monotonic() - began)
    slices = work.row.tuning_slices + 1
    if slices >= work.row.max_tuning_slices:
        return _done(work, "", slices)
    return {"tuning_slices": slices, "error": "", **next_slice(work, slices)}


def next_slice(work: Slice, slices: int = 0) -> dict[str, Any]:
    """The exploration's columns when another slice of tuning may follow ``slices`` of them: queued at its
    worth, or done, with the reason."""
    plan = plan_next(work)
    if plan is None:
        return {"state": State.DONE, "reason": "No route on this worker can tune it.", "finished_at": Now()}
    expected = {"expected_gain": round(plan.expected.gain, 6)}
    reason = plan.pointless
    if reason and not hopeless_but_tried(slices, work.row.operator.key):
        untuned = {} if slices else {"stage": Stage.CONTEST, "max_tuning_slices": 0}
        return {"state": State.DONE, "reason": reason[:500], "finished_at": Now(), **expected, **untuned}
    return {"state": State.QUEUED, "worth": plan.worth, **expected}


def plan_next(work: Slice) -> Plan | None:
    """The slice from which most is expected, of all routes that can tune it here; None where none can."""
    routes = [route for route in work.shop.routes if isinstance(route, Tunable) and not work.supports(route)]
    best = winner_of(work.row)
    if not routes or best is None:
        return None
    learnt = estimator()
    plans = []
    for route in routes:
        about = about_next(work.row, route.name, best.median_us)
        plans.append(Plan(route, about, learnt.expect(about), best.median_us, work.row.calls))
    return max(plans, key=lambda plan: plan.expected.gain)


def state_folder(work: Slice, route: Route) -> Path:
    """Where a route keeps its search's state, for the next slice on this worker."""
    place = f"{work.row.operator.key}-{work.row.setting.key}".replace(":", "_")
    folder = work.shop.home / "tuning" / place / route.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _keep_slice(work: Slice, plan: Plan, before: Best | None, seconds: float) -> None:
    after = winner_of(work.row)
    with work.claim.writing():
        TuningSlice.objects.create(
            exploration=work.row,
            route=plan.route.name,
            family=plan.about.family[:100],
            expected_gain=plan.expected.gain,
            gained=gained(before, after),
            before_us=before.median_us if before else None,
            after_us=after.median_us if after else None,
            seconds=seconds,
        )


def _done(work: Slice, reason: str, slices: int | None = None) -> dict[str, Any]:
    return {
        "state": State.DONE, "tuning_slices": work.row.tuning_slices if slices is None else slices,
        "reason": reason, "finished_at": Now(), "error": "",
    }  # fmt: skip


def _measure(work: Slice, route: Route, found: list[Candidate]) -> None:
    attempts = [Attempt(route, candidate) for candidate in found]
    new = [attempt for attempt in attempts if attempt.digest not in work.tried][:MOST_MEASURED]
    if not new:
        return
    default_route, default = default_of(work)
    built = work.build(default_route, default)
    if isinstance(built, Outcome):
        raise NothingWorked(f"The default could not be built again: {built.status} ({built.detail})")
    with work.bench(built) as bench:
        if not bench.default.ok:
            raise NothingWorked(f"The default failed: {bench.default.status} ({bench.default.detail})")
        try_candidates(work, bench, new, Attempt(default_route, default).digest)
