"""The threads of engines and their shared state: which step waits for which, and for which run.

A thread that waits for a run also supervises the engines. An engine that hangs is removed, its queued steps
are placed again, and the run whose step it had fails. So nobody waits for ever.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opatlas.errors import CallerError, first_line
from opatlas.placement.queues import NoEngine, Placed, Placement
from opatlas.placement.references import ReferenceTimes, is_time
from opatlas.plan.engines.steps import DeadlinePassed, EngineStalled, EngineStep, EngineWait, here

log = logging.getLogger("opatlas")
LEAST_STALL_S = 10.0
PATIENCE = 50.0
"""An engine is given up after so many times its step's expected time, and at least so many seconds."""
AWAY_S = 1e-4
"""The least gain for moving a step to another engine, since the hand-over costs time (77 µs were
measured)."""
LOOK_S = 0.5
"""How often a thread that waits for a run looks at the engines."""


@dataclass(eq=False)
class ModelShare:
    """A model's share of the engines. ``had_s``: the engine time that counts for fairness."""

    model: str
    priority_s: float
    had_s: float = 0.0
    active: int = 0  # runs that are under way
    hangs: bool = False  # whether a step of its latest run never ended


@dataclass(eq=False)
class SharedRun:
    """One run of a model: which steps are placed, and what the others still need."""

    share: ModelShare
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
    run: SharedRun
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


class EngineMachinery:
    """The state of the engines' threads. They do not refer to :class:`Engines`, so dropping that ends
    them."""

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
        self._runs: set[SharedRun] = set()
        self._known: dict[tuple[str, str], float] = {}
        self._references = ReferenceTimes([])
        self._is_closed = False
        self._process = os.getpid()

    # ---- who waits ----------------------------------------------------------------------------------

    def carry_out(self, run: SharedRun) -> None:
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

    def _look_s(self, run: SharedRun) -> float:
        left_s = run.deadline_at - self.clock()
        return LOOK_S if left_s <= 0 else min(LOOK_S, left_s)

    def _drain(self, run: SharedRun) -> None:
        while not run.ended.wait(LOOK_S):
            with self.lock:
                self._watch()

    def _begin_share(self, share: ModelShare) -> None:
        """A model that returns starts with the least time that any model has had: idling saves nothing up."""
        others = {run.share for run in self._runs if run.share is not share}
        if not share.active and others:
            share.had_s = max(share.had_s, min(one.had_s for one in others))
        share.active += 1
        share.hangs = False

    def _learn_references(self, run: SharedRun) -> None:
        """A step without a reference time takes that of its model's other steps."""
        found = {
            (run.share.model, _kind(run, number)): step.reference_s
            for number, step in enumerate(run.steps)
            if step.reference_s is not None and is_time(step.reference_s)
        }
        if any(self._known.get(name) != seconds for name, seconds in found.items()):
            self._known |= found
            self._references = ReferenceTimes((model, kind, s) for (model, kind), s in self._known.items())

    def _watch(self) -> None:
        """Look for deadlines that have passed, and engines that hang."""
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

    def _place(self, run: SharedRun, number: int, near: str = "") -> None:
        """Raises NoEngine."""
        now, step = self.clock(), run.steps[number]
        reference = self._references.of(_kind(run, number), run.share.model)
        only = [min(self.engines)] if step.confined and self.engines else None
        placed = self._placement.place(reference, now, self._head_start_s(run, now), near=near, only=only)
        self._placed[placed.number] = _Waiting(run, number, now)
        run.at_work += 1
        if placed.engine != near:
            self.engines[placed.engine].wake.notify()

    def _head_start_s(self, run: SharedRun, now: float) -> float:
        """The sum of its priority, what it had less than others, and how near its deadline is."""
        most_s = max((one.share.had_s for one in self._runs), default=0.0)
        hurry_s = max(0.0, self._most_head_start_s - (run.deadline_at - now))
        return run.share.priority_s + max(0.0, most_s - run.share.had_s) + hurry_s

    def _fail(self, run: SharedRun, error: BaseException) -> None:
        """Begin no more of its steps; it ends with the steps at work. The first error is raised."""
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
        here.pool = number + 1, self._threads
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
                waiting.asked_at, began_at, now, placed.expected_s, waiting.step.by(),
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

    def _end_idle(self, run: SharedRun) -> None:
        """End a run with no step placed: nothing would ever begin."""
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


def _kind(run: SharedRun, number: int) -> str:
    return f"{run.share.model} {number}"


def _passed(run: SharedRun) -> DeadlinePassed:
    done = len(run.steps) - run.left
    return DeadlinePassed(
        f"The deadline of {run.share.model} passed after {done} of its {len(run.steps)} steps."
    )
