"""Engines that several models of a process share: a thread each, placed by expected waiting time.

A model's run is steps, of which each names those that it needs. What needs nothing more is placed into the
queue of an engine (:mod:`opatlas.placement.queues`), so that models take turns step by step, and steps of one
model that need nothing of each other may run beside each other.

Whoever waits for a run watches over the engines meanwhile: one that does not come back is taken out, what
waited for it is placed again, and whose step it was is told. So nobody waits for what never ends.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opatlas.errors import CallerError, OpatlasError, first_line
from opatlas.load.pool import enter_pool
from opatlas.placement.queues import NoEngine, Placed, Placement
from opatlas.placement.references import ReferenceTimes, is_time
from opatlas.streams.device import Call, StreamStalled
from opatlas.streams.timeline import Timeline, TimelineBox, TimelineWait, bounded

log = logging.getLogger("opatlas")
MOST_HEAD_START_S = 0.1
"""Of whatever lets a step go before others (a priority, a deadline, having had less): beyond it nobody is
overtaken any more, so nobody starves."""
LEAST_STALL_S = 10.0
PATIENCE = 50.0
"""An engine is given up after so many times what its step is expected to take, at least so many seconds."""
AWAY_S = 1e-4
"""What handing a step over to another engine takes (77 µs were measured), so it has to gain as much."""
LOOK_S = 0.5
"""Between two looks at the engines of who waits for a run."""
MOST_ENGINES = 16
"""As many as there are thread pools beside everybody's (``pool.c``)."""
KEPT_WAITS = 10_000
"""Steps of which it is kept how long they waited."""


_here = threading.local()  # an engine's thread: the pool that is its own, and its threads; until it has it


def with_own_pool(call: Call) -> Call:
    """Compiled kernels of this call run on a thread pool of the engine's own: a second one at the same time
    on everybody's would have one thread."""

    def run() -> None:
        if (pool := getattr(_here, "pool", None)) is not None:
            _here.pool = None
            enter_pool(*pool)
        call()

    return run


class DeadlinePassed(OpatlasError):
    """A run that could not end by when it had to; nothing of it is at work any more."""


class EngineStalled(StreamStalled):
    """A step that does not end. It may go on, and write: what it has in its hands is nobody's any more."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """A piece of a run. ``needs``: the numbers of those that end before it begins, all smaller than its own.
    ``reference_s``: what it takes alone, None where nobody knows. ``confined``: what its whole process shares
    (threads of PyTorch, of XLA), so all of this kind run on one engine."""

    said: str
    call: Call
    needs: frozenset[int] = frozenset()
    reference_s: float | None = None
    confined: bool = False


@dataclass(frozen=True, slots=True)
class EngineWait:
    """One step on its engine, by the engines' clock: as its wait was expected, and as it came."""

    model: str
    said: str
    engine: str
    placed_at: float
    began_at: float
    ended_at: float
    expected_s: float

    @property
    def waited_s(self) -> float:
        return self.began_at - self.placed_at


class EngineShare:
    """A model's part of the engines. ``had_s``: seconds of engines that it had, as fairness counts them."""

    def __init__(self, engines: Engines, model: str, priority_s: float) -> None:
        self.engines, self.model, self.priority_s = engines, model, priority_s
        self.had_s = 0.0
        self.active = 0  # runs that are under way
        self.hangs = False  # whether a step of its latest run never ended

    def run(self, steps: Sequence[EngineStep], deadline_s: float = math.inf) -> None:
        """All of these, and wait for the last. ``deadline_s``: from now on.

        Raises what a step raised; :class:`DeadlinePassed`; :class:`EngineStalled` where a step does not end;
        :class:`opatlas.placement.queues.NoEngine` where no engine is left to go on with.
        """
        self.engines.carry_out(self, steps, deadline_s)


@dataclass(eq=False)
class _SharedRun:
    """One run of a model: what of it is placed, and what it still needs."""

    share: EngineShare
    steps: Sequence[EngineStep]
    deadline_at: float
    lacks: list[int] = field(default_factory=list)  # by step: how many that it needs have not ended
    frees: list[list[int]] = field(default_factory=list)
    left: int = 0
    at_work: int = 0
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.left = len(self.steps)
        self.lacks = [len(step.needs) for step in self.steps]
        self.frees = [[] for _ in self.steps]
        for number, step in enumerate(self.steps):
            for before in step.needs:
                if not 0 <= before < number:
                    raise CallerError(
                        f"Step {number} ({step.said}) needs step {before}, which is not before it."
                    )
                self.frees[before].append(number)


@dataclass(eq=False)
class _Waiting:
    run: _SharedRun
    number: int
    asked_at: float

    @property
    def step(self) -> EngineStep:
        return self.run.steps[self.number]


@dataclass(eq=False)
class _Engine:
    name: str
    wake: threading.Condition
    running: tuple[_Waiting, Placed, float] | None = None
    is_gone: bool = False
    thread: threading.Thread | None = None


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
        self._machinery = _Machinery(threads, enter, most_head_start_s, clock, self.waits)
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
            boxes.append(TimelineBox(row, one.said, began_us, 1e6 * (one.ended_at - one.began_at), one.model))
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
            self._machinery.carry_out(_SharedRun(share, steps, self._machinery.clock() + deadline_s))

    def lose(self, engine: str) -> None:
        """An engine that is gone: what waited for it is placed again; whose step it ran is told."""
        with self._machinery.lock:
            self._machinery.lose(engine, f"Engine {engine} is gone")

    def close(self) -> None:
        """No engine takes anything more; runs that are under way end with an error."""
        self._close()


class _Machinery:
    """What engines' threads know; they do not know :class:`Engines`, so that dropping it ends them."""

    def __init__(
        self,
        threads: int,
        enter: Callable[[int], None] | None,
        most_head_start_s: float,
        clock: Callable[[], float],
        waits: deque[EngineWait],
    ) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.engines: dict[str, _Engine] = {}
        self._threads, self._enter, self._waits = threads, enter, waits
        self._most_head_start_s = most_head_start_s
        self._placement = Placement({}, most_head_start_s=most_head_start_s, away_s=AWAY_S)
        self._placed: dict[int, _Waiting] = {}
        self._runs: set[_SharedRun] = set()
        self._known: dict[tuple[str, str], float] = {}
        self._references = ReferenceTimes([])
        self._is_closed = False
        self._process = os.getpid()

    # ---- who waits ----------------------------------------------------------------------------------

    def carry_out(self, run: _SharedRun) -> None:
        if os.getpid() != self._process:
            raise NoEngine("The engines' threads are those of the process that forked this one.")
        with self.lock:
            if self._is_closed:
                raise NoEngine("The engines were closed.")
            self._learn_references(run)
            self._begin_share(run.share)
            self._runs.add(run)
            try:
                for number, lacks in enumerate(run.lacks):
                    if not lacks:
                        self._place(run, number)
            except NoEngine as error:
                self._fail(run, error)
            self._end_idle(run)
        try:
            while not run.ended.wait(self._look_s(run)):
                with self.lock:
                    self._watch()
        except BaseException as error:  # Ctrl-C: nothing more of it begins, and what is at work ends first
            with self.lock:
                self._fail(run, error)
            self._drain(run)
            raise
        finally:
            with self.lock:
                self._runs.discard(run)
                run.share.active -= 1
        if run.error is not None:
            raise run.error

    def _look_s(self, run: _SharedRun) -> float:
        left_s = run.deadline_at - self.clock()
        return LOOK_S if left_s <= 0 else min(LOOK_S, left_s)

    def _drain(self, run: _SharedRun) -> None:
        while not run.ended.wait(LOOK_S):
            with self.lock:
                self._watch()

    def _begin_share(self, share: EngineShare) -> None:
        """Whoever comes back has had as much as the one with the least: idling saves nothing up."""
        others = {run.share for run in self._runs if run.share is not share}
        if not share.active and others:
            share.had_s = max(share.had_s, min(one.had_s for one in others))
        share.active += 1
        share.hangs = False

    def _learn_references(self, run: _SharedRun) -> None:
        """A step without a time of its own takes what its model's others take."""
        found = {
            (run.share.model, _kind(run, number)): step.reference_s
            for number, step in enumerate(run.steps)
            if step.reference_s is not None and is_time(step.reference_s)
        }
        if any(self._known.get(name) != seconds for name, seconds in found.items()):
            self._known |= found
            self._references = ReferenceTimes((model, kind, s) for (model, kind), s in self._known.items())

    def _watch(self) -> None:
        """Deadlines that have passed, and engines that do not come back."""
        now = self.clock()
        for run in list(self._runs):
            if now >= run.deadline_at:
                self._fail(run, _passed(run))
        for engine in list(self.engines.values()):
            if engine.thread is not None and not engine.thread.is_alive():
                self.lose(engine.name, f"The thread of {engine.name} has ended")
            if engine.running is None or engine.is_gone:
                continue
            waiting, placed, began_at = engine.running
            takes_s = placed.reference.seconds * self._placement.corrections.ratio(placed.reference.kind)
            if now - began_at > max(LEAST_STALL_S, PATIENCE * takes_s):
                self.lose(engine.name, f"{waiting.step.said} of {waiting.run.share.model} did not end")

    def expected_waits(self) -> dict[str, float]:
        with self.lock:
            return {name: self._placement.wait_s(name, self.clock()) for name in self.engines}

    # ---- placing (with the lock) ---------------------------------------------------------------------

    def _place(self, run: _SharedRun, number: int, near: str = "") -> None:
        """Raises NoEngine."""
        now, step = self.clock(), run.steps[number]
        reference = self._references.of(_kind(run, number), run.share.model)
        only = [min(self.engines)] if step.confined and self.engines else None
        placed = self._placement.place(reference, now, self._head_start_s(run, now), near=near, only=only)
        self._placed[placed.number] = _Waiting(run, number, now)
        run.at_work += 1
        if placed.engine != near:
            self.engines[placed.engine].wake.notify()

    def _head_start_s(self, run: _SharedRun, now: float) -> float:
        """Its priority, what it had less than others, and how much nearer than the bound its deadline is."""
        most_s = max((one.share.had_s for one in self._runs), default=0.0)
        hurry_s = max(0.0, self._most_head_start_s - (run.deadline_at - now))
        return run.share.priority_s + max(0.0, most_s - run.share.had_s) + hurry_s

    def _fail(self, run: _SharedRun, error: BaseException) -> None:
        """Nothing more of it begins; it has ended when what is at work has. The first error is told."""
        run.error = run.error or error
        for placed_number, waiting in list(self._placed.items()):
            if waiting.run is run and not self._runs_now(placed_number):
                self._drop(placed_number)
        if not run.at_work:
            run.ended.set()

    def _runs_now(self, placed_number: int) -> bool:
        return any(one.running and one.running[1].number == placed_number for one in self.engines.values())

    def _drop(self, placed_number: int) -> None:
        waiting = self._placed.pop(placed_number)
        waiting.run.at_work -= 1
        for queue in self._placement.queues.values():
            for placed in queue:
                if placed.number == placed_number:
                    self._placement.done(placed, self.clock())
                    return

    def lose(self, name: str, why: str) -> None:
        engine = self.engines.pop(name, None)
        if engine is None:
            return
        log.warning("%s: engine %s is given up, %d are left.", why, name, len(self.engines))
        engine.is_gone = True
        engine.wake.notify()
        running = engine.running[1].number if engine.running else None
        for placed in self._placement.remove(name):
            if (waiting := self._placed.pop(placed.number, None)) is None:
                continue  # of a run that has just failed
            waiting.run.at_work -= 1
            if placed.number == running:
                waiting.run.share.hangs = True
                self._fail(waiting.run, EngineStalled(f"{why}; the run is given up."))
            elif waiting.run.error is None:
                try:
                    self._place(waiting.run, waiting.number)
                except NoEngine as error:
                    self._fail(waiting.run, error)

    # ---- engines' threads -----------------------------------------------------------------------------

    def start(self, number: int) -> None:
        with self.lock:
            name = f"engine {number}"
            engine = _Engine(name, threading.Condition(self.lock))
            self.engines[name] = engine
            self._placement.add_engine(name)
        engine.thread = threading.Thread(
            target=self._work, args=(engine, number), name=f"opatlas-engine-{number}", daemon=True
        )
        engine.thread.start()

    def _work(self, engine: _Engine, number: int) -> None:
        _here.pool = number + 1, self._threads
        if self._enter is not None:
            try:
                self._enter(number)
            except Exception as error:
                with self.lock:
                    self.lose(engine.name, f"It could not be set up ({first_line(error)})")
                return
        while (taken := self._next(engine)) is not None:
            waiting, placed, began_at = taken
            failed: BaseException | None = None
            try:
                waiting.step.call()
            except BaseException as error:  # whatever a kernel raises: whose run it is is told, nobody else
                failed = error
            with self.lock:
                if engine.is_gone:
                    return  # given up meanwhile: somebody else has it, or it was told to have failed
                self._end(engine, waiting, placed, began_at, failed)
            del taken, waiting, failed  # which hold buffers

    def _next(self, engine: _Engine) -> tuple[_Waiting, Placed, float] | None:
        with self.lock:
            while not (engine.is_gone or self._is_closed):
                now = self.clock()
                placed = self._placement.take(engine.name, now)
                if placed is None:
                    engine.wake.wait()
                    continue
                waiting = self._placed[placed.number]
                if now >= waiting.run.deadline_at:
                    self._fail(waiting.run, _passed(waiting.run))  # which takes it off the queue again
                    continue
                engine.running = waiting, placed, now
                return engine.running
            return None

    def _end(
        self,
        engine: _Engine,
        waiting: _Waiting,
        placed: Placed,
        began_at: float,
        failed: BaseException | None,
    ) -> None:
        now, run = self.clock(), waiting.run
        engine.running = None
        self._placement.done(placed, now)
        del self._placed[placed.number]
        run.at_work -= 1
        run.left -= 1
        run.share.had_s += now - began_at
        self._waits.append(
            EngineWait(
                run.share.model, waiting.step.said, engine.name,
                waiting.asked_at, began_at, now, placed.expected_s,
            )
        )  # fmt: skip
        if failed is not None:
            self._fail(run, failed)
        elif run.error is None:
            try:
                for number in run.frees[waiting.number]:
                    run.lacks[number] -= 1
                    if not run.lacks[number]:
                        self._place(run, number, engine.name)
            except NoEngine as error:
                self._fail(run, error)
        self._end_idle(run)

    def _end_idle(self, run: _SharedRun) -> None:
        """A run of which nothing is placed has ended, for nothing would ever begin."""
        if run.at_work:
            return
        if run.left and run.error is None:
            run.error = EngineStalled(f"{run.left} steps of {run.share.model} wait for what never ends.")
        run.ended.set()

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            for run in list(self._runs):
                self._fail(run, NoEngine("The engines were closed."))
            for engine in self.engines.values():
                engine.wake.notify()


def _kind(run: _SharedRun, number: int) -> str:
    return f"{run.share.model} {number}"


def _passed(run: _SharedRun) -> DeadlinePassed:
    done = len(run.steps) - run.left
    return DeadlinePassed(
        f"The deadline of {run.share.model} passed after {done} of its {len(run.steps)} steps."
    )
