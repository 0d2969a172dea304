"""Groups of failures as people see them: shared ones, and their own organisation's."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from catalog.viewing import Viewer
from tuning.failures.grouping import FAILURES
from tuning.models import FailureGroup, FailurePlace

STATUSES = tuple(sorted(FAILURES))
SORTS = {"last": "last_at", "first": "first_at", "trials": "trials", "operators": "operators"}


@dataclass(frozen=True)
class FailureFilters:
    """``q``: words of the reason or a route's name."""

    q: str = ""
    status: str = ""
    sort: str = "-last"


def groups(viewer: Viewer, asked: FailureFilters) -> QuerySet[FailureGroup]:
    """By the rollup alone, whatever the number of trials."""
    rows = FailureGroup.objects.filter(viewer.shown())
    for word in asked.q.split():
        rows = rows.filter(Q(reason__icontains=word) | Q(routes__icontains=word))
    if asked.status:
        rows = rows.filter(status=asked.status)
    column = SORTS.get(asked.sort.removeprefix("-"), "last_at")
    order = f"-{column}" if asked.sort.startswith("-") else column
    return rows.order_by(order, "-pk")


def places(group: FailureGroup) -> QuerySet[FailurePlace]:
    """The explorations that a group's cause struck, the latest first; graphs, which are large, unread."""
    rows = FailurePlace.objects.filter(group=group).select_related(
        "exploration__operator", "exploration__target"
    )
    heavy = ("exploration__operator__graph", "exploration__target__description")
    return rows.defer(*heavy).order_by("-last_at", "-pk")
