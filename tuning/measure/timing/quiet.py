"""Whether the host leaves us alone: how long a process waited for a CPU, and what the hypervisor took."""

from __future__ import annotations

import time
from dataclasses import dataclass

from opatlas.noise import PRESSED_SHARE, SHORT_STEPS, STEAL_STEP_US
from tuning.measure import procfs


@dataclass
class Turn:
    """Counters at the beginning of a process's turn.

    Only its own delays count. Ours, who hold the clock, do not: the process that we wake outranks us and
    often takes our CPU at once, so that we wait for exactly as long as it works.
    """

    pid: int
    delay_ns: int
    stolen_us: int
    started: float

    @classmethod
    def start(cls, pid: int) -> Turn:
        return cls(pid, procfs.delay_ns(pid), procfs.stolen_us(), time.perf_counter())

    def disturbance(self) -> float:
        """The share of the turn in which its threads waited or the hypervisor ran others: 0 is quiet."""
        elapsed_us = max(1.0, (time.perf_counter() - self.started) * 1e6)
        stolen = procfs.stolen_us() - self.stolen_us
        if stolen <= STEAL_STEP_US and elapsed_us < SHORT_STEPS * STEAL_STEP_US:
            stolen = 0
        return max((procfs.delay_ns(self.pid) - self.delay_ns) / 1e3, stolen) / elapsed_us


def wait_until_quiet(limit_s: float, window_s: float = 0.02) -> bool:
    """Wait while other processes press for the CPUs, at most ``limit_s``; whether it became quiet."""
    deadline = time.monotonic() + limit_s
    while True:
        before, then = procfs.waiting_us(), time.perf_counter()
        time.sleep(window_s)
        pressed = (procfs.waiting_us() - before) / ((time.perf_counter() - then) * 1e6)
        if pressed < PRESSED_SHARE:
            return True
        if time.monotonic() > deadline:
            return False
