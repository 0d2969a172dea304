"""The state in which a slice leaves its exploration."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from tuning.models import Stage, State


@dataclass(frozen=True)
class StageEnd:
    """Columns of the exploration by name; None: unchanged."""

    state: State  # queued: it goes on
    stage: Stage | None = None
    reason: str | None = None
    opened: bool | None = None
    worth: float | Combinable | None = None
    expected_gain: float | None = None
    steps_done: int | None = None
    tuning_slices: int | None = None
    max_tuning_slices: int | None = None

    def columns(self) -> dict[str, Any]:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {name: value for name, value in found.items() if value is not None}
        if self.reason:
            found["reason"] = self.reason[:500]
        if self.state != State.QUEUED:
            found["finished_at"] = Now()
        if self.state != State.UNSUPPORTED:  # there an earlier try's error may tell more
            found["error"] = ""
        return found
