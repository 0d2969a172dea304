"""Waits until the other threads of this process sleep. The previous candidate's threads go on spinning for a
while and would take cores from the one that is timed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

PATIENCE_S = 1.0
"""Longer than any library's threads spin: PyTorch's libgomp 8 ms, ONNX Runtime 40, libiomp5 200. These are
CPU times, which last longer on a busy host."""
LOOK_EVERY_S = 0.0002
_TASKS = Path("/proc/self/task")


class OtherThreads:
    """The other threads of this process. Where the kernel does not list them (not Linux), nobody waits."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._restless: set[str] = set()

    def wait(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until all others sleep, at most so long. A thread that works on for longer has the job's own
        work, and is not waited for again."""
        end = time.perf_counter() + patience_s
        while busy := self.at_work() - self._restless:
            if time.perf_counter() > end:
                self._restless |= busy
                return
            time.sleep(LOOK_EVERY_S)

    def at_work(self) -> set[str]:
        """Ids of threads that run, or would if a core were free."""
        own = str(threading.get_native_id())
        try:
            return {one.name for one in self._tasks.iterdir() if one.name != own and _runs(one)}
        except OSError:
            return set()


def _runs(thread: Path) -> bool:
    try:
        stat = (thread / "stat").read_bytes()
    except OSError:  # it has ended
        return False
    return stat.rpartition(b") ")[2].startswith(b"R")  # its name may have brackets in it
