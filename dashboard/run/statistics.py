"""The few statistics that reports print."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def geometric_mean(ratios: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Geometric mean, weighted if weights are given; 1 for nothing. A ratio of 0 counts as a thousandth."""
    weights = [1.0] * len(ratios) if weights is None else weights
    total = sum(weights)
    if total <= 0:
        return 1.0
    return math.exp(sum(w * math.log(max(r, 1e-3)) for r, w in zip(ratios, weights, strict=True)) / total)


def percentile(values: Sequence[float], percent: int) -> float:
    """The percentile by linear interpolation; raises ValueError for no values."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def harmonic_mean(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """Speed-up of a whole whose parts take ``weights`` and speed up by ``ratios``; 1 for nothing."""
    total = sum(weights)
    return total / sum(w / max(r, 1e-3) for w, r in zip(weights, ratios, strict=True)) if total > 0 else 1.0
