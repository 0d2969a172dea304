"""Rows of what was served: a Usage row for each hit, and the sums that pages read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from catalog import models
from catalog.upsert import add_up
from catalog.usage import closing
from catalog.usage.job_days import add_job_days
from catalog.usage.journal_line import JournalLine
from catalog.usage.stale import mark_stale
from catalog.usage.succession import add_successions

Jobs = dict[tuple[int, str], models.Job]


def jobs_of(lines: Sequence[JournalLine]) -> Jobs:
    """Jobs by organisation and name; made where they are new. Lookups without a name have a row too."""
    names = sorted({(line.organisation_id, line.job) for line in lines})
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
                job=jobs[line.organisation_id, line.job] if line.job else None,
                **hit._asdict(),
                served_at=line.at,
                node=row.node,
                segment=row.segment,
                offset=line.offset,
                item=item,
            )


def count(lines: Sequence[JournalLine], jobs: Jobs) -> None:
    """Add the lines up: by hour, by job and operator, by job and day; and note what came after what. Every
    lookup counts, whoever answered it; what came so late that its month is closed by day."""
    open_from = closing.boundary(min((line.at for line in lines), default=timezone.now()))
    of_jobs = [(jobs[line.organisation_id, line.job].pk, line) for line in lines]
    hours = add_up(
        models.LookupTally,
        ("hour", "operator_id", "organisation_id"),
        closing.TALLIED,
        (
            ((_start(line.at, open_from), operator, line.organisation_id), counts)
            for line in lines
            for operator, counts in _counts(line)
        ),
    )
    mark_stale({hour for hour, _, _ in hours if hour >= open_from})
    add_up(
        models.JobOperator,
        ("job_id", "operator_id"),
        closing.TALLIED,
        (
            ((job, operator), counts | {"last_at": line.at})
            for job, line in of_jobs
            for operator, counts in _counts(line)
        ),
    )
    add_job_days([(job, line.at, hit) for job, line in of_jobs for _, hit in line.numbered_hits()])
    add_successions((job, line) for job, line in of_jobs if line.job)  # no order is told without a name


def _start(at: datetime, open_from: datetime) -> datetime:
    """Of the hour, or of a closed day."""
    return at.replace(minute=0, second=0, microsecond=0) if at >= open_from else closing.day_of(at)


def _counts(line: JournalLine) -> Iterator[tuple[int, dict[str, Any]]]:
    """Operator → what the line adds to its counts."""
    for _, hit in line.numbered_hits():
        counts = {"hits": hit.lookups, "default_hits": hit.lookups if hit.is_default else 0}
        counts["neighbour_hits"] = hit.lookups if hit.from_neighbour else 0
        yield hit.operator_id, counts | {"hit_calls": hit.calls, "saved_us": hit.saved_us}
    for operator, calls, lookups in line.misses:
        yield operator, {"misses": lookups, "miss_calls": calls}
