"""A race drawn without a script: places along an axis in per cent, for the attributes of an SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opatlas.noise import RUNGS
from tuning.explore.race.report import Entry

_MARGIN = 0.06
"""Of the axis, left free at both ends."""
_ROUND_RATIOS = (
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    1.0,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    7.0,
    10.0,
    15.0,
    20.0,
    30.0,
    50.0,
    100.0,
)
_APART = 11.0
"""Per cent between two marks of an axis, at least."""


@dataclass(frozen=True)
class AxisMark:
    """``at``: per cent from the left."""

    at: float
    text: str


@dataclass(frozen=True)
class Whisker:
    """A finalist's ratio and interval on the final's axis, in per cent from the left."""

    at: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class RatioAxis:
    """Equal steps are equal factors; the default's 1× is always on it."""

    def __init__(self, finalists: Sequence[Entry]) -> None:
        ends = [one.final[end] for one in finalists if one.final for end in ("low", "high")]
        known = [1.0, *(end for end in ends if end > 0)]
        self._low, high = math.log(min(known)), math.log(max(known))
        self._span = max(high - self._low, 0.05)

    def at(self, ratio: float) -> float:
        share = (math.log(max(ratio, 1e-9)) - self._low) / self._span
        return round(100 * (_MARGIN + (1 - 2 * _MARGIN) * share), 2)

    @property
    def default(self) -> float:
        return self.at(1.0)

    @property
    def marks(self) -> list[AxisMark]:
        """The default's first; of the others those that have room."""
        found = [AxisMark(self.default, "1×")]
        for ratio in _ROUND_RATIOS:
            place = self.at(ratio)
            inside = 100 * _MARGIN <= place <= 100 * (1 - _MARGIN)
            if inside and all(abs(place - one.at) >= _APART for one in found):
                found.append(AxisMark(place, f"{ratio:g}×"))
        return found

    def whisker(self, entry: Entry) -> Whisker | None:
        if entry.final is None:
            return None
        return Whisker(*(self.at(entry.final[name]) for name in ("ratio", "low", "high")))


class RoundAxis:
    """Rounds of the heats; the longest that any candidate ran fills it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._most = max([RUNGS[-1], *(one.rounds for one in entries)])

    def at(self, rounds: int) -> float:
        return round(100 * rounds / self._most, 2)

    @property
    def marks(self) -> list[AxisMark]:
        return [AxisMark(self.at(rung), str(rung)) for rung in RUNGS]
