"""Lists in parts: statements that each walk an index, where one for all of it would sort every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet


def taken(parts: Sequence[QuerySet[Any, Any]], start: int, stop: int) -> list[Any]:
    """What stands from ``start`` up to ``stop`` where the parts follow each other."""
    found: list[Any] = []
    before = start  # of the part at hand, what is not wanted
    for number, part in enumerate(parts, 1):
        here = list(part[before : before + stop - start - len(found)])
        found += here
        if len(found) == stop - start or number == len(parts):
            break
        before = max(0, before - part.order_by().count()) if before and not here else 0
    return found
