"""Per job: what its hits came to, day by day and method by method, and where they were served.

Counted with the usage rows, in the transaction that drains them, so that they agree to the unit; a job's page
then reads some rows for each day instead of every hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from catalog import models
from catalog.upsert import add_up, insert_or
from catalog.usage.journal_line import JournalHit


def add_job_days(hits: Sequence[tuple[int, datetime, JournalHit]]) -> None:
    """Count drained hits, each with its job and moment, in the transaction that stores their usage."""
    add_up(models.JobDay, ("job_id", "start", "method"), _SUMMED, _by_day(hits))
    last: dict[tuple[int, int], datetime] = {}
    for job, at, hit in hits:
        if hit.implementation_id is not None:
            key = (job, hit.implementation_id)
            last[key] = max(last.get(key, at), at)
    _add_places(last)


_SUMMED = ("hits", "default_hits", "calls", "default_us", "saved_us")


def _by_day(
    hits: Sequence[tuple[int, datetime, JournalHit]],
) -> Iterator[tuple[tuple[int, datetime, str], dict[str, float]]]:
    for job, at, hit in hits:
        start = at.replace(hour=0, minute=0, second=0, microsecond=0)
        counts = (1, int(hit.is_default), hit.calls, hit.calls * hit.default_us, hit.saved_us)
        yield (job, start, hit.method), dict(zip(_SUMMED, counts, strict=True))


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
