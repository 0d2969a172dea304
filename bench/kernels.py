"""Exploring for whole models: which routes, and with the hand-written kernels that ship."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROUTES = ("cpp", "halide", "tvm")
"""Whose times a plan is made of, beside ONNX Runtime's: its kernels' (``cpp``: those that ship). The worker
has no others: contests of all take several times as long."""


def admit_kernels(stack: Any, say: Callable[[str], None]) -> None:
    """Those that ship, approved where the operators that were asked for gave them evidence: contests have
    them from the start then. What that takes is on top of exploring."""
    from bench.contest.course import KERNELS_WAIT_S, LOOK_S, Jury
    from tuning.queue import steering

    steering.resume("*")  # the course before has paused it
    stack.wait_for(Jury(say).is_done, KERNELS_WAIT_S, "the hand-written kernels' evidence", LOOK_S)
