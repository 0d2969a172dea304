"""Reference times: what operators are expected to take, and how reality differs from it. PURE.

A reference time is one run of an operator alone on an engine, as the catalogue measured it. It is never
changed by what happens in queues: how reality differs is kept apart, as a ratio by kind.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

ASSUMED_S = 1e-3
"""Where nothing at all is known. Its size does not matter: as long as all operators count alike, the shortest
expected wait is the shortest queue."""

LATEST = 9
"""Runs of a kind that its ratio is the median of: four of them may be outliers."""
ENOUGH = 3
"""Runs before a reference time is doubted: one that was disturbed says nothing."""


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """What an operator is expected to take. Those of one ``kind`` are corrected together: an operator's key
    where it runs again and again, what it is like where each runs once. ``estimated``: it has no reference
    time, and this is the median of what it is like."""

    kind: str
    seconds: float
    estimated: bool = False


class ReferenceTimes:
    """The known ones, as (family, key, seconds). Seconds that are no time (zero, negative, not finite) count
    as missing."""

    def __init__(self, known: Iterable[tuple[str, str, float]]) -> None:
        self._seconds: dict[str, float] = {}
        by_family: dict[str, list[float]] = defaultdict(list)
        for family, key, seconds in known:
            if is_time(seconds):
                self._seconds[key] = seconds
                by_family[family].append(seconds)
        self._of_family = {family: median(found) for family, found in by_family.items()}
        self._of_all = median(self._seconds.values()) if self._seconds else ASSUMED_S

    def of(self, key: str, family: str) -> ReferenceTime:
        """Its own; else its family's median, else that of all, marked as estimated."""
        seconds = self._seconds.get(key)
        if seconds is not None:
            return ReferenceTime(key, seconds)
        return ReferenceTime(key, self._of_family.get(family, self._of_all), estimated=True)


class Corrections:
    """By which factor runs of each kind took longer than their reference times said."""

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST))
        self._ratios: dict[str, float] = {}

    def learn(self, reference: ReferenceTime, took_s: float) -> None:
        """One run, without what it waited."""
        if is_time(reference.seconds) and is_time(took_s):
            latest = self._latest[reference.kind]
            latest.append(took_s / reference.seconds)
            if len(latest) >= ENOUGH:
                self._ratios[reference.kind] = median(latest)

    def ratio(self, kind: str) -> float:
        """1 where too few runs are known."""
        return self._ratios.get(kind, 1.0)


def is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0
