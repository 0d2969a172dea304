"""Threads of this process by their numbers, and what each has had of the processors."""

from __future__ import annotations

from pathlib import Path

_TASKS = Path("/proc/self/task")


def threads_of_this_process() -> set[str]:
    return {one.name for one in _TASKS.iterdir()}


def cpu_ns(thread: str) -> int:
    """Nanoseconds that it has run: of a thread that sleeps they stand still, however busy the host is."""
    return int((_TASKS / thread / "schedstat").read_text().split()[0])
