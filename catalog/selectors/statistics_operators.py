"""Operators by what lookups of them came to: reuse, hit rate, time saved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet

from catalog import models
from catalog.selectors.traffic import Lookups, Saving
from catalog.viewing import Viewer

SORTS = {"jobs": "jobs", "saved": "saved_us", "lookups": "asked"}
"""What a list can be sorted by, and the column; each has an index."""


@dataclass(frozen=True)
class OperatorTraffic(Lookups, Saving):
    """One operator's lookups since the beginning, of one organisation or of all."""

    operator: models.Operator  # its graph is not read
    jobs: int
    hits: int
    misses: int
    calls: float
    saved_us: float
    last_at: datetime  # the hour of the last lookup


def totals(viewer: Viewer, sort: str = "-jobs") -> QuerySet[models.OperatorTotal]:
    """Rows to be sliced and given to :func:`described`; ``sort`` is one of ``SORTS``, ``-`` for downwards."""
    descending, column = sort.startswith("-"), SORTS[sort.removeprefix("-")]
    rows = models.OperatorTotal.objects.filter(tenant=viewer.tenant)
    rows = rows.alias(asked=F("hits") + F("misses"))
    order = (f"-{column}", "-operator_id") if descending else (column, "operator_id")
    return rows.order_by(*order).select_related("operator").defer("operator__graph")


def described(row: models.OperatorTotal) -> OperatorTraffic:
    """A row with its rates."""
    return OperatorTraffic(row.operator, row.jobs, row.hits, row.misses, row.calls, row.saved_us, row.last_at)


def top(viewer: Viewer, sort: str, limit: int = 10) -> list[OperatorTraffic]:
    """The first few of a list."""
    return [described(row) for row in totals(viewer, sort)[:limit]]
