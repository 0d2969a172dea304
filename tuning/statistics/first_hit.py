"""Figures about explorations, for the demo, the benches and the pages."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tuning.models import Exploration


def seconds_to_first_hit(explorations: Iterable[Exploration]) -> dict[str, float | int]:
    """From the miss's arrival to its first published result: ``p50``, ``p95`` and how many they are of."""
    waits = sorted(
        (row.first_result_at - row.asked_at).total_seconds()
        for row in explorations
        if row.first_result_at is not None
    )
    if not waits:
        return {"count": 0}
    p95 = waits[min(len(waits) - 1, round(0.95 * (len(waits) - 1)))]
    return {"count": len(waits), "p50": statistics.median(waits), "p95": p95}
