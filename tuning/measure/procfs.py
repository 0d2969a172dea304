"""What /proc tells about processes and the host; a process that just ended is no error."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_GLIBC_SIGNALS = 1 << 31 | 1 << 32
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _number(path: str, place: int) -> int:
    """One of the numbers in a file of one line; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{path}").read_text().split()[place])
    except (OSError, IndexError):
        return 0


def _lines(path: str) -> list[str]:
    """None where it is gone, or cannot be looked at."""
    try:
        return Path(f"/proc/{path}").read_text().splitlines()
    except OSError:
        return []


def kill(pid: int) -> None:
    """SIGKILL, where it is ours and still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
    """Resident memory of one process; 0 where it is gone."""
    return _number(f"{pid}/statm", 1) * PAGE_BYTES


def highest_bytes(pid: int) -> int:
    """The most resident memory that one process ever had; 0 where it is gone."""
    for line in _lines(f"{pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def cpu_ns(pid: int) -> int | None:
    """CPU time of all threads of a process, ended ones included; None where the process is gone."""
    try:
        # The kernel's clock id of another process's CPU clock: see clock_getcpuclockid(3).
        return int(time.clock_gettime((~pid << 3) | 2) * 1e9)
    except OSError:
        return None


def wanted_ns(pid: int) -> int | None:
    """CPU time of a process and what it waited for a CPU beside: on a busy host a thread that never rests
    shows in both. None where the process is gone."""
    used = cpu_ns(pid)
    return None if used is None else used + delay_ns(pid)


def threads(pid: int) -> list[int]:
    """The thread numbers of a process; none where it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - timed, see delay_ns
    except OSError:
        return []


def thread_cpu_ns(pid: int, task: int) -> int:
    """CPU time of one thread; 0 where it is gone."""
    return _number(f"{pid}/task/{task}/schedstat", 0)


def cpu_split_ns(pid: int) -> tuple[int, int]:
    """CPU time of a process's first thread and of all others, ended ones included. Of a process that runs
    the kernel knows it to a tick only: ask while it waits."""
    first = thread_cpu_ns(pid, pid)
    return first, max(0, (cpu_ns(pid) or 0) - first)


def spent_ns(pid: int, before: tuple[int, int]) -> tuple[int, int]:
    """The same since ``before``."""
    first, others = cpu_split_ns(pid)
    return first - before[0], others - before[1]


def delay_ns(pid: int) -> int:
    """How long the threads of a process were ready to run and had no CPU, in all; 0 where not reported."""
    return sum(_number(f"{pid}/task/{task}/schedstat", 1) for task in threads(pid))


def family(root: int, but_not: Collection[int] = ()) -> dict[int, tuple[int, int]]:
    """All descendants of ``root`` as pid -> (parent, resident bytes), without itself and without ``but_not``
    and theirs."""
    parents: dict[int, tuple[int, int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - half the time of iterdir
        fields = _stat(name)
        if fields and fields[0] != b"Z":
            parents[int(name)] = (int(fields[1]), int(fields[21]) * PAGE_BYTES)
    found: dict[int, tuple[int, int]] = {}
    frontier = {root}
    while frontier:
        frontier = {
            pid
            for pid, (parent, _) in parents.items()
            if parent in frontier and pid not in found and pid not in but_not
        }
        found.update((pid, parents[pid]) for pid in frontier)
    return found


def _stat(name: str) -> list[bytes]:
    """Of a process, from its state on; nothing where it is gone. Without ``pathlib``: there are hundreds."""
    try:
        file = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(file, 1024).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(file)


def waiting_us() -> int:
    """Microseconds since boot in which some task waited for a CPU (pressure); 0 where not reported."""
    try:
        first = Path("/proc/pressure/cpu").read_text().split("\n", 1)[0]
    except OSError:
        return 0
    return int(first.rpartition("total=")[2])


def stolen_us() -> int:
    """CPU time that the hypervisor gave to others, summed over CPUs (10 ms steps)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) * (1_000_000 // os.sysconf("SC_CLK_TCK")) if len(fields) > 8 else 0


def folder_bytes(folder: Path, stop_above: int) -> int:
    """Bytes below a folder; stops counting above ``stop_above``."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(Path(path) / name).st_blocks * 512
            except OSError:
                continue
            if total > stop_above:
                return total
    return total


def signal_masks(pid: int) -> tuple[str, ...]:
    """Blocked, ignored and caught signals of a process's first thread; empty where it is gone. Without the
    two that glibc's own threads catch."""
    lines = _lines(f"{pid}/status")
    masks = (line.split() for line in lines if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:")))
    return tuple(f"{name}{int(mask, 16) & ~_GLIBC_SIGNALS:x}" for name, mask in masks)


def state(pid: int) -> str:
    """The letter of proc(5): "S" where it sleeps, "T" or "t" where it is stopped; "X" where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a tracer."""
    return state(pid) in "Tt"


def written_code(pid: int) -> list[tuple[str, int]]:
    """Executable mappings of files, each with the bytes of it that are no longer the file's; none where they
    cannot be looked at."""
    found: list[tuple[str, int]] = []
    path = ""
    for line in _lines(f"{pid}/smaps"):
        fields = line.split()
        if not fields[0].endswith(":"):
            path = fields[5] if len(fields) > 5 and "x" in fields[1] else ""
        elif path.startswith(("/", "[vdso]")) and fields[0] == "Anonymous:":
            found.append((path, int(fields[1]) << 10))
    return found
