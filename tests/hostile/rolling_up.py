"""Rollups refreshed and killed: ``python -m tests.hostile.rolling_up``.

From nothing but marks, a refresh is killed after its first write, then after its second, fourth and so on,
until one comes to its end. After each the next refresh runs whole, which makes only what is marked, and what
it leaves is held against the rows: what a killed one lost is lost for good.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tests.hostile.killing import after_writes, forked


def main() -> int:
    import django

    django.setup()
    from catalog.rollups.rollups import refresh_rollups
    from tests.figures.traffic_rows import messy_traffic

    _whole(lambda: messy_traffic(lookups=120))
    writes = 1
    while True:
        _whole(_begin)
        killed = os.WIFSIGNALED(forked(refresh_rollups, after_writes(writes)))
        _whole(refresh_rollups)
        _whole(_check)
        if not killed:
            return 0 if writes > 1 else 1
        writes *= 2


def _whole(work: Callable[[], Any]) -> None:
    """In a process of its own, so that no connection to the database is shared."""
    if forked(work):
        sys.exit(1)


def _begin() -> None:
    from catalog.models import OperatorTotal, RouteSlot, TrafficSlot
    from catalog.rollups.traffic_rollups import mark_everything

    for model in (TrafficSlot, RouteSlot, OperatorTotal):
        model._default_manager.all().delete()
    mark_everything()


def _check() -> None:
    from django.db.models import Sum

    from catalog.models import LookupTally, OperatorTotal, RouteSlot, StaleHour, TrafficSlot

    def sums(rows: Any, *names: str) -> list[Any]:
        found = rows.aggregate(**{f"all_{name}": Sum(name) for name in names})
        return [found[f"all_{name}"] for name in names]

    both = ("hits", "misses")
    expected = sums(LookupTally.objects, *both)
    for of_all in (True, False):

        def tenants(model: Any, of_all: bool = of_all) -> Any:
            rows = model.objects
            return rows.filter(tenant="all") if of_all else rows.exclude(tenant="all")

        for grain in ("hour", "day"):
            assert sums(tenants(TrafficSlot).filter(grain=grain), *both) == expected, (of_all, grain)
        assert sums(tenants(OperatorTotal), *both) == expected, (of_all, "operators")
        assert sums(tenants(RouteSlot), "hits") == expected[:1], (of_all, "routes")
    assert not StaleHour.objects.exists()


if __name__ == "__main__":
    sys.exit(main())
