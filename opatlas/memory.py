"""How much memory there is, so that what cannot fit is refused with a sentence before it is tried."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")


def available_bytes() -> int | None:
    """What this process may still take: of the machine, and of its control group; None where nobody says."""
    known = [amount for amount in (_of_machine(), _of_group()) if amount is not None]
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


def _of_group() -> int | None:
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        return int(most) - int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # "max", an older kernel
        return None
