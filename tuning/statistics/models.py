"""A model's coverage: what of its operators and calls is known now, and why the rest is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from catalog.models import MissState
from catalog.selectors.jobs import NOT_ASKED, REASONS, Coverage, Missing
from tuning.ingest import ModelReport

NOT_EXPRESSED = "no canonical form"


def coverage(report: ModelReport, states: Mapping[int, str] | None = None) -> Coverage:
    """By operators, and by the calls of one run, those without a canonical form included.

    ``states``: operator → what its miss shows on pages, for those that are not known; else the row's status.
    """
    states = states or {}
    hits = [row for row in report.rows if row.status == "hit"]
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in report.rows:
        if row.status == "hit":
            continue
        state = states.get(row.operator.pk, row.status)
        counts = sums[state, row.reason or _said(state)]
        counts[0] += 1
        counts[1] += row.calls
    for reason, calls in report.totals.unmapped.items():
        sums["unsupported", f"{NOT_EXPRESSED}: {reason}"][1] += calls
    missing = [Missing(state, reason, n, float(calls)) for (state, reason), (n, calls) in sums.items()]
    missing.sort(key=lambda one: (-one.calls, -one.operators, one.reason))
    return Coverage(
        operators=len(report.rows),
        covered=len(hits),
        calls=float(report.totals.calls),
        covered_calls=float(sum(row.calls for row in hits)),
        missing=tuple(missing),
    )


def saved_us(report: ModelReport) -> float:
    """What one run takes less than with the defaults, over the operators that are known."""
    return report.totals.default_us - report.totals.best_us


def _said(state: str) -> str:
    states = {"exploring": MissState.PROMOTED, "miss": MissState.WAITING}
    try:
        return REASONS[states.get(state) or MissState(state)]
    except ValueError:
        return NOT_ASKED
