"""What lookups came to, over time and in all: read from rollups, whatever the size of the catalogue."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Sum

from catalog import models
from catalog.models import SHARED, STANDINGS, TRAFFIC, Grain
from catalog.selectors.traffic import Lookups, Saving
from catalog.timerange import TimeRange
from catalog.viewing import Viewer


@dataclass(frozen=True)
class Traffic(Lookups, Saving):
    """Lookups of one slot, or of several together. Of several, distinct operators are summed slot by slot."""

    hits: int = 0
    misses: int = 0
    hit_calls: float = 0.0
    miss_calls: float = 0.0
    operators_asked: int = 0
    operators_hit: int = 0
    reused_hits: int = 0
    saved_us: float = 0.0

    @property
    def hit_rate_by_calls(self) -> float | None:
        calls = self.hit_calls + self.miss_calls
        return self.hit_calls / calls if calls else None

    @property
    def hit_rate_by_operators(self) -> float | None:
        return self.operators_hit / self.operators_asked if self.operators_asked else None

    @property
    def reuse_rate(self) -> float | None:
        return self.reused_hits / self.hits if self.hits else None


Noted = Mapping[str, models.Rollup]
"""Rollups by their names: who wants the facts of several has read them already, by one statement."""

_COLUMNS = tuple(Traffic.__dataclass_fields__)


@dataclass(frozen=True)
class TrafficBucket(Traffic):
    """Lookups of one hour or day that begins at ``start`` (UTC). ``jobs``: distinct ones that were served."""

    start: datetime = datetime.min
    jobs: int = 0


@dataclass(frozen=True)
class CatalogueFigures:
    """What is known to this viewer: shared, and of its organisations."""

    operators: int  # ever asked for, by anybody
    known: int  # operators with a verified best
    implementations: int  # verified, losers included, revoked ones not
    geomean_speedup: float | None  # of the winners, over the default
    wins: dict[str, int]  # method → operators (per target and setting) whose winner it made


@dataclass(frozen=True)
class ReuseFigures:
    """How jobs share operators, since the beginning."""

    operators: int = 0  # asked for by a named job
    job_operators: int = 0  # pairs of a job and an operator that it asked for
    shared: int = 0  # operators that two jobs or more asked for

    @property
    def jobs_per_operator(self) -> float | None:
        return self.job_operators / self.operators if self.operators else None

    @property
    def shared_operators(self) -> float | None:
        return self.shared / self.operators if self.operators else None


@dataclass(frozen=True)
class RouteTraffic(Saving):
    """Hits that one route served, over whole days."""

    method: str
    route: str
    hits: int
    calls: float
    saved_us: float


def slots(viewer: Viewer, time_range: TimeRange) -> list[TrafficBucket]:
    """Every hour or day of the range, the empty ones too: a gap in traffic is a fact. The first one is the
    slot that ``since`` lies in, whole."""
    rows = models.TrafficSlot.objects.filter(
        tenant=viewer.tenant,
        grain=time_range.grain,
        start__gte=time_range.first(),
        start__lt=time_range.until,
    )
    found = {row["start"]: row for row in rows.values("start", "jobs", *_COLUMNS)}
    return [TrafficBucket(**found.get(start, {"start": start})) for start in time_range.starts()]


def total(of: list[TrafficBucket]) -> Traffic:
    """Several slots together."""
    return Traffic(**{name: sum(getattr(slot, name) for slot in of) for name in _COLUMNS})


def routes(viewer: Viewer, time_range: TimeRange) -> list[RouteTraffic]:
    """Who served the hits, over the whole days that the range touches; what saved most comes first."""
    rows = models.RouteSlot.objects.filter(
        tenant=viewer.tenant, start__gte=time_range.first("day"), start__lt=time_range.until
    )
    sums: Any = rows.values("method", "route").annotate(
        **{name: Sum(name) for name in ("hits", "calls", "saved_us")}
    )
    return [RouteTraffic(**row) for row in sums.order_by("-saved_us", "route")]


def began(viewer: Viewer) -> datetime | None:
    """The first hour with a lookup that was ever counted."""
    rows = models.TrafficSlot.objects.filter(tenant=viewer.tenant, grain=Grain.HOUR)
    return rows.order_by("start").values_list("start", flat=True).first()


def catalogue(viewer: Viewer, noted: Noted | None = None) -> CatalogueFigures:
    """From the facts that were noted when the standings were made."""
    facts = models.Rollup.facts_of(STANDINGS, noted)
    seen = [fact for scope, fact in facts.get("scopes", {}).items() if _is_shown(viewer, scope)]
    winners = sum(fact["winners"] for fact in seen)
    wins: Counter[str] = Counter()
    for fact in seen:
        wins.update(fact["wins"])
    return CatalogueFigures(
        operators=facts["operators"] if facts else models.Operator.objects.count(),
        known=sum(fact["known"] for fact in seen),
        implementations=sum(fact["implementations"] for fact in seen),
        geomean_speedup=math.exp(sum(fact["log_speedup"] for fact in seen) / winners) if winners else None,
        wins=wins,
    )


def reuse(viewer: Viewer, noted: Noted | None = None) -> ReuseFigures:
    """From the facts that were noted when the operators' totals were made."""
    facts = models.Rollup.facts_of(TRAFFIC, noted)
    return ReuseFigures(**facts.get("reuse", {}).get(viewer.tenant, {}))


def jobs_served(viewer: Viewer) -> int:
    """Named jobs, ever."""
    return models.Job.objects.filter(viewer.owned()).exclude(name="").count()


def rolled_up_at() -> datetime | None:
    """When lookups were last rolled up: what is younger shows later."""
    return models.Rollup.objects.filter(name=TRAFFIC).values_list("made_at", flat=True).first()


def _is_shown(viewer: Viewer, scope: str) -> bool:
    own = {f"org:{number}" for number in viewer.roles}
    return viewer.sees_all or scope == SHARED or scope in own
