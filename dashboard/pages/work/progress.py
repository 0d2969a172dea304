"""An exploration's progress, in words and steps. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.text import Truncator

from dashboard.pages.work.current_work import ACTIVE
from dashboard.web import wording
from tuning.models import Exploration, Stage, State
from tuning.statistics.eta import Eta


def first_result_s(row: Exploration) -> float | None:
    """How long after the miss the first verified result was published."""
    return (row.first_result_at - row.asked_at).total_seconds() if row.first_result_at else None


def happening(row: Exploration) -> str:
    """One line: the present action, what it waits for, or how it ended."""
    stage = str(row.get_stage_display())
    if row.state == State.RUNNING:
        counted = row.steps_total and row.doing != "claimed"
        return (row.doing or stage) + (f", step {row.steps_done} of {row.steps_total}" if counted else "")
    if row.state == State.DONE:
        many = "" if row.tuning_slices == 1 else "s"
        return f"tuned in {row.tuning_slices} slice{many}" if row.tuning_slices else "contest over"
    if row.state == State.DEAD:
        return Truncator(row.error).chars(70)
    return stage + (f": {Truncator(row.reason).chars(60)}" if row.reason else "")


def left(eta: Eta | None) -> str:
    """``about 40 s left``; "" if unknown."""
    if eta is None:
        return ""
    return f"{'at most' if eta.at_most else 'about'} {wording.duration_s(eta.seconds)} left"


def steps(row: Exploration) -> list[dict[str, str]]:
    """The three stages with how far each is: done, running, stopped or still to come."""
    ended_well = row.state == State.DONE
    made = []
    for stage in Stage:
        if ended_well or stage < row.stage:
            state, text = "done", "done"
        elif stage > row.stage:
            state, text = "later", "to come"
        elif row.state == State.RUNNING:
            state, text = "running", row.doing or "running"
        elif row.state in (State.DEAD, State.UNSUPPORTED, State.DISCARDED):
            state, text = "stopped", wording.state(row.state)
        else:
            state, text = "later", row.state
        if stage == Stage.FIRST and row.first_result_at is not None:
            state, text = "done", f"{wording.duration_s(first_result_s(row))} after the miss"
        if stage == Stage.TUNE and state != "later" and row.max_tuning_slices:
            text = f"{row.tuning_slices} of {row.max_tuning_slices} slices"
        if stage == Stage.TUNE and ended_well and not row.max_tuning_slices:
            text = "not worth it"
        made.append({"name": str(stage.label).capitalize(), "state": state, "text": text})
    return made


@dataclass(frozen=True)
class StageProgress:
    """The stage's progress: ``value`` of ``most``; None if unknown."""

    text: str
    value: int | None
    most: int


def progress(row: Exploration) -> StageProgress:
    """Of the stage that it is in, for the bar."""
    stage = str(Stage(row.stage).label).capitalize()
    if row.state not in ACTIVE:
        return StageProgress("Ended", 1, 1)
    if row.stage == Stage.TUNE and row.max_tuning_slices:
        text = f"{stage}: {row.tuning_slices} of {row.max_tuning_slices} slices"
        return StageProgress(text, row.tuning_slices, row.max_tuning_slices)
    if row.state != State.RUNNING or row.doing == "claimed":
        return StageProgress(f"{stage}: not begun" if row.state == State.QUEUED else stage, 0, 1)
    if not row.steps_total:
        return StageProgress(f"{stage}: beginning", None, 1)
    done = min(row.steps_done, row.steps_total)
    return StageProgress(f"{stage}: {done} of {row.steps_total} steps", done, row.steps_total)
