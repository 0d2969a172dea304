"""Engines that several models of a process share: one thread each, chosen by expected waiting time.

A model's run consists of steps, each of which names the steps that it needs. A step that needs nothing more
is queued at an engine (:mod:`opatlas.placement.queues`). So models take turns step by step, and independent
steps of one model may run at the same time.
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
"""The most by which a step may overtake others (for a priority, a deadline, or a small share so far). So no
step starves."""
MOST_ENGINES = 16
"""The number of thread pools beside the shared one (``pool.c``)."""
KEPT_WAITS = 10_000
"""For how many steps the waiting time is kept."""


class EngineShare(ModelShare):
    """A model's share of the engines, through which its steps are placed."""

    def __init__(self, engines: Engines, model: str, priority_s: float) -> None:
        super().__init__(model, priority_s)
        self.engines = engines

    def run(self, steps: Sequence[EngineStep], deadline_s: float = math.inf) -> None:
        """Run these steps, and wait for the last. ``deadline_s``: from now. Raises what a step raised;
        :class:`DeadlinePassed`; :class:`EngineStalled` if a step does not end;
        :class:`opatlas.placement.queues.NoEngine` if no engine is left."""
        self.engines.carry_out(self, steps, deadline_s)


class Engines:
    """So many ``engines``: threads that run the models' steps, each with ``threads`` for its kernels.
    ``enter`` is called in each thread before its first step, with the engine's number; an engine where it
    fails is not used. A priority, a near deadline and a small share so far let a step overtake what was
    placed at most ``most_head_start_s`` earlier, all together."""

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
        """Engines that accept work."""
        with self._machinery.lock:
            return list(self._machinery.engines)

    def share(self, model: str, priority_s: float = 0.0) -> EngineShare:
        """A share for a model. ``priority_s``: the head start of its steps, within the bound."""
        if not (math.isfinite(priority_s) and priority_s >= 0):
            raise CallerError(f"A priority is a head start of zero seconds or more, not {priority_s}.")
        return EngineShare(self, model, priority_s)

    def expected_waits(self) -> dict[str, float]:
        """The seconds that a step placed now would wait, by engine."""
        return self._machinery.expected_waits()

    def timeline(self, since: float = -math.inf) -> Timeline:
        """The latest steps that began after ``since`` by the engines' clock: engines as rows, each step with
        its real and its expected wait. Reading it costs no run anything."""
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
        """See :meth:`EngineShare.run`."""
        if math.isnan(deadline_s) or deadline_s <= 0:
            raise DeadlinePassed(f"The deadline of {share.model} has passed: {deadline_s:g} s are left.")
        if steps:
            self._machinery.carry_out(SharedRun(share, steps, self._machinery.clock() + deadline_s))

    def lose(self, engine: str) -> None:
        """Drop an engine: its queued steps are placed again, and the run whose step it had fails."""
        with self._machinery.lock:
            self._machinery.lose(engine, f"Engine {engine} is gone")

    def close(self) -> None:
        """Stop all engines; current runs end with an error."""
        self._close()
