"""What was measured, as the page and the statistics API show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from django.utils import timezone

from dashboard.operation.growth import forecast
from dashboard.operation.growth.forecast import DiskForecast, SizePoint
from dashboard.operation.growth.rules import NONE, rules
from dashboard.operation.models import SizeSample

SHOWN = timedelta(days=90)
REFUSAL = "Only operators and administrators of the service see what grows."


@dataclass(frozen=True)
class Grown:
    """One table or folder: what it takes, and how it grows."""

    name: str
    rows: Annotated[int | None, "As the database estimates it; null for a folder."]
    bytes: int
    bytes_a_day: Annotated[float | None, "Bytes by which it grows a day; null where it was measured once."]
    full_in_days: Annotated[float | None, "If it alone grew so; null where that is never, or not known."]
    disk: Annotated[str, "Where its disk is mounted; empty where it is another machine's."]
    rule: Annotated[str, "What keeps it in bounds."]


@dataclass(frozen=True)
class Growth:
    """What takes room, how fast it grows, and when its disk will be full."""

    said: Annotated[str, "The most urgent of it in words."]
    notes: Annotated[Sequence[str], "When nothing was measured."]
    measured_at: datetime | None
    disks: Sequence[DiskForecast]
    things: Annotated[Sequence[Grown], "The largest first."]


@dataclass(frozen=True)
class Measured:
    """Every sample of the last three months."""

    moments: Sequence[datetime]
    latest: Sequence[SizeSample]  # of the last time
    points: Mapping[str, Sequence[SizePoint]]  # by name
    free: Mapping[str, Sequence[SizePoint]]  # by disk; what is free, negative: what lies on it grows


def measured(now: datetime) -> Measured:
    """Two statements."""
    moments: dict[datetime, None] = {}
    points, free = defaultdict[str, list[SizePoint]](list), defaultdict[str, dict[datetime, int]](dict)
    rows = SizeSample.objects.filter(at__gte=now - SHOWN).order_by("at", "pk")
    for at, name, size, disk, left in rows.values_list("at", "name", "bytes", "disk", "free_bytes"):
        moments[at] = None
        points[name].append(SizePoint(at, size))
        if left is not None:
            free[disk][at] = -left
    latest = list(SizeSample.objects.filter(at=max(moments))) if moments else []
    series = {disk: [SizePoint(at, size) for at, size in found.items()] for disk, found in free.items()}
    return Measured(list(moments), latest, points, series)


def growth(found: Measured, now: datetime) -> Growth:
    """Of what was there the last time it was measured."""
    kept_by = rules()
    things = [_grown(row, found.points[row.name], kept_by.get(row.name, NONE)) for row in found.latest]
    disks = [
        _disk(name, free, found.free[name])
        for name, free in {row.disk: row.free_bytes for row in found.latest}.items()
        if free is not None
    ]
    said = forecast.said_of_samples(found.moments, now)
    if not said:
        unseen = [one.bytes_a_day or 0.0 for one in things if not one.disk]
        said = forecast.said_of_disks(disks, sum(unseen) if unseen else None)
    return Growth(
        said=said,
        notes=forecast.said_gaps(found.moments, now),
        measured_at=found.moments[-1] if found.moments else None,
        disks=disks,
        things=sorted(things, key=lambda one: (-one.bytes, one.name)),
    )


def growth_now() -> Growth:
    now = timezone.now()
    return growth(measured(now), now)


def _grown(row: SizeSample, points: Sequence[SizePoint], rule: str) -> Grown:
    a_day = forecast.bytes_a_day(points)
    full = forecast.full_in_days(row.free_bytes, a_day)
    return Grown(row.name, row.rows, row.bytes, a_day, full, row.disk, rule)


def _disk(name: str, free_bytes: int, free: Sequence[SizePoint]) -> DiskForecast:
    a_day = forecast.bytes_a_day(free)
    return DiskForecast(name, free_bytes, a_day, forecast.full_in_days(free_bytes, a_day))
