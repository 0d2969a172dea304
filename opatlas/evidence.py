"""Evidence: how fast something ran beside the default. One shape from the timer to pages. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

TIMES = ("median_us", "spread_us", "default_us", "ratio_to_default", "ratio_low", "ratio_high")
"""What is told with every best, wherever it is told: fields of :class:`Evidence`, columns of its rows."""


RATIOS = ("ratio_to_default", "ratio_low", "ratio_high")
CHECKS = ("max_error", "tolerance", "prepare_us", "prepare_bytes", "tier")
"""What else is known of what was timed: how right it is, what preparing it took, and in which sandbox."""


def figures_of(row: Any, names: Iterable[str] = TIMES) -> dict[str, Any]:
    """These figures of evidence, or of a row that has them."""
    return {name: getattr(row, name) for name in names}


@dataclass(frozen=True, slots=True)
class Ratios:
    """Default ÷ candidate with its 95 % interval; above 1 is faster than the default."""

    ratio: float
    low: float
    high: float

    @property
    def confirmed_slower(self) -> bool:
        """Even the upper bound is below the default."""
        return self.high < 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Times of one candidate and the default, taken in turns; errors against the reference.

    ``ratio_to_default`` is default ÷ candidate: above 1 is faster. ``ratio_low`` and ``ratio_high`` bound it
    (95 % bootstrap over the paired samples, and 1 % for what differs between two processes).
    Samples are microseconds per run.
    """

    median_us: float
    spread_us: float  # half the distance between the quartiles
    default_us: float
    ratio_to_default: float
    ratio_low: float
    ratio_high: float
    samples_us: tuple[float, ...] = ()
    max_error: float | None = None  # of the worst element, as a share of what is allowed there
    tolerance: float | None = None  # the share that passes: 1
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    tier: str = ""  # sandbox tier: "T2", "T1", "T0"

    @property
    def ratios(self) -> Ratios:
        return Ratios(self.ratio_to_default, self.ratio_low, self.ratio_high)

    def with_ratio_times(self, share: float) -> Evidence:
        """The same with the ratio and its bounds multiplied."""
        return replace(self, **{name: share * ratio for name, ratio in figures_of(self, RATIOS).items()})

    @property
    def as_default(self) -> Evidence:
        """Of the default itself: by definition at a ratio of 1."""
        return replace(self, ratio_to_default=1.0, ratio_low=1.0, ratio_high=1.0)

    @property
    def is_sound(self) -> bool:
        """Times and ratios are finite and above 0 (a slope of zero has no ratio), all else is finite: no
        answer can carry infinity."""
        above_0 = (self.median_us, self.default_us, self.ratio_to_default, self.ratio_low, self.ratio_high)
        rest = (self.spread_us, self.max_error, self.tolerance, self.prepare_us, *self.samples_us)
        return all(math.isfinite(number) and number > 0 for number in above_0) and all(
            number is None or math.isfinite(number) for number in rest
        )
