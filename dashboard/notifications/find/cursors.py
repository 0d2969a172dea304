"""How far sources were read: a crash repeats nothing, and a row that is committed late is not missed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from dashboard.notifications.models import Cursor
from tuning.queue.clock import database_now

logger = logging.getLogger(__name__)

GAP_S = 3600.0
"""How long we look for a missing number: the longest transaction that is waited for."""

WINDOW = timedelta(minutes=5)
"""How far back sources found by time are read again: the longest transaction there."""

MOST_GAPS = 1000
_RANGES_PER_QUERY = 100

Gap = list[Any]
"""``[first, last, until]``: numbers that were not there, looked for until then (seconds since 1970)."""


def locked(name: str) -> Cursor:
    """The cursor, held by this transaction: two couriers take turns."""
    Cursor.objects.get_or_create(name=name, defaults={"position": -1})
    return Cursor.objects.select_for_update().get(name=name)


def take(cursor: Cursor, rows: QuerySet[Any], most: int) -> list[Any]:
    """The next rows by number, and those that appeared in gaps; the cursor moves past them (unsaved). Each
    row comes exactly once, in whatever order transactions end. ``rows`` has no order and no slice."""
    late = [row for found in _in_gaps(cursor, rows) for row in found]
    fresh = list(rows.filter(pk__gt=cursor.position).order_by("pk")[:most])
    now_s = database_now().timestamp()
    seen = {row.pk for row in late}
    gaps = [part for gap in cursor.gaps if gap[2] > now_s for part in _without(gap, seen)]
    before = cursor.position
    for row in fresh:
        if row.pk > before + 1:
            gaps.append([before + 1, row.pk - 1, now_s + GAP_S])
        before = row.pk
    if len(gaps) > MOST_GAPS:
        logger.warning("%s: too many gaps; the oldest %d are given up.", cursor.name, len(gaps) - MOST_GAPS)
    cursor.position, cursor.gaps = before, gaps[-MOST_GAPS:]
    return late + fresh


def _in_gaps(cursor: Cursor, rows: QuerySet[Any]) -> Iterable[QuerySet[Any]]:
    for start in range(0, len(cursor.gaps), _RANGES_PER_QUERY):
        inside = Q()
        for first, last, _ in cursor.gaps[start : start + _RANGES_PER_QUERY]:
            inside |= Q(pk__range=(first, last))
        yield rows.filter(inside).order_by("pk")


def _without(gap: Gap, seen: set[int]) -> list[Gap]:
    """What is left of a gap once those were found."""
    first, last, until = gap
    parts, begin = [], first
    for number in sorted(number for number in seen if first <= number <= last):
        if number > begin:
            parts.append([begin, number - 1, until])
        begin = number + 1
    return [*parts, [begin, last, until]] if begin <= last else parts
