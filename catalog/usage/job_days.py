"""Per job: what its hits came to, day by day and method by method, and where they were served.

Counted with the usage rows, in the transaction that drains them, so that they agree to the unit; a job's page
then reads some rows for each day instead of every hit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from catalog import models
from catalog.upsert import insert_or


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
