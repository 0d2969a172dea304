"""Packs values into one buffer: values that are never needed together share memory. PURE.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the
largest first, each at the lowest place that no value occupies at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
ALIGNMENT = 64
"""Bytes of a cache line, and of an AVX-512 load."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value's first step (it is made) and last step (it is read), both included; ``size`` in bytes."""

    first: int
    last: int
    size: int


def place(values: Mapping[K, Lifetime]) -> tuple[dict[K, int], int]:
    """The offset of each value in bytes, and the size of the buffer."""
    placed: list[tuple[int, int, Lifetime]] = []  # start, end
    offsets: dict[K, int] = {}
    for name, life in sorted(values.items(), key=lambda item: -item[1].size):
        size = -(-life.size // ALIGNMENT) * ALIGNMENT
        at = 0
        for start, end, other in placed:  # by where they start
            if other.last < life.first or life.last < other.first:
                continue
            if at + size <= start:
                break
            at = max(at, end)
        offsets[name] = at
        placed.append((at, at + size, life))
        placed.sort(key=lambda item: item[:2])
    return offsets, max((end for _, end, _ in placed), default=0)


def place_apart(values: Mapping[K, Lifetime], part_of: Mapping[K, Hashable]) -> tuple[dict[K, int], int]:
    """Like :func:`place`, but values of different parts share no memory. A value in no part is in part 0."""
    by_part: dict[Hashable, dict[K, Lifetime]] = defaultdict(dict)
    for name, life in values.items():
        by_part[part_of.get(name, 0)][name] = life
    offsets: dict[K, int] = {}
    begin = 0
    for part in by_part.values():
        own, size = place(part)
        offsets |= {name: begin + offset for name, offset in own.items()}
        begin += size
    return offsets, begin
