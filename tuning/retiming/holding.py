"""Whether published times hold when they are taken again. PURE.

A published interval *holds* when the ratio to the default that is taken later, in fresh processes, lies in
it. The later ratio has an error of its own, which is not granted: of exact 95 % intervals fewer would hold.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opatlas.evidence import Ratios


@dataclass(frozen=True)
class Retimed:
    """One published best, timed again: default ÷ implementation then and now, with their 95 % intervals."""

    key: str  # the operator's
    operator: str
    route: str
    label: str
    age_s: float  # of the evidence, when it was taken again
    ratio: float
    low: float
    high: float
    again: float = 0.0  # 0: it could not be timed
    again_low: float = 0.0
    again_high: float = 0.0
    reason: str = ""  # why it could not

    @property
    def published(self) -> Ratios:
        return Ratios(self.ratio, self.low, self.high)

    @property
    def timed(self) -> bool:
        return self.again > 0

    @property
    def holds(self) -> bool:
        return self.timed and self.low <= self.again <= self.high

    @property
    def overlaps(self) -> bool:
        """Both intervals have something in common: what holds, and what only the later error took out."""
        return self.timed and self.again_low <= self.high and self.low <= self.again_high

    @property
    def half_width(self) -> float:
        """Of the published interval, as a share of its ratio."""
        return half_width(self.published)

    def __str__(self) -> str:
        what = f"{self.operator[:60]}  {self.route}: {self.ratio:.3f}× ({self.low:.3f}–{self.high:.3f})"
        if not self.timed:
            return f"{what}; not timed again: {self.reason}"
        return f"{what}, now {self.again:.3f}×: {'holds' if self.holds else 'does not hold'}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def half_width(ratios: Ratios) -> float:
    return (ratios.high - ratios.low) / 2 / ratios.ratio


def summarize_retimed(rows: Sequence[Retimed]) -> dict[str, Any]:
    """Shares, widths and ages; None where nothing was timed. What could not be timed again is counted, and
    is in no share."""
    timed = [row for row in rows if row.timed]
    return {
        "bests": len(rows),
        "retimed": len(timed),
        "reproduced": _share([row.holds for row in timed]),
        "overlapping": _share([row.overlaps for row in timed]),
        "slower_than_published": sum(row.again < row.low for row in timed),
        "faster_than_published": sum(row.again > row.high for row in timed),
        "median_half_width": _median([row.half_width for row in timed]),
        "median_half_width_again": _median(
            [half_width(Ratios(row.again, row.again_low, row.again_high)) for row in timed]
        ),
        "median_drift": _median([abs(row.again / row.ratio - 1) for row in timed]),
        "youngest_s": min((row.age_s for row in timed), default=None),
        "median_age_s": _median([row.age_s for row in timed]),
        "oldest_s": max((row.age_s for row in timed), default=None),
    }


def _share(values: Sequence[bool]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _median(values: Sequence[float]) -> float | None:
    return float(f"{statistics.median(values):.4g}") if values else None
