"""Rows of what was served: a Usage row for each hit, and the sums that pages read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from catalog import models
from catalog.upsert import insert_or
from catalog.usage.job_days import ServedHit, add_job_days
from catalog.usage.journal_line import JournalLine
from catalog.usage.stale import mark_stale

_COUNTED = ("hits", "misses", "hit_calls", "miss_calls", "saved_us")
Jobs = dict[tuple[int, str], models.Job]


def jobs_of(lines: Sequence[JournalLine]) -> Jobs:
    """Jobs by organisation and name; made where they are new."""
    names = sorted({(line.organisation_id, line.job) for line in lines if line.job})
    return {
        (organisation, name): models.Job.objects.get_or_create(organisation_id=organisation, name=name)[0]
        for organisation, name in names
    }


def usages(row: models.JournalSegment, lines: Sequence[JournalLine], jobs: Jobs) -> Iterator[models.Usage]:
    """Rows of all hits, not saved yet; together with the segment they are unique."""
    for line in lines:
        for item, hit in line.numbered_hits():
            yield models.Usage(
                organisation_id=line.organisation_id,
                job=jobs.get((line.organisation_id, line.job)),
                operator_id=hit.operator_id,
                implementation_id=hit.implementation_id,
                route=hit.route,
                method=hit.method,
                median_us=hit.median_us,
                default_us=hit.default_us,
                calls=hit.calls,
                served_at=line.at,
                node=row.node,
                segment=row.segment,
                offset=line.offset,
                item=item,
            )


def count(lines: Sequence[JournalLine], jobs: Jobs) -> None:
    """Add the lines up: by hour, by job and operator, by job and day."""
    _add_tallies(lines)
    _add_job_operators(lines, jobs)
    add_job_days(_served_hits(lines, jobs))


def _served_hits(lines: Sequence[JournalLine], jobs: Jobs) -> Iterator[ServedHit]:
    for line in lines:
        job = jobs.get((line.organisation_id, line.job))
        if job is None:
            continue
        for _, hit in line.numbered_hits():
            yield ServedHit(
                job.pk, hit.implementation_id, hit.method, line.at, hit.calls, hit.default_us, hit.median_us
            )


def _add_tallies(lines: Sequence[JournalLine]) -> None:
    sums: dict[tuple[datetime, int, int], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0, 0.0])
    for line in lines:
        hour = line.at.replace(minute=0, second=0, microsecond=0)
        for _, hit in line.numbered_hits():
            counts = sums[hour, hit.operator_id, line.organisation_id]
            counts[0] += 1
            counts[2] += hit.calls
            counts[4] += hit.saved_us
        for operator, calls in line.misses:
            counts = sums[hour, operator, line.organisation_id]
            counts[1] += 1
            counts[3] += calls
    insert_or(
        models.LookupTally,
        [
            {
                "hour": hour,
                "operator_id": operator,
                "organisation_id": organisation,
                "hits": counts[0],
                "misses": counts[1],
                "hit_calls": counts[2],
                "miss_calls": counts[3],
                "saved_us": counts[4],
            }
            for (hour, operator, organisation), counts in sorted(sums.items())
        ],
        unique=["hour", "operator_id", "organisation_id"],
        updates={name: f"old.{name} + new.{name}" for name in _COUNTED},
    )
    mark_stale({hour for hour, _, _ in sums})


def _add_job_operators(lines: Sequence[JournalLine], jobs: Jobs) -> None:
    sums: dict[tuple[int, int], list[Any]] = defaultdict(lambda: [0, 0, None, 0.0, 0.0, 0.0])
    for line in lines:
        job = jobs.get((line.organisation_id, line.job))
        if job is None:
            continue
        for _, hit in line.numbered_hits():
            counts = sums[job.pk, hit.operator_id]
            counts[0] += 1
            counts[2] = line.at
            counts[3] += hit.calls
            counts[5] += hit.saved_us
        for operator, calls in line.misses:
            counts = sums[job.pk, operator]
            counts[1] += 1
            counts[2] = line.at
            counts[4] += calls
    insert_or(
        models.JobOperator,
        [
            {
                "job_id": job,
                "operator_id": operator,
                "hits": hits,
                "misses": misses,
                "last_at": last_at,
                "hit_calls": hit_calls,
                "miss_calls": miss_calls,
                "saved_us": saved_us,
            }
            for (job, operator), (hits, misses, last_at, hit_calls, miss_calls, saved_us) in sorted(
                sums.items(), key=lambda item: item[0]
            )
        ],
        unique=["job_id", "operator_id"],
        updates={
            "last_at": "new.last_at",
            **{
                name: f"old.{name} + new.{name}"
                for name in ("hits", "misses", "hit_calls", "miss_calls", "saved_us")
            },
        },
    )
