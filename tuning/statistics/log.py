"""An exploration's log: what was tried, what it said, what failed, and what the worker does now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from catalog.viewing import Viewer
from tuning.models import Exploration, Stage, State, Trial
from tuning.statistics.units import time_said
from tuning.withheld import shown_trials

TAIL_LINES = 6
"""Of a trial's own last words; the trial has the rest."""


@dataclass(frozen=True)
class LogLine:
    """One entry. ``level``: info, warn or error; ``text`` may have several lines."""

    at: datetime
    level: Literal["info", "warn", "error"]
    source: str  # "tvm: tuned, 32 trials", or the worker
    text: str


def log(row: Exploration, viewer: Viewer, limit: int = 40) -> list[LogLine]:
    """The latest entries that may be shown to who looks, the oldest of them first: two statements, and some
    where prices withhold."""
    trials = shown_trials(viewer, row.trials.order_by("-pk").defer("candidate")[:limit])
    lines = [_of_trial(trial) for trial in trials]
    for one in row.slices.order_by("-pk")[:limit]:
        text = f"slice over after {one.seconds:.1f} s: gained {100 * one.gained:.1f} %, "
        text += f"{100 * one.expected_gain:.1f} % expected"
        lines.append(LogLine(one.created_at, "info", f"{one.route}: tuning", text))
    if row.error:
        source = row.reason if row.state == State.DEAD else "the last try failed"
        lines.append(LogLine(row.finished_at or row.updated_at, "error", source, row.error.strip()))
    lines.sort(key=lambda line: line.at)
    if row.state == State.RUNNING:
        source = row.lease_owner or "a worker"
        stage = str(Stage(row.stage).label)
        lines.append(LogLine(row.updated_at, "info", source, f"{stage}: {row.doing or 'beginning'}"))
    return lines[-limit:]


def _of_trial(trial: Trial) -> LogLine:
    at, status, detail = trial.created_at, trial.status, trial.detail.strip()
    source = f"{trial.route}: {trial.label}" if trial.label else trial.route
    if status == "ok" and trial.median_us is not None:
        text = f"ok, {time_said(trial.median_us)}, {trial.ratio_to_default or 0:.2f}× the default"
        return LogLine(at, "info", source, text)
    text = status.replace("_", " ") + (f": {detail}" if detail else "")
    if last := trial.log_tail.strip().splitlines()[-TAIL_LINES:]:
        text += "\n" + "\n".join(last)
    return LogLine(at, "info" if status in ("unsupported", "slower") else "warn", source, text)
