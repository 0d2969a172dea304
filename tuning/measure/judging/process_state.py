"""What a compiled kernel must leave as it found it in its process; looked at from outside.

A kernel is code in somebody's job: threads, signal handlers, priorities or patched code that it leaves there
outlive its run, and are how work or time could be hidden here.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from tuning.measure import procfs

GROWTH_BYTES = 48 << 20
"""Memory that calls may add while they are timed. What is freed late, or never, adds much more."""


@dataclass(frozen=True)
class Conduct:
    """How a child stands at one moment."""

    threads: int
    signals: tuple[str, ...]  # masks of blocked, ignored and caught signals, of the first thread
    scheduling: tuple[object, ...]
    resident_bytes: int

    @classmethod
    def of(cls, pid: int) -> Conduct:
        return cls(
            len(procfs.threads(pid)), procfs.signal_masks(pid), _scheduling(pid), procfs.resident_bytes(pid)
        )

    def complaint(self, now: Conduct, pool_threads: int) -> str:
        """What changed that may not, as one sentence; empty where nothing did."""
        if now.threads == 0:
            return ""  # it is gone, which others find out
        if now.threads > self.threads + pool_threads:
            return "started threads of its own"
        if now.signals != self.signals:
            return "changed how its process takes signals"
        if now.scheduling != self.scheduling:
            return "changed its priority or its CPUs"
        return ""


def code_changed(pid: int) -> str:
    """The library whose code was written to in this process; empty where none was, or where it cannot be
    looked at."""
    for path, dirty in procfs.written_code(pid):
        if dirty:
            return path
    return ""


def _scheduling(pid: int) -> tuple[object, ...]:
    with contextlib.suppress(OSError):
        return (
            tuple(sorted(os.sched_getaffinity(pid))),
            os.sched_getscheduler(pid),
            os.getpriority(os.PRIO_PROCESS, pid),
        )
    return ()
