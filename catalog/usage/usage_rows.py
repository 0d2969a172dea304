"""Rows of what was served: a Usage row for each hit, and the sums that pages read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from catalog import models
from catalog.upsert import insert_or
from catalog.usage.job_days import ServedHit, add_job_days
from catalog.usage.stale import mark_stale

_COUNTED = ("hits", "misses", "hit_calls", "miss_calls", "saved_us")
Jobs = dict[tuple[int, str], models.Job]


@dataclass(frozen=True)
class JournalLine:
    """One lookup as it was written down, and where its line begins."""

    offset: int
    entry: dict[str, Any]

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.entry["at"], UTC)


def jobs_of(lines: Sequence[JournalLine]) -> Jobs:
    """Jobs by organisation and name; made where they are new."""
    names = sorted({(line.entry["org"], line.entry["job"]) for line in lines if line.entry["job"]})
    return {
        (organisation, name): models.Job.objects.get_or_create(organisation_id=organisation, name=name)[0]
        for organisation, name in names
    }


def usages(row: models.JournalSegment, lines: Sequence[JournalLine], jobs: Jobs) -> Iterator[models.Usage]:
    """Rows of all hits, not saved yet; together with the segment they are unique."""
    for line in lines:
        for item, (operator, implementation, route, method, median_us, default_us, calls) in _hits(line):
            yield models.Usage(
                organisation_id=line.entry["org"],
                job=jobs.get((line.entry["org"], line.entry["job"])),
                operator_id=operator,
                implementation_id=implementation,
                route=route,
                method=method,
                median_us=median_us,
                default_us=default_us,
                calls=calls,
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


def _hits(line: JournalLine) -> Iterator[tuple[int, list[Any]]]:
    """(item, hit); the item number counts those left out too, so that it never moves."""
    return ((item, hit) for item, hit in enumerate(line.entry["hits"]) if hit is not None)


def _served_hits(lines: Sequence[JournalLine], jobs: Jobs) -> Iterator[ServedHit]:
    for line in lines:
        job = jobs.get((line.entry["org"], line.entry["job"]))
        if job is None:
            continue
        for _, hit in _hits(line):
            _operator, implementation, _route, method, median_us, default_us, calls = hit[:7]
            yield ServedHit(job.pk, implementation, method, line.at, calls, default_us, median_us)


def _add_tallies(lines: Sequence[JournalLine]) -> None:
    sums: dict[tuple[datetime, int, int], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0, 0.0])
    for line in lines:
        hour = line.at.replace(minute=0, second=0, microsecond=0)
        for _, hit in _hits(line):
            counts = sums[hour, hit[0], line.entry["org"]]
            counts[0] += 1
            median_us, default_us, calls = hit[4:7]
            counts[2] += calls
            counts[4] += calls * (default_us - median_us)
        for operator, calls in line.entry["misses"]:
            counts = sums[hour, operator, line.entry["org"]]
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
        job = jobs.get((line.entry["org"], line.entry["job"]))
        if job is None:
            continue
        for _, hit in _hits(line):
            operator, _made, _route, _method, median_us, default_us, calls = hit[:7]
            counts = sums[job.pk, operator]
            counts[0] += 1
            counts[2] = line.at
            counts[3] += calls
            counts[5] += calls * (default_us - median_us)
        for operator, calls in line.entry["misses"]:
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
