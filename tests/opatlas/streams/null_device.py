"""A device without hardware or threads, for tests: it does what it is given in an order that is drawn.

Each launch takes a time by a clock of its own, most short, some long, so that every order that events allow
comes about for some seed, and the same for the same one. It fails as it is told to: by a kernel that never
ends, an event that never comes, or by disappearing.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np

from opatlas.errors import first_line
from opatlas.streams.device import Call, StreamsFailed, StreamsLost, StreamStalled

LONG_ONE_IN, LONG = 8, 30.0
"""So many launches have one that takes so many times as long as others do."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong, counted from the first of a device's life: a launch that never ends, or at which the
    device is gone, and a record that is swallowed. None: nothing."""

    hangs_at: int | None = None
    lost_at: int | None = None
    swallows: int | None = None


class NullDevice:
    """See the module. ``order``: the streams whose launches ran, one after the other."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.is_lost = False
        self.order: list[int] = []
        self._random, self._faults = random.Random(seed), faults or Faults()
        self._streams: dict[int, NullStream] = {}
        self._launches = self._records = 0
        self._hanging: list[Call] = []

    def stream(self, number: int) -> NullStream:
        return self._streams.setdefault(number, NullStream(number))

    def synchronize(self, timeout_s: float) -> None:
        """As :class:`opatlas.streams.device.StreamDevice` says; no time passes but the clock's own."""
        for stream in self._streams.values():
            stream.free_at = self._takes()
        try:
            if self.is_lost:
                raise StreamsLost("The device is gone.")
            while waiting := [stream for stream in self._streams.values() if stream.todo]:
                able = [stream for stream in waiting if stream.can_go_on]
                if not able:
                    each = ", ".join(str(stream.number) for stream in waiting)
                    raise StreamStalled(f"Stream {each} did not end within {timeout_s:g} s.")
                self._step(min(able, key=lambda stream: stream.free_at))
        except StreamsFailed:
            self.forget()
            raise

    def forget(self) -> None:
        self._streams.clear()

    def close(self) -> None:
        self.forget()

    def let_hanging_go_on(self) -> None:
        """What hung ends after all: long after everybody gave up waiting for it."""
        for call in self._hanging:
            call()

    def _step(self, stream: NullStream) -> None:
        todo = stream.todo.popleft()
        if isinstance(todo, NullEvent):
            if self._records != self._faults.swallows:
                todo.happened_at = stream.free_at
            self._records += 1
        elif isinstance(todo, NullMark):
            todo.at_s = stream.free_at
        elif isinstance(todo, Awaited):
            stream.free_at = max(stream.free_at, todo.event.happened_at or 0.0)
        else:
            self._launch(stream, todo)

    def _launch(self, stream: NullStream, call: Call) -> None:
        number, self._launches = self._launches, self._launches + 1
        if number == self._faults.lost_at:
            self.is_lost = True
            raise StreamsLost("The device is gone.")
        if number == self._faults.hangs_at:
            stream.hangs, self.is_lost = True, True
            stream.todo.appendleft(call)
            self._hanging.append(call)
            return
        self.order.append(stream.number)
        try:
            call()
        except Exception as error:
            raise StreamsFailed(f"Stream {stream.number} failed: {first_line(error)}") from error
        stream.free_at += self._takes()

    def _takes(self) -> float:
        return self._random.expovariate(1.0) * (LONG if self._random.randrange(LONG_ONE_IN) == 0 else 1.0)


@dataclass(eq=False)
class NullEvent:
    """An event, and in a stream that it is recorded there."""

    happened_at: float | None = None


@dataclass(frozen=True, eq=False)
class Awaited:
    """In a stream: that an event is waited for."""

    event: NullEvent


@dataclass(eq=False)
class NullMark:
    """A moment by the device's own clock."""

    at_s: float = math.nan


class NullStream:
    """What is to be done, and when it has done what it did."""

    def __init__(self, number: int) -> None:
        self.number, self.free_at, self.hangs = number, 0.0, False
        self.todo: deque[Call | NullEvent | Awaited | NullMark] = deque()

    @property
    def can_go_on(self) -> bool:
        first = self.todo[0]
        return not self.hangs and not (isinstance(first, Awaited) and first.event.happened_at is None)

    def launch(self, call: Call) -> None:
        self.todo.append(call)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        self.todo.append(partial(np.copyto, target, source, casting="no"))

    def record(self) -> NullEvent:
        event = NullEvent()
        self.todo.append(event)
        return event

    def wait(self, event: NullEvent) -> None:
        self.todo.append(Awaited(event))

    def mark(self) -> NullMark:
        mark = NullMark()
        self.todo.append(mark)
        return mark
