"""The next slice of tuning: by which route, what is expected of it, and whether it is worth its seconds."""

from __future__ import annotations

from dataclasses import dataclass

from tuning.conf import conf
from tuning.explore.results import winner_of
from tuning.explore.slice_history import about_next, estimator
from tuning.explore.stage_end import StageEnd
from tuning.explore.workshop import ClaimedSlice
from tuning.explore.worth import Expectation, SliceTraits, hopeless_but_tried, not_worth, worth_of_slice_us
from tuning.models import Stage, State
from tuning.routes.base import Route, Tunable

BUILDS_S = 5.0  # what building and measuring them adds to a slice's search, roughly


@dataclass(frozen=True)
class SlicePlan:
    """The next slice: its route, and the expectation."""

    route: Route
    about: SliceTraits
    expected: Expectation
    best_us: float
    calls: float

    @property
    def worth(self) -> float:
        return worth_of_slice_us(self.calls, self.best_us, self.expected.gain)

    @property
    def pointless(self) -> str:
        """Why it should not be done; empty if it should."""
        return not_worth(self.calls, self.best_us, self.expected, conf().tune_slice_s + BUILDS_S)


def next_slice(work: ClaimedSlice, slices: int = 0) -> StageEnd:
    """Whether another slice of tuning may follow ``slices`` of them: queued at its worth, or done, with the
    reason."""
    plan = plan_next(work)
    if plan is None:
        return StageEnd(State.DONE, reason="No route on this worker can tune it.")
    gain = round(plan.expected.gain, 6)
    reason = plan.pointless
    if not reason or hopeless_but_tried(slices, work.row.operator.key):
        return StageEnd(State.QUEUED, worth=plan.worth, expected_gain=gain)
    if slices:
        return StageEnd(State.DONE, reason=reason, expected_gain=gain)
    return StageEnd(State.DONE, Stage.CONTEST, reason, expected_gain=gain, max_tuning_slices=0)


def plan_next(work: ClaimedSlice) -> SlicePlan | None:
    """The slice with the largest expectation among all routes that can tune it here; None if none can."""
    routes = [
        route for route in work.workshop.routes if isinstance(route, Tunable) and not work.supports(route)
    ]
    best = winner_of(work.row)
    if not routes or best is None:
        return None
    learnt = estimator()
    plans = []
    for route in routes:
        about = about_next(work.row, route.name, best.median_us)
        plans.append(SlicePlan(route, about, learnt.expect(about), best.median_us, work.row.calls))
    return max(plans, key=lambda plan: plan.expected.gain)
