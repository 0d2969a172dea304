"""How many threads may compute at a time: the one place where cores are counted."""

from __future__ import annotations

import os
from pathlib import Path

from opatlas import cgroup


def usable_cores(proc: Path = cgroup.PROC) -> int:
    """So many threads of this process may compute all the time: the CPUs that it may run on, as far as its
    control group gives them time; at least one.

    A quota of 1.5 CPUs is one: two threads would use it up within each period and then stand still together,
    so a short call would look twice as fast as a job's calls are.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota(proc)
    return allowed if quota is None else max(1, min(allowed, int(quota)))
