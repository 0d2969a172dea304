"""An exploration's log: what was tried, what it said, what failed, and what the worker does now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tuning.models import Exploration, Stage, State

TAIL_LINES = 6
"""Of a trial's own last words; the trial has the rest."""


@dataclass(frozen=True)
class LogLine:
    """One entry. ``level``: info, warn or error; ``text`` may have several lines."""

    at: datetime
    level: Literal["info", "warn", "error"]
    source: str  # "tvm: tuned, 32 trials", or the worker
    text: str


def log(row: Exploration, limit: int = 40) -> list[LogLine]:
    """The latest entries, the oldest of them first: two statements."""
    trials = row.trials.order_by("-pk").values_list(
        "created_at", "route", "label", "status", "detail", "log_tail", "median_us", "ratio_to_default"
    )
    lines = [_of_trial(*trial) for trial in trials[:limit]]
    slices = row.slices.order_by("-pk").values_list(
        "created_at", "route", "expected_gain", "gained", "seconds"
    )
    for at, route, expected, gained, seconds in slices[:limit]:
        text = (
            f"slice over after {seconds:.1f} s: gained {100 * gained:.1f} %, {100 * expected:.1f} % expected"
        )
        lines.append(LogLine(at, "info", f"{route}: tuning", text))
    if row.error:
        given_up = row.state == State.DEAD
        source = f"given up after {row.tries} tries" if given_up else "the last try failed"
        lines.append(LogLine(row.finished_at or row.updated_at, "error", source, row.error.strip()))
    lines.sort(key=lambda line: line.at)
    if row.state == State.RUNNING:
        source = row.lease_owner or "a worker"
        stage = str(Stage(row.stage).label)
        lines.append(LogLine(row.updated_at, "info", source, f"{stage}: {row.doing or 'beginning'}"))
    return lines[-limit:]


def _of_trial(
    at: datetime,
    route: str,
    label: str,
    status: str,
    detail: str,
    tail: str,
    median_us: float | None,
    ratio: float | None,
) -> LogLine:
    source = f"{route}: {label}" if label else route
    if status == "ok" and median_us is not None:
        return LogLine(at, "info", source, f"ok, {median_us:.3g} µs, {ratio or 0:.2f}× the default")
    text = status.replace("_", " ") + (f": {detail.strip()}" if detail.strip() else "")
    if last := tail.strip().splitlines()[-TAIL_LINES:]:
        text += "\n" + "\n".join(last)
    return LogLine(at, "info" if status in ("unsupported", "slower") else "warn", source, text)
