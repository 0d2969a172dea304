"""Waiting until the other threads of this process rest: those of who ran before go on spinning for more work,
and whoever is timed meanwhile has fewer cores than alone in a job."""

from __future__ import annotations

import threading
import time
from pathlib import Path

PATIENCE_S = 1.0
"""Longer than any library's threads spin: PyTorch's libgomp 8 ms, ONNX Runtime's 40, libiomp5's 200; of CPU
time, which takes longer on a busy host."""
LOOK_EVERY_S = 0.0002
_TASKS = Path("/proc/self/task")


class OtherThreads:
    """Of this process. Where the kernel does not show them (no Linux), none is seen and nobody waits."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._restless: set[str] = set()

    def wait(self, patience_s: float = PATIENCE_S) -> None:
        """Until all others sleep, at most so long. Who works on beyond that does not spin but has work of the
        job's to do, and is not waited for again."""
        end = time.perf_counter() + patience_s
        while busy := self.at_work() - self._restless:
            if time.perf_counter() > end:
                self._restless |= busy
                return
            time.sleep(LOOK_EVERY_S)

    def at_work(self) -> set[str]:
        """Numbers of those that run, or would if a core were free."""
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
