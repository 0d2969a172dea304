"""This process's children and theirs, found in /proc."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def of(pid: int) -> list[int]:
    """Every process that descends from this one, the nearest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:  # the thread or the process has ended meanwhile
            continue
        for child in children:
            found += [child, *of(child)]
    return found


def kill_all() -> None:
    """SIGKILL to all of ours: zygotes, sandboxes and what runs in them."""
    for pid in of(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
