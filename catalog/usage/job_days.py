"""Per job: what its hits came to, day by day and method by method, and where they were served.

Counted with the usage rows, in the transaction that drains them, so that they agree to the unit; a job's page
then reads some rows for each day instead of every hit. ``remake`` counts them again from the usage rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from django.db import transaction
from django.db.models import Count, F, Max, Sum
from django.db.models.functions import TruncDay

from catalog import models
from catalog.upsert import insert_or

_BATCH = 2_000
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class ServedHit:
    """One hit as it is drained. Times in µs of one call."""

    job_id: int
    implementation_id: int | None
    method: str
    at: datetime
    calls: float
    default_us: float
    median_us: float


def add_job_days(hits: Iterable[ServedHit]) -> None:
    """Count drained hits; call it in the transaction that stores their usage."""
    days: dict[tuple[int, datetime, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    last: dict[tuple[int, int], datetime] = {}
    for hit in hits:
        start = hit.at.replace(hour=0, minute=0, second=0, microsecond=0)
        sums = days[hit.job_id, start, hit.method]
        sums[0] += 1
        sums[1] += hit.calls
        sums[2] += hit.calls * hit.default_us
        sums[3] += hit.calls * (hit.default_us - hit.median_us)
        if hit.implementation_id is not None:
            at = last.get((hit.job_id, hit.implementation_id), hit.at)
            last[hit.job_id, hit.implementation_id] = max(at, hit.at)
    names = ("hits", "calls", "default_us", "saved_us")
    insert_or(
        models.JobDay,
        [
            {"job_id": job, "start": start, "method": method, **dict(zip(names, sums, strict=True))}
            for (job, start, method), sums in sorted(days.items())
        ],
        unique=["job_id", "start", "method"],
        updates={name: f"old.{name} + new.{name}" for name in names},
    )
    _add_places(last)


def _add_places(last: dict[tuple[int, int], datetime]) -> None:
    """``last``: (job, implementation) → when it was served last."""
    made = models.Implementation.objects.filter(pk__in={implementation for _, implementation in last})
    where = {pk: (target, setting) for pk, target, setting in made.values_list("pk", "target", "setting")}
    places: dict[tuple[int, int, int], datetime] = {}
    for (job, implementation), at in last.items():
        if implementation in where:
            key = (job, *where[implementation])
            places[key] = max(places.get(key, at), at)
    insert_or(
        models.JobPlace,
        [
            {"job_id": job, "target_id": target, "setting_id": setting, "last_at": at}
            for (job, target, setting), at in sorted(places.items())
        ],
        unique=["job_id", "target_id", "setting_id"],
        updates={"last_at": "new.last_at"},
    )


def remake() -> int:
    """Count all of it again from the usage rows (after a repair or a bulk load); gives the days made."""
    with transaction.atomic():
        models.JobDay.objects.all().delete()
        models.JobPlace.objects.all().delete()
        served = models.Usage.objects.filter(job__isnull=False)
        days = (
            served.annotate(start=TruncDay("served_at"))
            .values("job_id", "start", "method")
            .annotate(
                n=Count("pk"),
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
                    job_id=row["job_id"], start=row["start"], method=row["method"], hits=row["n"],
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
        .values("job_id", "implementation__target", "implementation__setting")
        .annotate(last=Max("served_at"))
        .order_by()
    )
    for batch in _batches(places.iterator(_BATCH)):
        models.JobPlace.objects.bulk_create(
            models.JobPlace(
                job_id=row["job_id"], target_id=row["implementation__target"],
                setting_id=row["implementation__setting"], last_at=row["last"],
            )
            for row in batch
        )  # fmt: skip


def _remake_job_operators(served) -> None:  # type: ignore[no-untyped-def]
    """Of hits only: what misses would have called is nowhere but in the row itself."""
    sums = (
        served.values("job_id", "operator_id")
        .annotate(all_calls=Sum("calls"), all_saved=Sum(F("calls") * (F("default_us") - F("median_us"))))
        .order_by()
    )
    for batch in _batches(sums.iterator(_BATCH)):
        wanted = {(row["job_id"], row["operator_id"]): row for row in batch}
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
