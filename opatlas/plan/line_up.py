"""Who runs a model fastest here: contenders take turns, and each is compared with the first in its own round.

What a kernel takes alone says little of what it takes in a model: caches, fusion and other threads differ. So
nothing is chosen that was not timed in place.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb

from opatlas.evidence import Ratios
from opatlas.noise import CONFIDENCE

LEAST_ROUNDS, MOST_ROUNDS = 6, 60
"""Six is the least from which an order statistic gives 95 %."""
WARMING = 2


@dataclass(frozen=True, slots=True)
class TimedInTurns:
    """One contender's time of a run, in microseconds, and how much faster it is than the first."""

    said: str
    median_us: float
    ratios: Ratios


def line_up(contenders: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, TimedInTurns]:
    """Time them in turns for about so many seconds, at least six rounds. The first is what the others are
    compared with; one that fails is left out, unless it is the first."""
    names, running = list(contenders), dict(contenders)
    first = names[0]
    for name in names:
        try:
            for _ in range(WARMING):
                running[name]()
        except Exception:
            if name == first:
                raise
            del running[name]
    times: dict[str, list[float]] = {name: [] for name in running}
    end = time.perf_counter() + seconds
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        order = list(running)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            start = time.perf_counter_ns()
            running[name]()
            times[name].append((time.perf_counter_ns() - start) / 1e3)
    return {
        name: TimedInTurns(
            name,
            statistics.median(taken),
            ratios_of([a / b for a, b in zip(times[first], taken, strict=True)]),
        )
        for name, taken in times.items()
    }


def ratios_of(ratios: list[float]) -> Ratios:
    """The median of paired ratios with its interval from order statistics, which supposes no distribution."""
    ordered = sorted(ratios)
    count = len(ordered)
    outside, rank = 0.0, 0
    while rank < count // 2 and (outside := outside + 2 * comb(count, rank) / 2**count) <= 1 - CONFIDENCE:
        rank += 1
    low = max(0, rank - 1)
    return Ratios(statistics.median(ordered), ordered[low], ordered[count - 1 - low])
