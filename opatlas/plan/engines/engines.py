"""Engines that several models of a process share: a thread each, placed by expected waiting time.

A model's run is steps, of which each names those that it needs. What needs nothing more is placed into the
queue of an engine (:mod:`opatlas.placement.queues`), so that models take turns step by step, and steps of one
model that need nothing of each other may run beside each other.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from opatlas.errors import CallerError
from opatlas.plan.engines.machinery import EngineMachinery, ModelShare, SharedRun
from opatlas.plan.engines.steps import DeadlinePassed, EngineStep, EngineWait
from opatlas.streams.timeline import Timeline, TimelineBox, TimelineWait, bounded

MOST_HEAD_START_S = 0.1
"""Of whatever lets a step go before others (a priority, a deadline, having had less): beyond it nobody is
overtaken any more, so nobody starves."""
MOST_ENGINES = 16
"""As many as there are thread pools beside everybody's (``pool.c``)."""
KEPT_WAITS = 10_000
"""Steps of which it is kept how long they waited."""


class EngineShare(ModelShare):
    """A model's part of the engines, and how its steps get there."""

    def __init__(self, engines: Engines, model: str, priority_s: float) -> None:
        super().__init__(model, priority_s)
        self.engines = engines

    def run(self, steps: Sequence[EngineStep], deadline_s: float = math.inf) -> None:
        """All of these, and wait for the last. ``deadline_s``: from now on.

        Raises what a step raised; :class:`DeadlinePassed`; :class:`EngineStalled` where a step does not end;
        :class:`opatlas.placement.queues.NoEngine` where no engine is left to go on with.
        """
        self.engines.carry_out(self, steps, deadline_s)


class Engines:
    """So many ``engines``: threads that run what models give them, each with ``threads`` for its kernels.
    ``enter`` is called in each before its first step, with its number; one in which it fails is none.

    A priority, a deadline that is near and having had less than others let a step go before what was placed
    at most ``most_head_start_s`` earlier, all of them together.
    """

    def __init__(
        self,
        engines: int,
        threads: int = 1,
        *,
        enter: Callable[[int], None] | None = None,
        most_head_start_s: float = MOST_HEAD_START_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= engines <= MOST_ENGINES:
            raise CallerError(f"There are 1 to {MOST_ENGINES} engines, not {engines}.")
        self.threads = threads
        if not (math.isfinite(most_head_start_s) and most_head_start_s >= 0):
            raise CallerError(f"A head start is bounded by zero seconds or more, not {most_head_start_s}.")
        self.waits: deque[EngineWait] = deque(maxlen=KEPT_WAITS)
        self._machinery = EngineMachinery(threads, enter, most_head_start_s, clock, self.waits)
        self._close = weakref.finalize(self, self._machinery.close)
        for number in range(engines):
            self._machinery.start(number)

    @property
    def living(self) -> list[str]:
        """Engines that take work."""
        with self._machinery.lock:
            return list(self._machinery.engines)

    def share(self, model: str, priority_s: float = 0.0) -> EngineShare:
        """A model's part. ``priority_s``: the head start of its steps, as far as it is allowed."""
        if not (math.isfinite(priority_s) and priority_s >= 0):
            raise CallerError(f"A priority is a head start of zero seconds or more, not {priority_s}.")
        return EngineShare(self, model, priority_s)

    def expected_waits(self) -> dict[str, float]:
        """By engine, the seconds that a step placed now would wait."""
        return self._machinery.expected_waits()

    def timeline(self, since: float = -math.inf) -> Timeline:
        """Of the latest steps that began after ``since`` by the engines' clock: engines as rows, and of each
        step its wait beside the expected one. They are kept in any case, so asking costs no run anything."""
        taken = [one for one in list(self.waits) if one.placed_at >= since]
        rows = sorted({one.engine for one in taken}, key=lambda name: (len(name), name))
        boxes, waits = [], []
        for one in taken:
            row, began_us = rows.index(one.engine), 1e6 * one.began_at
            took_us = 1e6 * (one.ended_at - one.began_at)
            boxes.append(TimelineBox(row, one.said, began_us, took_us, one.model, one.by))
            waits.append(
                TimelineWait(
                    row, one.said, 1e6 * one.placed_at, 1e6 * one.waited_s, 1e6 * one.expected_s, one.model
                )
            )
        return bounded(rows, boxes, waits)

    def carry_out(self, share: EngineShare, steps: Sequence[EngineStep], deadline_s: float) -> None:
        """As :meth:`EngineShare.run` says."""
        if math.isnan(deadline_s) or deadline_s <= 0:
            raise DeadlinePassed(f"The deadline of {share.model} has passed: {deadline_s:g} s are left.")
        if steps:
            self._machinery.carry_out(SharedRun(share, steps, self._machinery.clock() + deadline_s))

    def lose(self, engine: str) -> None:
        """An engine that is gone: what waited for it is placed again; whose step it ran is told."""
        with self._machinery.lock:
            self._machinery.lose(engine, f"Engine {engine} is gone")

    def close(self) -> None:
        """No engine takes anything more; runs that are under way end with an error."""
        self._close()
