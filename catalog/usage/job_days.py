"""Per job: what its hits came to, day by day and method by method, and where they were served.

Counted with the usage rows, in the transaction that drains them, so that they agree to the unit; a job's page
then reads some rows for each day instead of every hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from django.db.models import PositiveBigIntegerField

from catalog import models
from catalog.upsert import add_up, insert_or
from catalog.usage.closing import day_of
from catalog.usage.journal_line import JournalHit

JobHit = tuple[int, datetime, JournalHit]
"""A job's hit: the job, and when it was."""


def add_job_days(hits: Sequence[JobHit]) -> None:
    """Count drained hits in the transaction that stores their usage."""
    add_up(models.JobDay, ("job_id", "start", "method"), _SUMMED, _by_day(hits))
    last: dict[tuple[int, int], datetime] = {}
    for job, at, hit in hits:
        if hit.implementation_id is not None and not hit.from_neighbour:  # whose place is elsewhere
            key = (job, hit.implementation_id)
            last[key] = max(last.get(key, at), at)
    _add_places(last)


_SUMMED = ("hits", "default_hits", "calls", "default_us", "saved_us")


def _by_day(hits: Sequence[JobHit]) -> Iterator[tuple[tuple[int, datetime, str], dict[str, float]]]:
    for job, at, hit in hits:
        defaults = hit.lookups if hit.is_default else 0
        counts = (hit.lookups, defaults, hit.calls, hit.calls * hit.default_us, hit.saved_us)
        yield (job, day_of(at), hit.method), dict(zip(_SUMMED, counts, strict=True))


CACHE_COUNTS = tuple(
    field.attname
    for field in models.JobCacheDay._meta.concrete_fields
    if isinstance(field, PositiveBigIntegerField)
)


def add_cache_day(job: int, at: datetime, counts: Mapping[str, int]) -> None:
    """Count what a report of a client says of its caches, by columns of ``JobCacheDay``; in the transaction
    that counts its uses."""
    if any(counts.values()):
        # All columns: a new row has a number in each.
        counts = dict.fromkeys(CACHE_COUNTS, 0) | dict(counts)
        add_up(models.JobCacheDay, ("job_id", "start"), CACHE_COUNTS, [((job, day_of(at)), counts)])


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
