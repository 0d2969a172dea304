"""How much memory there is, so that what cannot fit is refused with a sentence before it is tried."""

from __future__ import annotations

import os
import re
from pathlib import Path

from opatlas import cgroup

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")


def total_bytes(proc: Path = cgroup.PROC) -> int:
    """What there is for this process: the machine's memory, or the limit of its control group."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, cgroup.memory_limit_bytes(proc) or machine)


def available_bytes(proc: Path = cgroup.PROC) -> int | None:
    """What this process may still take: of the machine, and of its control group; None where nobody says."""
    known = [amount for amount in (_of_machine(), cgroup.memory_left_bytes(proc)) if amount is not None]
    return min(known, default=None)


def lacking(wanted: int) -> str:
    """That so many bytes are not there, in words; nothing where they are."""
    there = available_bytes()
    if there is None or wanted <= there:
        return ""
    return f"{wanted / 1e9:.1f} GB of memory are needed, and {there / 1e9:.1f} GB are free"


def resident_bytes() -> int:
    """What this process has in memory now; 0 where nobody says."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _of_machine() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
