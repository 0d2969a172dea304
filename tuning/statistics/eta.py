"""When an exploration will be over, by how long its like has taken."""

from __future__ import annotations

from dataclasses import dataclass

from tuning.models import Exploration, Pause, Stage, State
from tuning.queue.rates import Pace, Rates
from tuning.queue.waits import TargetWait, share_left, wait_of
from tuning.statistics.units import time_said


@dataclass(frozen=True)
class Eta:
    """``seconds`` until it has ended: ``wait_s`` in the queue, then ``work_s`` of a worker's time. None where
    nothing can be said. ``how`` is the estimate's reason, in sentences."""

    seconds: float | None
    wait_s: float
    work_s: float
    how: str
    at_most: bool = False  # tuning ends earlier where nothing more can be won
    position: int | None = None  # in the queue: 1 is claimed next


def work_left(row: Exploration, rates: Rates) -> Eta:
    """Of a worker's time (operator loaded); what waits before it is not counted."""
    kind = row.operator.op_type
    pace = rates.pace(row.stage, kind)
    if row.stage == Stage.TUNE:
        left = max(row.max_tuning_slices - row.tuning_slices, 1)
        plural = "s" if left > 1 else ""
        how = f"At most {left} slice{plural} of tuning left, at {pace}."
        return Eta(left * pace.seconds, 0.0, left * pace.seconds, how, at_most=True)
    seconds, how = _of_stage(row, pace)
    if row.stage == Stage.FIRST:
        contest = rates.pace(Stage.CONTEST, kind)
        seconds += contest.seconds
        how += f" Then the contest: {contest}."
    return Eta(seconds, 0.0, seconds, f"{how} Tuning may follow where it is worth it.")


def _of_stage(row: Exploration, pace: Pace) -> tuple[float, str]:
    share = share_left(row)
    if share == 1:
        return pace.seconds, f"This stage takes {pace}."
    how = f"{row.steps_done} of {row.steps_total} steps are done of a stage that takes {pace}."
    return share * pace.seconds, how


def eta(row: Exploration, rates: Rates) -> Eta | None:
    """Until it has ended, the queue before it included; None where it has ended or is paused."""
    if row.state not in (State.QUEUED, State.RUNNING):
        return None
    left = work_left(row, rates)
    if row.state == State.RUNNING:
        return left
    pause = Pause.objects.filter(capability__in=["*", row.capability]).first()
    if pause is not None:
        why = f": {pause.reason}" if pause.reason else ""
        return Eta(None, 0.0, left.work_s, f"Its queue is paused{why.rstrip('.')}.")
    wait = wait_of(row, rates)
    wait_s = wait.seconds
    if wait_s is None:
        return Eta(None, 0.0, left.work_s, f"No live worker serves {row.capability}: it waits for one.")
    how = f"{_said(wait, wait_s)}{left.how}"
    return Eta(wait_s + left.work_s, wait_s, left.work_s, how, left.at_most, wait.ahead + 1)


def _said(wait: TargetWait, wait_s: float) -> str:
    """What is before it; nothing where a worker is free for it."""
    if not wait_s:
        return ""
    if not wait.ahead:
        return f"It is next, after what is held now: about {time_said(1e6 * wait_s)}. "
    before = f"{wait.ahead:,} explorations are" if wait.ahead != 1 else "1 exploration is"
    live = f"{wait.workers} worker{'s' if wait.workers > 1 else ''}"
    held = ", beside what is held now" if any(wait.busy_s.values()) else ""
    return f"{before} before it, for {live}{held}: about {time_said(1e6 * wait_s)}. "
