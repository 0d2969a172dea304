"""Lookups over time, and the catalogue's key figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Avg, Count, FloatField, Min, Q, Sum
from django.db.models.functions import Ln, TruncDay, TruncHour

from catalog import models


@dataclass(frozen=True)
class Slot:
    """Lookups of one hour or day."""

    start: datetime
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


@dataclass(frozen=True)
class Totals:
    """What the catalogue amounts to."""

    operators: int
    known: int  # operators with a verified best
    implementations: int
    geomean_speedup: float | None  # of the winners, over the default
    jobs: int


@dataclass(frozen=True)
class Idle:
    """Misses that nobody explores now, for one reason."""

    state: str
    reason: str
    n: int


def lookups(
    since: datetime, until: datetime, by_day: bool, operator: models.Operator | None = None
) -> list[Slot]:
    """Every hour or day from ``since`` to ``until``, the empty ones too: a gap in traffic is a fact."""
    start = since.replace(minute=0, second=0, microsecond=0)
    start = start.replace(hour=0) if by_day else start
    truncate, step = (TruncDay, timedelta(days=1)) if by_day else (TruncHour, timedelta(hours=1))
    counted = models.LookupTally.objects.filter(hour__gte=start, hour__lte=until)
    if operator is not None:
        counted = counted.filter(operator=operator)
    slots = {
        slot["start"]: slot
        for slot in counted.annotate(start=truncate("hour"))
        .values("start")
        .annotate(hits=Sum("hits"), misses=Sum("misses"))
        .order_by()
    }
    made = []
    while start <= until:
        slot = slots.get(start, {"hits": 0, "misses": 0})
        made.append(Slot(start, slot["hits"], slot["misses"]))
        start += step
    return made


def began() -> datetime | None:
    """The hour of the first lookup that was ever counted."""
    return models.LookupTally.objects.aggregate(first=Min("hour"))["first"]


def totals(visible: Q) -> Totals:
    """Counts of the whole catalogue and the winners' geometric mean speed-up."""
    winners = models.Best.objects.filter(visible, rank=0).aggregate(
        known=Count("operator", distinct=True),
        mean_log=Avg(Ln("ratio_to_default"), filter=Q(ratio_to_default__gt=0), output_field=FloatField()),
    )
    mean_log = winners["mean_log"]
    return Totals(
        operators=models.Operator.objects.count(),
        known=winners["known"],
        implementations=models.Implementation.objects.filter(visible, revoked_at=None).count(),
        geomean_speedup=None if mean_log is None else math.exp(mean_log),
        jobs=models.Job.objects.count(),
    )


def wins_by_method(visible: Q) -> dict[str, int]:
    """Method → operators whose winner it made."""
    winners = models.Best.objects.filter(visible, rank=0).values_list("method")
    return dict(winners.annotate(n=Count("pk")).order_by())


def misses_by_reason(visible: Q, limit: int = 8) -> list[Idle]:
    """The states and reasons of misses that nobody explores now, the commonest first."""
    idle = [
        models.MissState.WAITING,
        models.MissState.POSTPONED,
        models.MissState.DISCARDED,
        models.MissState.UNSUPPORTED,
        models.MissState.FAILED,
    ]
    found = models.Miss.objects.filter(visible, state__in=idle).values("state", "reason")
    counted = found.annotate(n=Count("pk")).order_by("-n", "state")[:limit]
    return [Idle(row["state"], row["reason"], row["n"]) for row in counted]
