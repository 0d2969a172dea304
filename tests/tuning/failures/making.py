"""Failed trials with their explorations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from catalog.models import Operator
from tests.dashboard.factory import Factory
from tuning.failures.grouping import note_failure
from tuning.models import Exploration, Trial


def failed(
    factory: Factory,
    number: int = 0,
    route: str = "tvm",
    status: str = "build_failed",
    detail: str = "",
    state: str = "done",
    *,
    at: datetime | None = None,
    counted: bool = True,
    **scope: Any,
) -> Trial:
    """A trial of the operator with that number; ``at``: long ago, ``counted``: as who keeps trials does."""
    name = f"Relu {number} float32"
    operator = Operator.objects.filter(summary=name).first() or factory.operator("Relu", name)
    row, _ = Exploration.objects.get_or_create(
        operator=operator,
        **factory.where | scope,
        defaults={"asked_at": factory.now, "state": state, "capability": "cpu.zen3", "stage": 1},
    )
    said = detail or f"/tmp/x{number}/kernel.c:{number}: error: no intrinsic at 0x7f{number:04x}a1"
    trial = Trial.objects.create(
        exploration=row, route=route, method="compiler", stage=1, status=status, detail=said
    )
    if at is not None:
        Trial.objects.filter(pk=trial.pk).update(created_at=at)
        trial.created_at = at
    if counted:
        note_failure(trial)
    return trial
