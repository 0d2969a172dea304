"""Who uses one operator, as far as the viewer may see: jobs, models, and its hit rate over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q, Sum
from django.db.models.functions import TruncDay, TruncHour

from catalog import models
from catalog.selectors.traffic import LookupSlot
from catalog.timerange import TimeRange
from catalog.viewing import Viewer


@dataclass(frozen=True)
class OperatorReuse:
    """Who uses an operator: the grain is the job. Since the beginning."""

    jobs: Sequence[models.JobOperator]
    job_count: int
    models: Sequence[models.ModelOperator]
    hits: int
    misses: int
    saved_us: float = 0.0

    @property
    def asked(self) -> int:
        return self.hits + self.misses

    @property
    def more_jobs(self) -> int:
        return self.job_count - len(self.jobs)

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.asked if self.asked else None


def reuse(operator: models.Operator, viewer: Viewer, limit: int = 12) -> OperatorReuse:
    """Jobs and models that use it, and how its lookups ended. Counts come from the rollup."""
    mine = models.JobOperator.objects.filter(viewer.owned("job__organisation"), operator=operator)
    total = models.OperatorTotal.objects.filter(operator=operator, tenant=viewer.tenant).first()
    jobs = list(mine.select_related("job").order_by("-last_at", "-pk")[: limit + 1])
    # A job that was never answered is no use yet, and is listed all the same.
    count = max(total.jobs if total else 0, mine.count() if len(jobs) > limit else len(jobs))
    given = models.ModelOperator.objects.filter(_models(viewer), operator=operator).select_related("model")
    return OperatorReuse(
        jobs=jobs[:limit],
        job_count=count,
        models=list(given.order_by("-calls", "pk")[:limit]),
        hits=total.hits if total else 0,
        misses=total.misses if total else 0,
        saved_us=total.saved_us if total else 0.0,
    )


def lookups_of(operator: models.Operator, viewer: Viewer, span: TimeRange) -> list[LookupSlot]:
    """Its lookups in every hour or day of the range, the empty ones too."""
    by_day = span.grain == "day"
    truncate, step = (TruncDay, timedelta(days=1)) if by_day else (TruncHour, timedelta(hours=1))
    start = span.since.replace(minute=0, second=0, microsecond=0)
    start = start.replace(hour=0) if by_day else start
    mine = models.LookupTally.objects.filter(
        viewer.owned(), operator=operator, hour__gte=start, hour__lt=span.until
    )
    counted = mine.annotate(start=truncate("hour")).values("start")
    found = {
        row["start"]: (row["hits"], row["misses"])
        for row in counted.annotate(hits=Sum("hits"), misses=Sum("misses")).order_by()
    }
    made = []
    while start < span.until:
        made.append(LookupSlot(start, *found.get(start, (0, 0))))
        start += step
    return made


def _models(viewer: Viewer) -> Q:
    """A model that nobody's organisation gave (the sample) is everybody's."""
    return viewer.owned("model__organisation") | Q(model__organisation=None)
