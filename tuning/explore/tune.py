"""Tuning: slices of search by the routes that can, each at most 20 s, resumable anywhere.

Slices are claimed in the order of worth: calls × time × the gain expected from past slices (``worth.py``).
After each, the results are kept, and the next one is weighed, or tuning ends with the reason.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from catalog.models import Best
from tuning.conf import conf
from tuning.explore.candidates import bench_of_default
from tuning.explore.plan import SlicePlan, next_slice, plan_next
from tuning.explore.race.heats import hold_race
from tuning.explore.records import keep_records, seed
from tuning.explore.results import Tried, winner_of
from tuning.explore.slice_history import gained
from tuning.explore.stage_end import StageEnd
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.outcome import Outcome
from tuning.models import State, TuningSlice
from tuning.routes.base import MOST_MEASURED, Candidate, Learning, Route


def tune(work: ClaimedSlice) -> StageEnd:
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
    found = work.workshop.laboratory.tune(route, work.operator, work.setting, folder, conf().tune_slice_s)
    if isinstance(route, Learning):
        keep_records(work, route, list(route.learnt(folder)))
    if isinstance(found, Outcome):
        work.keep(
            Tried(route, Candidate(route.name, {"slice": work.row.tuning_slices}, "search"), began=began),
            found,
        )
    else:
        _measure(work, route, found)
    _keep_slice(work, plan, before, time.monotonic() - began)
    slices = work.row.tuning_slices + 1
    if slices >= work.row.max_tuning_slices:
        return _done(work, "", slices)
    return replace(next_slice(work, slices), tuning_slices=slices)


def state_folder(work: ClaimedSlice, route: Route) -> Path:
    """Where a route keeps its search's state, for the next slice on this worker."""
    place = f"{work.row.operator.key}-{work.row.setting.key}".replace(":", "_")
    folder = work.workshop.home / "tuning" / place / route.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _keep_slice(work: ClaimedSlice, plan: SlicePlan, before: Best | None, seconds: float) -> None:
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


def _done(work: ClaimedSlice, reason: str, slices: int | None = None) -> StageEnd:
    done = work.row.tuning_slices if slices is None else slices
    return StageEnd(State.DONE, reason=reason, tuning_slices=done)


def _measure(work: ClaimedSlice, route: Route, found: list[Candidate]) -> None:
    tries = [Tried(route, candidate) for candidate in found]
    new = [tried for tried in tries if tried.digest not in work.tried][:MOST_MEASURED]
    if not new:
        return
    with bench_of_default(work) as (bench, default_digest):
        hold_race(work, bench, new, default_digest)
