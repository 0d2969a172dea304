"""Queues of engines, and which of them an operator is added to. PURE; not thread-safe: its owner locks.

Each queue has an expected waiting time: a start value, and the reference times of what was added to it and
is not done. Adding raises it by the operator's reference time, and being done lowers it by exactly what was
added (whole nanoseconds, so that nothing is left over). Operators are placed one at a time, each into the
queue whose expected waiting time is the shortest *then*.

Reality is kept apart from that book, as a correction that is worked out anew whenever a queue is looked at:
by how much operators of such kinds take longer than their reference times, and how far the one that runs has
come. One that is late is expected to be late for as long again, so an engine that stalls looks worse with
each look, and one that is silent for longer than ``silent_s`` is passed over.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

from opatlas.errors import CallerError, OpatlasError
from opatlas.placement.references import Corrections, ReferenceTime, is_time

NS = 1_000_000_000


class NoEngine(OpatlasError):
    """There is no engine that could run anything now: none was given, or all are silent."""


class BadReferenceTime(CallerError):
    """Seconds that are no time: ``ReferenceTimes`` has an estimate for those."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One operator in the queue of ``engine``. ``added_ns``: what its expected wait was raised by."""

    number: int
    engine: str
    reference: ReferenceTime
    added_ns: int
    placed_at: float
    expected_s: float  # that it would wait, when it was placed
    head_start_s: float = 0.0

    @property
    def turn(self) -> tuple[float, int]:
        """Its place in the queue: the least runs next."""
        return self.placed_at - self.head_start_s, self.number


class EngineQueue:
    """What waits for one engine, and what runs on it. ``start_s``: what every newcomer waits in any case."""

    def __init__(self, engine: str, start_s: float = 0.0, heard_at: float = -math.inf) -> None:
        self.engine = engine
        self.heard_at = heard_at
        self.running: Placed | None = None
        self._began_at = 0.0
        self._start_ns = round(start_s * NS)
        self._added_ns = 0
        self._waiting: dict[int, Placed] = {}
        self._waiting_ns: dict[str, int] = defaultdict(int)  # kind → of what waits

    def __len__(self) -> int:
        """Operators that are not done, the one that runs among them."""
        return len(self._waiting) + (self.running is not None)

    def __iter__(self) -> Iterator[Placed]:
        """What is not done, as it was placed, the one that runs first."""
        yield from (self.running,) if self.running else ()
        yield from self._waiting.values()

    @property
    def expected_s(self) -> float:
        """The book: the start value and exactly what was added."""
        return (self._start_ns + self._added_ns) / NS

    def correction_s(self, corrections: Corrections, now: float) -> float:
        """What reality lets expect beyond the book."""
        found = sum(ns * (corrections.ratio(kind) - 1.0) for kind, ns in self._waiting_ns.items()) / NS
        if self.running is not None:
            takes_s = self.running.added_ns / NS * corrections.ratio(self.running.reference.kind)
            # Early: what is left of it. Late: as much again as it is late by.
            found += abs(takes_s - (now - self._began_at)) - self.running.added_ns / NS
        return found

    def wait_s(self, corrections: Corrections, now: float) -> float:
        """What an operator that is added now is expected to wait."""
        return max(0.0, self.expected_s + self.correction_s(corrections, now))  # floats leave 1e-18 over

    def add(self, placed: Placed) -> None:
        self._waiting[placed.number] = placed
        self._waiting_ns[placed.reference.kind] += placed.added_ns
        self._added_ns += placed.added_ns

    def take(self, now: float) -> Placed | None:
        """Begin the next; None where nothing waits, or something runs."""
        if self.running is not None or not self._waiting:
            return None
        self.running = min(self._waiting.values(), key=lambda one: one.turn)
        self._forget(self.running)
        self._began_at = now
        return self.running

    def done(self, placed: Placed, now: float) -> float | None:
        """Take one off the book; the seconds that it ran, None where it had not begun. Raises KeyError where
        it is not here (any more)."""
        took_s = None
        if placed == self.running:
            took_s = now - self._began_at
            self.running = None
        else:
            self._forget(placed)
        self._added_ns -= placed.added_ns
        return took_s

    def _forget(self, placed: Placed) -> None:
        del self._waiting[placed.number]
        kind = placed.reference.kind
        self._waiting_ns[kind] -= placed.added_ns
        if not self._waiting_ns[kind]:
            del self._waiting_ns[kind]


Queues = Sequence[EngineQueue]
WaitOf = Callable[[EngineQueue], float]
Policy = Callable[[Queues, WaitOf, int], EngineQueue]
"""Which of the queues (never empty), given what one is expected to wait in each and how many were placed
before."""


def expected_wait(queues: Queues, wait_s: WaitOf, placed: int) -> EngineQueue:
    """The shortest expected wait; of equals the first."""
    return min(queues, key=wait_s)


def shortest_queue(queues: Queues, wait_s: WaitOf, placed: int) -> EngineQueue:
    """The fewest operators, whatever they take."""
    return min(queues, key=len)


def round_robin(queues: Queues, wait_s: WaitOf, placed: int) -> EngineQueue:
    """One after the other."""
    return queues[placed % len(queues)]


POLICIES: Mapping[str, Policy] = {
    "expected_wait": expected_wait,
    "shortest_queue": shortest_queue,
    "round_robin": round_robin,
}


class Placement:
    """Engines by name with their start values in seconds. ``now`` is seconds on any one clock.

    A priority is a head start of at most ``most_head_start_s``: an urgent operator goes before what was
    placed up to so long before it, and nothing waits for what comes later than that, however much it is.
    ``away_s``: what handing an operator over from one engine to another takes.
    """

    def __init__(
        self,
        starts_s: Mapping[str, float],
        policy: Policy = expected_wait,
        *,
        silent_s: float = math.inf,
        most_head_start_s: float = 0.0,
        away_s: float = 0.0,
    ) -> None:
        self.queues: dict[str, EngineQueue] = {}
        self.corrections = Corrections()
        self._policy = policy
        self._silent_s = silent_s
        self._most_head_start_s = most_head_start_s
        self._away_s = away_s
        self._numbers = count()
        self._placed = 0
        for engine, start_s in starts_s.items():
            self.add_engine(engine, start_s)

    def add_engine(self, engine: str, start_s: float = 0.0) -> None:
        """One more, or one that comes back after it was removed. Raises BadReferenceTime."""
        if not (math.isfinite(start_s) and start_s >= 0):
            raise BadReferenceTime(f"{start_s} s is no start value: it must be zero or more.")
        self.queues[engine] = EngineQueue(engine, start_s)

    def wait_s(self, engine: str, now: float) -> float:
        """What an operator that is added to this queue now is expected to wait."""
        return self.queues[engine].wait_s(self.corrections, now)

    def heard(self, engine: str, now: float) -> None:
        """A sign of life: needed only where ``silent_s`` is finite."""
        self.queues[engine].heard_at = now

    def living(self, now: float) -> list[EngineQueue]:
        return [one for one in self.queues.values() if now - one.heard_at <= self._silent_s]

    def place(
        self,
        reference: ReferenceTime,
        now: float,
        head_start_s: float = 0.0,
        *,
        near: str = "",
        only: Collection[str] | None = None,
    ) -> Placed:
        """Add one operator to a queue: one of ``only`` these engines, if they are named. ``near``: the engine
        that made what it reads, which is taken of equals; every other has ``away_s`` more. Raises NoEngine,
        and BadReferenceTime."""
        if not is_time(reference.seconds):
            raise BadReferenceTime(f"{reference.seconds} s is no reference time: it must be above zero.")
        able = [one for one in self.living(now) if only is None or one.engine in only]
        if not able:
            raise NoEngine(f"None of {len(self.queues)} engines can run anything now.")
        if near:
            able.sort(key=lambda queue: queue.engine != near)

        def wait_s(queue: EngineQueue) -> float:
            away_s = self._away_s if near and queue.engine != near else 0.0
            return queue.wait_s(self.corrections, now) + away_s

        chosen = self._policy(able, wait_s, self._placed)
        placed = Placed(
            next(self._numbers), chosen.engine, reference, max(1, round(reference.seconds * NS)), now,
            chosen.wait_s(self.corrections, now),
            min(head_start_s, self._most_head_start_s) if head_start_s > 0 else 0.0,
        )  # fmt: skip
        self._placed += 1
        chosen.add(placed)
        return placed

    def take(self, engine: str, now: float) -> Placed | None:
        """What this engine runs next, which begins now; None where nothing waits for it, or it runs
        something."""
        return self.queues[engine].take(now)

    def done(self, placed: Placed, now: float) -> None:
        """It has run, or will not: its queue is lowered by exactly what it was raised by, and how long it ran
        corrects the next of its kind. Raises KeyError where it is in no queue any more."""
        took_s = self.queues[placed.engine].done(placed, now)
        if took_s is not None:
            self.corrections.learn(placed.reference, took_s)

    def remove(self, engine: str) -> list[Placed]:
        """An engine is gone: what was not done there, to be placed again, what ran first. Whatever is said of
        it afterwards is a KeyError."""
        return list(self.queues.pop(engine))


def level_s(busy_s: Sequence[float], work_s: float) -> float:
    """What a newcomer waits for one of several engines that pull from one queue: each is busy for so long
    yet, and ``work_s`` waits before it. It is the shortest of their expected waits once the work was added
    to them piece by piece, each piece to the shortest. Raises NoEngine."""
    if not busy_s:
        raise NoEngine("No engine pulls from this queue.")
    filled = accumulate(sorted(busy_s), initial=work_s)
    return min(seconds / engines for engines, seconds in enumerate(filled) if engines)
