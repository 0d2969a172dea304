"""What jobs' hits came to, counted once more from the usage rows: what draining counted must agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from django.db import transaction
from django.db.models import F, Max, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce, TruncDay

from catalog import models

_BATCH = 2_000
_UNNAMED = Subquery(
    models.Job.objects.filter(organisation=OuterRef("organisation"), name="").values("pk")[:1]
)
_Row = TypeVar("_Row")


def recount_job_days() -> int:
    """In the place of what is there; gives the days made."""
    with transaction.atomic():
        models.JobDay.objects.all().delete()
        models.JobPlace.objects.all().delete()
        served = models.Usage.objects.annotate(counted=Coalesce("job", _UNNAMED)).exclude(counted=None)
        days = (
            served.annotate(start=TruncDay("served_at"))
            .values("counted", "start", "method")
            .annotate(
                n=Sum("lookups"),
                all_calls=Sum("calls"),
                all_default=Sum(F("calls") * F("default_us")),
                all_saved=Sum(F("calls") * (F("default_us") - F("median_us"))),
            )
            .order_by()
        )
        made = 0
        for batch in _batches(days.iterator(_BATCH)):
            models.JobDay.objects.bulk_create(
                models.JobDay(
                    job_id=row["counted"], start=row["start"], method=row["method"], hits=row["n"],
                    calls=row["all_calls"], default_us=row["all_default"], saved_us=row["all_saved"],
                )
                for row in batch
            )  # fmt: skip
            made += len(batch)
        _remake_places(served)
        _remake_job_operators(served)
    return made


def _remake_places(served) -> None:  # type: ignore[no-untyped-def]
    places = (
        served.filter(implementation__isnull=False)
        .values("counted", "implementation__target", "implementation__setting")
        .annotate(last=Max("served_at"))
        .order_by()
    )
    for batch in _batches(places.iterator(_BATCH)):
        models.JobPlace.objects.bulk_create(
            models.JobPlace(
                job_id=row["counted"], target_id=row["implementation__target"],
                setting_id=row["implementation__setting"], last_at=row["last"],
            )
            for row in batch
        )  # fmt: skip


def _remake_job_operators(served) -> None:  # type: ignore[no-untyped-def]
    """Of hits only: what misses would have called is nowhere but in the row itself."""
    sums = (
        served.values("counted", "operator_id")
        .annotate(all_calls=Sum("calls"), all_saved=Sum(F("calls") * (F("default_us") - F("median_us"))))
        .order_by()
    )
    for batch in _batches(sums.iterator(_BATCH)):
        wanted = {(row["counted"], row["operator_id"]): row for row in batch}
        found = models.JobOperator.objects.filter(
            job__in={job for job, _ in wanted}, operator__in={operator for _, operator in wanted}
        )
        changed = []
        for row in found:
            if sum_ := wanted.get((row.job_id, row.operator_id)):
                row.hit_calls, row.saved_us = sum_["all_calls"], sum_["all_saved"]
                changed.append(row)
        models.JobOperator.objects.bulk_update(changed, ["hit_calls", "saved_us"], batch_size=200)


def _batches(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
