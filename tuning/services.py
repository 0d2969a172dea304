"""What the rest of the service calls of tuning."""

from __future__ import annotations

from tuning.bell import bell, ring_for_misses
from tuning.claims import Claim, StaleLease, claim, sweep
from tuning.figures import seconds_to_first_hit
from tuning.leader import tick
from tuning.promote import live_workers, promote_misses
from tuning.worker import WorkerProcess, start_worker, stop_worker, this_worker

__all__ = [
    "Claim",
    "StaleLease",
    "WorkerProcess",
    "bell",
    "claim",
    "live_workers",
    "promote_misses",
    "ring_for_misses",
    "run_until_idle",
    "seconds_to_first_hit",
    "start_worker",
    "stop_worker",
    "sweep",
    "this_worker",
    "tick",
]


def run_until_idle(worker: WorkerProcess) -> int:
    """Explore until nothing is left that this worker can do; returns how many slices ran."""
    return worker.run_until_idle()
