"""How explorations run, as numbers. Each can be set in the environment: ``OPATLAS_`` and its name."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Conf:
    """Seconds are wall-clock. The defaults suit one machine; tests shorten the leases."""

    lease_s: float = 30.0  # how long a silent worker keeps what it claimed
    tick_s: float = 0.5  # between two looks of the leader
    leader_lease_s: float = 5.0  # how long a silent leader stays leader
    worker_beat_s: float = 3.0  # between two signs of life of a worker
    served_s: float = 15.0  # how long after a sign of life a target counts as served
    pack_first: int = 8  # explorations claimed together: first results,
    pack_contest: int = 2  # contests
    build_s: float = 60.0  # one candidate's limits: building,
    run_s: float = 20.0  # checking and timing together,
    memory_mib: int = 4096  # and memory
    candidates_s: float = 60.0  # what one route may spend on one operator's untuned candidates
    tuning: bool = True  # False: nothing is tuned (stage 2)
    tune_slice_s: float = 10.0  # of searching; with building and timing a slice stays below 20 s
    tuning_slices: int = 4  # at most so many slices for an operator of middling worth
    max_backlog_s: float = 6 * 3600.0  # per live worker; beyond it, related operators are postponed
    declare_after_s: float = 30.0  # nobody brings the declared environment: another is declared; -1: by hand
    stop_grace_s: float = 3.0  # how long a stopping worker lets a running step end by itself


@cache
def conf() -> Conf:
    """The numbers of this process, read once."""
    return Conf(**{f.name: _read(f.name, f.default) for f in fields(Conf)})


def _read(name: str, default: Any) -> Any:
    text = os.environ.get(f"OPATLAS_{name.upper()}", "")
    if not text:
        return default
    if isinstance(default, bool):
        return text not in {"0", "no", "false"}
    return type(default)(text)
