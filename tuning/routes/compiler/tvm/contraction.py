"""Register tiles for contractions. See :mod:`tuning.routes.compiler.tvm.schedules`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tuning.routes.compiler.tvm.schedules import (
    Machine,
    blocks_of,
    extents,
    is_injective,
    lanes_of,
    largest_divisor,
    parallel_flat,
    power_divisor,
    vectorise_last,
)

MINIMAL_WORK = 4096


def schedule_contraction(made: Any, machine: Machine, variant: str, free: set[int]) -> bool:
    return False
