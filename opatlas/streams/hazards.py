"""What must run in its order: pairs of tasks of which one writes what the other touches. PURE.

Told by the bytes that they touch, not by the values that they name: two values of a buffer that is used again
are one place.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes ``start`` to before ``end`` of what has this name."""

    memory: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamTask:
    """A kernel or a copy: what people call it, its stream, and what it reads and writes."""

    said: str
    stream: int
    reads: tuple[Extent, ...] = ()
    writes: tuple[Extent, ...] = ()


class Danger(Enum):
    """What the later of two does to the earlier one; read before ``what the other …``."""

    READS_WRITTEN = "reads what", "writes"
    OVERWRITES_READ = "overwrites what", "reads"
    OVERWRITES_WRITTEN = "overwrites what", "writes"


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two tasks, by number, that must run in this order."""

    before: int
    after: int
    danger: Danger


def hazards(tasks: Sequence[StreamTask]) -> list[Hazard]:
    """Of tasks in the order in which they run one by one. Pairs that follow from others of these are left
    out: whoever keeps these orders keeps all."""
    found: dict[tuple[int, int], Danger] = {}
    memories: dict[str, _Memory] = defaultdict(_Memory)
    for number, task in enumerate(tasks):
        for extent in task.reads:
            for before in memories[extent.memory].read(extent.start, extent.end, number):
                found.setdefault((before, number), Danger.READS_WRITTEN)
        for extent in task.writes:
            for before, danger in memories[extent.memory].write(extent.start, extent.end, number):
                found.setdefault((before, number), danger)
    return [Hazard(before, after, danger) for (before, after), danger in found.items() if before != after]


@dataclass(slots=True)
class _Stretch:
    """Bytes that were last written by one task (None: by nobody here), and who has read them since."""

    start: int
    end: int
    writer: int | None
    readers: list[int]


class _Memory:
    """Who touched what last: stretches that make up all of it, in order."""

    def __init__(self) -> None:
        self._stretches = [_Stretch(0, sys.maxsize, None, [])]

    def read(self, start: int, end: int, task: int) -> list[int]:
        """Who wrote it."""
        first, last = self._within(start, end)
        inside = self._stretches[first:last]
        for one in inside:
            one.readers.append(task)
        return [one.writer for one in inside if one.writer is not None]

    def write(self, start: int, end: int, task: int) -> list[tuple[int, Danger]]:
        """Who wrote it, or has read it since."""
        first, last = self._within(start, end)
        inside = self._stretches[first:last]
        if inside:
            self._stretches[first:last] = [_Stretch(start, end, task, [])]
        written = [(one.writer, Danger.OVERWRITES_WRITTEN) for one in inside if one.writer is not None]
        return written + [(reader, Danger.OVERWRITES_READ) for one in inside for reader in one.readers]

    def _within(self, start: int, end: int) -> tuple[int, int]:
        """Which stretches make up these bytes, after none goes across their ends."""
        if start >= end:
            return 0, 0
        return self._cut(start), self._cut(end)

    def _cut(self, at: int) -> int:
        """The stretch that begins there."""
        index = bisect_left(self._stretches, at, key=lambda one: one.start)
        if index and (one := self._stretches[index - 1]).end > at:
            self._stretches.insert(index, _Stretch(at, one.end, one.writer, list(one.readers)))
            one.end = at
        return index
