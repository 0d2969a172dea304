"""How much of a multiprocessor a launch can fill at most, by what its function takes. Pure.

As the CUDA occupancy calculator has it: the limits are those of the CUDA C++ Programming Guide's table of
compute capabilities. What a device really keeps resident, only it could tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

WARP = 32
REGISTERS, REGISTER_UNIT, WARP_UNIT = 65536, 256, 4
"""Of a multiprocessor; handed out to warps in such units, and to so many warps at a time."""
SHARED_UNIT, RESERVED_BYTES = 128, 1024
"""Shared memory of a block is handed out in such units; CUDA keeps so much of each block for itself."""


@dataclass(frozen=True)
class Multiprocessor:
    """What one holds at a time."""

    threads: int
    blocks: int
    shared_bytes: int


KNOWN: Mapping[str, Multiprocessor] = {
    "sm_80": Multiprocessor(2048, 32, 164 << 10),
    "sm_86": Multiprocessor(1536, 16, 100 << 10),
    "sm_89": Multiprocessor(1536, 24, 100 << 10),
    "sm_90": Multiprocessor(2048, 32, 228 << 10),
    "sm_100": Multiprocessor(2048, 32, 228 << 10),
}


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> float | None:
    """The share of its places for warps that blocks of so many threads fill at most; None of architectures
    that are not written down. ``registers`` are a thread's, ``shared_bytes`` a block's."""
    holds = KNOWN.get(arch.rstrip("af"))
    if holds is None or threads < 1:
        return None
    warps, places = -(-threads // WARP), holds.threads // WARP
    each = _up(max(registers, 1) * WARP, REGISTER_UNIT)
    by_registers = REGISTERS // each // WARP_UNIT * WARP_UNIT // warps
    by_memory = holds.shared_bytes // _up(shared_bytes + RESERVED_BYTES, SHARED_UNIT)
    return min(holds.blocks, places // warps, by_registers, by_memory) * warps / places


def least_occupancy(plan: Mapping[str, Any], function: str, used: Mapping[str, int]) -> float | None:
    """Of a function's launches in a launch plan the one that fills least; None where nothing is known."""
    shares = [
        occupancy(
            plan["arch"],
            prod(launch["block"]),
            used["registers"],
            used.get("shared_bytes", 0) + launch["shared_bytes"],
        )
        for launch in (*plan["prepare"], *plan["run"])
        if launch["function"] == function
    ]
    return min((share for share in shares if share is not None), default=None)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
