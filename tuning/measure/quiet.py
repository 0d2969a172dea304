"""Whether the host leaves us alone: steal time and CPU pressure, before and during samples."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuning.measure import procfs

NOISY_SHARE = 0.15
"""A round is noisy when somebody waited for a CPU, or the hypervisor took it, for this share of it."""


@dataclass
class Watch:
    """Counters at the beginning of a stretch of time in which at most one of our processes runs."""

    waiting_us: int
    stolen_us: int
    started: float

    @classmethod
    def start(cls) -> Watch:
        return cls(procfs.waiting_us(), procfs.stolen_us(), time.perf_counter())

    def share(self) -> float:
        """The share of the time since then that was disturbed: 0 is quiet."""
        elapsed_us = max(1.0, (time.perf_counter() - self.started) * 1e6)
        stolen = procfs.stolen_us() - self.stolen_us
        # Steal comes in steps of 10 ms: a single step says nothing about a short stretch.
        stolen = stolen if stolen > 10_000 or elapsed_us > 50_000 else 0
        return max(procfs.waiting_us() - self.waiting_us, stolen) / elapsed_us

    def noisy(self) -> bool:
        return self.share() > NOISY_SHARE


def wait_until_quiet(limit_s: float, window_s: float = 0.02) -> bool:
    """Wait while others press for the CPUs, at most ``limit_s``; whether it became quiet."""
    deadline = time.monotonic() + limit_s
    while True:
        watch = Watch.start()
        time.sleep(window_s)
        if not watch.noisy():
            return True
        if time.monotonic() > deadline:
            return False
