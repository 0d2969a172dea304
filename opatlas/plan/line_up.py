"""Which candidate runs a model fastest here: all take turns, and each is compared with the first in the same
round.

A kernel's time alone says little about its time in a model, where caches, fusion and threads differ. So only
what was timed in place is chosen.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb

import numpy as np

from opatlas.evidence import Ratios
from opatlas.noise import CONFIDENCE
from opatlas.plan.resting import OtherThreads

LEAST_ROUNDS, MOST_ROUNDS = 6, 60
"""Six is the least from which an order statistic gives 95 %."""
WARMING = 2
SETTLING_S = 0.004
"""The untimed part of a turn: caches fill again, and the candidate's threads wake."""
LONG_S = 5.0
"""A run of this length needs no settling."""
TIMED_S = 0.001
"""A turn takes as many runs as fill this time: a single short run says little."""
MOST_IN_TURN = 1000
"""The most runs that settle a turn; fewer are timed."""
HOPELESS_ROUNDS, HOPELESS = 3, 2.0
"""A candidate that took so many times as long as the fastest in each of so many rounds drops out."""
UNDECIDED = 1.2
"""A ratio above this whose interval reaches below 1: the host was disturbed, and the result is not kept."""
CACHE_BYTES = 1 << 26
"""More than one core's share of most processors' last-level cache."""


@dataclass(frozen=True, slots=True)
class TimedInTurns:
    """One candidate's time of a run in microseconds, and how many times as fast it is as the first.
    ``predicted_us``: the prediction, None if there was none."""

    said: str
    median_us: float
    ratios: Ratios
    predicted_us: float | None = None


def line_up(
    contenders: Mapping[str, Callable[[], object]], seconds: float, *, most_in_turn: int = MOST_IN_TURN
) -> dict[str, TimedInTurns]:
    """Time the candidates in turns for about so many seconds, at least six rounds. Each turn begins when the
    threads of the others sleep, and has at most ``most_in_turn`` runs and the timed ones. All are compared
    with the first. A candidate that fails is left out, unless it is the first."""
    running = dict(contenders)
    first = next(iter(running))
    once_s: dict[str, float] = {}
    for name, run in contenders.items():
        try:
            once_s[name] = max(SETTLING_S / most_in_turn, min(_seconds(run) for _ in range(WARMING)))
        except Exception:
            if name == first:
                raise
            del running[name]
    times: dict[str, list[float]] = {name: [] for name in running}
    others = OtherThreads()
    end = time.perf_counter() + seconds
    for turn in range(MOST_ROUNDS):
        if turn >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        if turn == HOPELESS_ROUNDS:
            # By their best rounds: whoever a busy host disturbed is not given up for it.
            best_us = {name: min(taken) for name, taken in times.items()}
            bound_us = HOPELESS * min(best_us.values())
            running = {one: run for one, run in running.items() if one == first or best_us[one] <= bound_us}
        order = list(running)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            others.wait()
            times[name].append(_turn_us(running[name], once_s[name]))
    return {
        name: TimedInTurns(
            name,
            statistics.median(taken),
            ratios_of([a / b for a, b in zip(times[first], taken, strict=False)]),  # as far as it took part
        )
        for name, taken in times.items()
    }


def turns_alone(run: Callable[[], object], least: int, most: int, seconds: float) -> list[float]:
    """Microseconds of a run in turns as in a line-up, but alone: ``least`` turns, then up to ``most`` within
    so many seconds. Caches are emptied between turns, as other candidates would."""
    once_s = min(_seconds(run) for _ in range(WARMING))
    others, elsewhere = OtherThreads(), np.zeros(CACHE_BYTES, np.uint8)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < least or (len(times) < most and time.perf_counter() < end):
        np.add(elsewhere, 1, out=elsewhere)
        others.wait()
        times.append(_turn_us(run, once_s))
    return times


def _turn_us(run: Callable[[], object], once_s: float) -> float:
    """Microseconds of a run, after some untimed ones."""
    for _ in range(_times(SETTLING_S, once_s) if once_s < LONG_S else 0):
        run()
    runs = _times(TIMED_S, once_s)
    start = time.perf_counter_ns()
    for _ in range(runs):
        run()
    return (time.perf_counter_ns() - start) / 1e3 / runs


def _times(fill_s: float, once_s: float) -> int:
    """Times of runs for about so long, at least one."""
    return max(1, min(1000, math.ceil(fill_s / max(once_s, 1e-7))))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ratios_of(ratios: list[float]) -> Ratios:
    """The median of paired ratios, with its interval from order statistics: no distribution is assumed."""
    ordered = sorted(ratios)
    count = len(ordered)
    outside, rank = 0.0, 0
    while rank < count // 2 and (outside := outside + 2 * comb(count, rank) / 2**count) <= 1 - CONFIDENCE:
        rank += 1
    low = max(0, rank - 1)
    return Ratios(statistics.median(ordered), ordered[low], ordered[count - 1 - low])
