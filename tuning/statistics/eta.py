"""When an exploration will be over, by how long its like has taken."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q

from tuning.models import Exploration, Pause, Stage, State, Worker
from tuning.queue.clock import alive
from tuning.statistics.rates import Pace, Rates


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
    begun = row.state == State.RUNNING and row.doing != "claimed" and row.steps_total > 0
    if not begun:
        return pace.seconds, f"This stage takes {pace}."
    share = 1 - min(row.steps_done / row.steps_total, 1)
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
    workers = Worker.objects.filter(alive(), target=row.target_id).count()
    if not workers:
        return Eta(None, 0.0, left.work_s, f"No live worker serves {row.capability}: it waits for one.")
    ahead = _ahead(row)
    wait_s = sum(n * rates.pace(stage).seconds for stage, n in ahead.items()) / workers
    count = sum(ahead.values())
    before = f"{count:,} explorations are" if count != 1 else "1 exploration is"
    live = f"{workers} worker{'s' if workers > 1 else ''}"
    waits = f"{before} before it, for {live}: about {wait_s:.0f} s. " if count else ""
    return Eta(wait_s + left.work_s, wait_s, left.work_s, f"{waits}{left.how}", left.at_most, count + 1)


def _ahead(row: Exploration) -> dict[int, int]:
    """Stage → explorations that are claimed before this one."""
    first = Q(stage__lt=row.stage)
    first |= Q(stage=row.stage, priority__lt=row.priority)
    first |= Q(stage=row.stage, priority=row.priority, worth__gt=row.worth)
    waiting = Exploration.objects.filter(first, state=State.QUEUED, target=row.target_id).order_by()
    return dict(waiting.values_list("stage").annotate(n=Count("pk")))
