"""Who uses one operator, as far as the viewer may see: jobs, models, and its hit rate over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q, Sum
from django.db.models.functions import Trunc

from catalog import models
from catalog.selectors.traffic import Lookups, LookupSlot
from catalog.timerange import TimeRange
from catalog.viewing import Viewer


@dataclass(frozen=True)
class OperatorReuse(Lookups):
    """Who uses an operator: the grain is the job. Since the beginning."""

    jobs: Sequence[models.JobOperator]
    job_count: int
    models: Sequence[models.ModelOperator]
    hits: int
    misses: int
    saved_us: float = 0.0

    @property
    def more_jobs(self) -> int:
        return self.job_count - len(self.jobs)


def reuse(operator: models.Operator, viewer: Viewer, limit: int = 12) -> OperatorReuse:
    """Jobs and models that use it, and how its lookups ended. Counts come from the rollup."""
    mine = models.JobOperator.objects.filter(viewer.owned("job__organisation"), operator=operator)
    mine = mine.exclude(job__name="")
    totals = models.OperatorTotal.objects.filter(operator=operator, tenant=viewer.tenant)
    total = totals.first() or models.OperatorTotal()
    jobs = list(mine.select_related("job").order_by("-last_at", "-pk")[: limit + 1])
    # A job that was never answered is no use yet, and is listed all the same.
    count = max(total.jobs, mine.count() if len(jobs) > limit else len(jobs))
    given = models.ModelOperator.objects.filter(_models(viewer), operator=operator).select_related("model")
    return OperatorReuse(
        jobs=jobs[:limit],
        job_count=count,
        models=list(given.order_by("-calls", "pk")[:limit]),
        hits=total.hits,
        misses=total.misses,
        saved_us=total.saved_us,
    )


def lookups_of(operator: models.Operator, viewer: Viewer, span: TimeRange) -> list[LookupSlot]:
    """Its lookups in every hour or day of the range, the empty ones too."""
    mine = models.LookupTally.objects.filter(
        viewer.owned(), operator=operator, hour__gte=span.first(), hour__lt=span.until
    )
    counted = mine.annotate(start=Trunc("hour", span.grain)).values("start")
    found = {
        row["start"]: (row["hits"], row["misses"])
        for row in counted.annotate(hits=Sum("hits"), misses=Sum("misses")).order_by()
    }
    return [LookupSlot(start, *found.get(start, (0, 0))) for start in span.starts()]


def _models(viewer: Viewer) -> Q:
    """A model that nobody's organisation gave (the sample) is everybody's."""
    return viewer.owned("model__organisation") | Q(model__organisation=None)
