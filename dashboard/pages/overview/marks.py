"""Marks on charts over time: other versions were declared, or began to run."""

from __future__ import annotations

from datetime import datetime

from catalog.timerange import TimeRange
from dashboard.operation.models import Release
from tuning.models import Revalidation

MOST = 20
"""Of each kind, the latest."""

Moment = tuple[datetime, str]
"""When, and what happened then in words."""


def marks_within(chosen: TimeRange) -> list[Moment]:
    """In their order; two statements."""
    return sorted([*_declared(chosen), *_released(chosen)])


def _declared(chosen: TimeRange) -> list[Moment]:
    """When another environment was declared for a route, and which."""
    rows = Revalidation.objects.filter(
        before__isnull=False, asked_at__gte=chosen.since, asked_at__lt=chosen.until
    )
    shown = rows.select_related("target", "after").order_by("-pk")[:MOST]
    return [(row.asked_at, f"{row} was declared for {row.target.capability}") for row in shown]


def _released(chosen: TimeRange) -> list[Moment]:
    """When the service was upgraded, or libraries of a worker's became other ones."""
    rows = Release.objects.filter(at__gte=chosen.since, at__lt=chosen.until).exclude(said="")
    shown = rows.select_related("target").defer("target__description").order_by("-pk")[:MOST]
    return [
        (row.at, f"{row} on {row.host} ({row.target.capability})" if row.target else str(row))
        for row in shown
    ]
