"""Engines that run operators from their queues, as discrete events: pure, and the same for the same runs.

A *run* of a model arrives and asks for its operators step by step: those of one step are placed at once, the
next step's when all of them are done. Each engine runs what waits for it, one at a time. An engine may stop
for good: after ``SILENT_S`` what it had is placed again.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from statistics import fmean

from opatlas.placement.queues import Placed, Placement, Policy
from opatlas.placement.references import ReferenceTime

SILENT_S = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedOperator:
    """``takes_s`` is what it takes, whatever its reference time says."""

    reference: ReferenceTime
    takes_s: float


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One run of a tenant's model."""

    model: str
    tenant: str
    arrives_at: float
    steps: Sequence[Sequence[SimulatedOperator]]
    head_start_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """What it takes with as many engines as it could use, and nobody else."""
        return sum(max(one.takes_s for one in step) for step in self.steps)

    @property
    def work_s(self) -> float:
        return sum(one.takes_s for step in self.steps for one in step)


@dataclass(frozen=True, slots=True)
class OperatorWait:
    """From being placed to running: as it was expected then, and as it came."""

    model: str
    tenant: str
    expected_s: float
    waited_s: float


@dataclass
class SimulatedEnd:
    """What came of it. ``took_s``: of each run that ended, by its number."""

    waits: list[OperatorWait] = field(default_factory=list)
    took_s: dict[int, float] = field(default_factory=dict)


def simulate(
    runs: Sequence[SimulatedRun], engines: int, policy: Policy, stops: Mapping[int, float] | None = None
) -> SimulatedEnd:
    """All of these runs on so many equal engines; ``stops``: when an engine stops for good, by its number.
    Raises NoEngine where all have stopped."""
    most_head_start_s = max((run.head_start_s for run in runs), default=0.0)
    names = [f"engine {number}" for number in range(engines)]
    world = _World(runs, Placement(dict.fromkeys(names, 0.0), policy, most_head_start_s=most_head_start_s))
    for number, run in enumerate(runs):
        world.at(run.arrives_at, partial(world.next_step, number, 0))
    for number, stops_at in (stops or {}).items():
        world.at(stops_at, partial(world.stop, names[number]))
    return world.end()


@dataclass
class _Asked:
    """An operator under way: of which run and step, and when it was first placed."""

    run: int
    step: int
    operator: SimulatedOperator
    asked_at: float
    expected_s: float = 0.0


class _World:
    def __init__(self, runs: Sequence[SimulatedRun], placement: Placement) -> None:
        self.runs = runs
        self.placement = placement
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # of events at one moment
        self._asked: dict[int, _Asked] = {}  # by the number that it was placed under
        self._open: dict[int, int] = {}  # run → operators of its step that are not done
        self._stopped: set[str] = set()
        self._found = SimulatedEnd()

    def at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), what))

    def end(self) -> SimulatedEnd:
        while self._events:
            self.now, _, what = heapq.heappop(self._events)
            what()
        return self._found

    def next_step(self, number: int, step: int) -> None:
        run = self.runs[number]
        if step == len(run.steps):
            self._found.took_s[number] = self.now - run.arrives_at
            return
        self._open[number] = len(run.steps[step])
        for operator in run.steps[step]:
            self.place(_Asked(number, step, operator, self.now))

    def place(self, asked: _Asked) -> None:
        head_start_s = self.runs[asked.run].head_start_s
        placed = self.placement.place(asked.operator.reference, self.now, head_start_s)
        if asked.asked_at == self.now:
            asked.expected_s = placed.expected_s
        self._asked[placed.number] = asked
        self.begin(placed.engine)

    def begin(self, engine: str) -> None:
        if engine in self._stopped:
            return
        placed = self.placement.take(engine, self.now)
        if placed is not None:
            takes_s = self._asked[placed.number].operator.takes_s
            self.at(self.now + takes_s, partial(self.finish, placed, self.now))

    def finish(self, placed: Placed, began_at: float) -> None:
        if placed.engine in self._stopped:
            return
        self.placement.done(placed, self.now)
        asked = self._asked.pop(placed.number)
        run, waited_s = self.runs[asked.run], began_at - asked.asked_at
        self._found.waits.append(OperatorWait(run.model, run.tenant, asked.expected_s, waited_s))
        self._open[asked.run] -= 1
        if not self._open[asked.run]:
            self.next_step(asked.run, asked.step + 1)
        self.begin(placed.engine)

    def stop(self, engine: str) -> None:
        self._stopped.add(engine)
        self.at(self.now + SILENT_S, partial(self.notice, engine))

    def notice(self, engine: str) -> None:
        for placed in self.placement.remove(engine):
            self.place(self._asked.pop(placed.number))


def waited_by(found: SimulatedEnd, whose: Callable[[OperatorWait], str]) -> list[float]:
    """What the operators of each model (or tenant) waited on average."""
    waits = defaultdict[str, list[float]](list)
    for one in found.waits:
        waits[whose(one)].append(one.waited_s)
    return [fmean(waits[name]) for name in sorted(waits)]


def progress(runs: Sequence[SimulatedRun], found: SimulatedEnd) -> list[float]:
    """How fast each model got on, of 1: what its runs take alone ÷ what they took."""
    alone, took = defaultdict[str, float](float), defaultdict[str, float](float)
    for number, took_s in found.took_s.items():
        alone[runs[number].model] += runs[number].alone_s
        took[runs[number].model] += took_s
    return [alone[name] / took[name] for name in sorted(alone)]


def jain(shares: Iterable[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1 ÷ n where one has everything."""
    given = list(shares)
    squares = sum(one * one for one in given)
    return sum(given) ** 2 / (len(given) * squares) if squares else 1.0
