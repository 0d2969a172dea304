"""The simulated device with streams and events: what is in one runs in its order, and of those that can go on
one is drawn, so that nothing but events orders two."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.opatlas.load.cuda.simulated import SimulatedDriver

Task = Callable[[], bool]
"""Does its work, and whether it could."""


class SimulatedStream:
    def __init__(self) -> None:
        self.todo: deque[Task] = deque()
        self.hangs = False


class SimulatedEvent:
    happened = False
    at_us = 0.0


class StreamingSimulation(SimulatedDriver):
    """The same order for the same ``seed``. ``swallows``: this record never comes."""

    def __init__(self, seed: int = 0, *, swallows: int | None = None) -> None:
        super().__init__()
        self.order: list[int] = []
        self._random, self._swallows, self._records = random.Random(seed), swallows, 0
        self.streams: list[SimulatedStream] = []
        self.events: set[SimulatedEvent] = set()
        self._clock_us = 0.0

    def make_stream(self) -> SimulatedStream:
        self.streams.append(SimulatedStream())
        return self.streams[-1]

    def drop_stream(self, stream: SimulatedStream) -> None:
        self.streams.remove(stream)

    def launch_in(self, stream: SimulatedStream, launch: Callable[[], object]) -> None:
        """Launchers put their work into ``waiting``; anything else is a launch itself."""
        before, self.waiting = self.waiting, []

        def run() -> bool:
            outer, self.waiting = self.waiting, []
            try:
                launch()
                for one in self.waiting:
                    one()
            finally:
                self.waiting = outer
            self._clock_us += 1 + self._random.random()
            return True

        self.waiting = before
        stream.todo.append(run)

    def copy_in(self, stream: SimulatedStream, target: Any, source: Any, nbytes: int) -> None:
        def run() -> bool:
            self._bytes(target, nbytes)[...] = self._bytes(source, nbytes)
            self._clock_us += 1
            return True

        stream.todo.append(run)

    def _bytes(self, where: Any, nbytes: int) -> np.ndarray:
        if isinstance(where, np.ndarray):
            return where.reshape(-1).view(np.uint8)
        return self.bytes_at(where, nbytes)

    def record_in(self, stream: SimulatedStream) -> SimulatedEvent:
        event, swallowed = SimulatedEvent(), self._records == self._swallows
        self.events.add(event)
        self._records += 1

        def run() -> bool:
            event.happened, event.at_us = not swallowed, self._clock_us
            return True

        stream.todo.append(run)
        return event

    def wait_in(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        stream.todo.append(lambda: event.happened)

    def has_happened(self, event: SimulatedEvent) -> bool:
        """Each look lets the device do one thing."""
        self._check()
        waiting = [one for one in self.streams if one.todo and not one.hangs]
        self._random.shuffle(waiting)
        for stream in waiting:
            if stream.todo[0]():
                stream.todo.popleft()
                self.order.append(self.streams.index(stream))
                break
        self._check()
        return event.happened

    def between_us(self, first: Any, last: Any) -> float:
        assert {first, last} <= self.events, "an event that was dropped"
        return float(last.at_us - first.at_us)

    def drop_event(self, event: SimulatedEvent) -> None:
        self.events.remove(event)
