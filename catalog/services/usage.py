"""Usage: journalled before the answer, drained into rows exactly once."""

from __future__ import annotations

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from catalog import conf, models
from catalog.selectors.served import Hit
from catalog.services import journal
from catalog.services.alone import only_one
from catalog.services.job_days import ServedHit, add_job_days
from catalog.services.stale import mark_stale
from catalog.services.upsert import insert_or

logger = logging.getLogger(__name__)

_LINES_PER_TRANSACTION = 200
_COUNTED = ("hits", "misses", "hit_calls", "miss_calls", "saved_us")


def journal_lookup(
    organisation_id: int, job: str, hits: Sequence[tuple[Hit, float]], misses: Sequence[tuple[int, float]]
) -> None:
    """Write one lookup down: hits with their calls, and misses as (operator id, calls).

    Raises :class:`catalog.errors.JournalError` when that is not possible; then nothing must be served.
    """
    if not hits and not misses:
        return
    journal.append(
        {
            "at": round(timezone.now().timestamp(), 3),
            "org": organisation_id,
            "job": job,
            "hits": [
                (
                    hit.operator_id,
                    hit.implementation_id,
                    hit.route,
                    hit.method,
                    round(hit.median_us, 3),
                    round(hit.default_us, 3),
                    calls,
                )
                for hit, calls in hits
            ],
            "misses": misses,
        }
    )


def drain_journal(limit: int = 1_000_000) -> int:
    """Turn this machine's journal into Usage, LookupTally and JobOperator rows; gives the lines drained.

    Harmless to repeat, to kill anywhere and to run twice at the same time: rows and position move in one
    transaction. At most ``limit`` lines. Every machine that answers lookups drains its own folder.
    """
    drained = 0
    with only_one(conf.journal_folder() / "drain.lock") as may_drain:
        if not may_drain:
            return 0
        for path in journal.segments():
            while drained < limit:
                # Asked before reading: what a writer that is gone left behind is all there will be.
                closed = journal.is_closed(path)
                lines = _drain_some(path, min(_LINES_PER_TRANSACTION, limit - drained), closed)
                drained += lines
                if lines == 0:
                    if closed:
                        _finish(path)
                    break
    return drained


@dataclass(frozen=True)
class _Line:
    offset: int
    entry: dict[str, Any]

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.entry["at"], UTC)


def _drain_some(path: Path, most: int, closed: bool) -> int:
    """One transaction: the next lines of one segment; gives how many lines it went over."""
    with transaction.atomic():
        row, _ = models.JournalSegment.objects.get_or_create(node=conf.node(), segment=path.name)
        row = models.JournalSegment.objects.select_for_update().get(pk=row.pk)
        lines, end, gone_over = _read(path, row.drained_bytes, most, closed)
        if gone_over == 0:
            return 0
        _save(row, lines, end)
        row.drained_bytes = end
        row.save(update_fields=["drained_bytes"])
    return gone_over


def _read(path: Path, start: int, most: int, closed: bool) -> tuple[list[_Line], int, int]:
    """Whole lines from ``start``: those that can be read, the position after them, and how many there were.

    A last line without its end is still being written, or, in a closed file, was never answered.
    """
    lines: list[_Line] = []
    gone_over = 0
    with path.open("rb") as reader:
        reader.seek(start)
        while gone_over < most and (raw := reader.readline()):
            if not raw.endswith(b"\n"):
                if not closed:
                    break
                logger.warning(
                    "journal %s: the torn last line at byte %d was never answered", path.name, start
                )
            else:
                entry = _parse(raw)
                if entry is None:
                    logger.error("journal %s: the line at byte %d cannot be read", path.name, start)
                else:
                    lines.append(_Line(start, entry))
            start += len(raw)
            gone_over += 1
    return lines, start, gone_over


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(raw)
        float(entry["at"]), entry["org"], entry["job"], entry["hits"], entry["misses"]
    except (ValueError, KeyError, TypeError):
        return None
    return dict(entry)


def _finish(path: Path) -> None:
    """A closed segment that is all drained: its file goes, its row stays."""
    models.JournalSegment.objects.filter(node=conf.node(), segment=path.name).update(closed=True)
    path.unlink(missing_ok=True)


def write_hits(organisation_id: int, job: str, hits: Sequence[tuple[Hit, float]]) -> list[models.Usage]:
    """Hits that are charged: their Usage rows, tallies and days at once, in the caller's transaction, under
    a segment of their own. Gives the rows in the order of the hits."""
    row = models.JournalSegment(node=conf.node(), segment=f"charged-{uuid.uuid4().hex}")
    entry = {
        "at": timezone.now().timestamp(),
        "org": organisation_id,
        "job": job,
        "hits": [
            (
                hit.operator_id,
                hit.implementation_id,
                hit.route,
                hit.method,
                hit.median_us,
                hit.default_us,
                calls,
            )
            for hit, calls in hits
        ],
        "misses": [],
    }
    lines = [_Line(0, entry)]
    jobs = _jobs(lines)
    usages = list(_usages(row, lines, jobs))
    models.Usage.objects.bulk_create(usages, batch_size=50)
    _count(lines, jobs)
    return usages


def _save(row: models.JournalSegment, lines: Sequence[_Line], end: int) -> None:
    fresh = _not_drained(row, lines, end)
    lines = _of_known(fresh)
    jobs = _jobs(lines)
    models.Usage.objects.bulk_create(list(_usages(row, lines, jobs)), ignore_conflicts=True, batch_size=50)
    _count(lines, jobs)


def _count(lines: Sequence[_Line], jobs: dict[tuple[int, str], models.Job]) -> None:
    _add_tallies(lines)
    _add_job_operators(lines, jobs)
    add_job_days(_served_hits(lines, jobs))


def _served_hits(lines: Sequence[_Line], jobs: dict[tuple[int, str], models.Job]) -> Iterator[ServedHit]:
    for line in lines:
        job = jobs.get((line.entry["org"], line.entry["job"]))
        if job is None:
            continue
        for _, hit in _hits(line):
            _operator, implementation, _route, method, median_us, default_us, calls = hit[:7]
            yield ServedHit(job.pk, implementation, method, line.at, calls, default_us, median_us)


def _not_drained(row: models.JournalSegment, lines: Sequence[_Line], end: int) -> list[_Line]:
    """Lines whose usage is not there yet. The position says so already; a position that was lost (a restored
    table) must not charge twice."""
    if not lines:
        return []
    there = set(
        models.Usage.objects.filter(
            node=row.node, segment=row.segment, offset__gte=lines[0].offset, offset__lt=end
        ).values_list("offset", flat=True)
    )
    return [line for line in lines if line.offset not in there]


def _of_known(lines: Sequence[_Line]) -> list[_Line]:
    """Without what was deleted since: a row that cannot be written must not hold up all others."""
    operators = {hit[0] for line in lines for hit in line.entry["hits"]}
    operators |= {miss[0] for line in lines for miss in line.entry["misses"]}
    known = set(models.Operator.objects.filter(pk__in=operators).values_list("pk", flat=True))
    organisations = set(
        models.Organisation.objects.filter(pk__in={line.entry["org"] for line in lines}).values_list(
            "pk", flat=True
        )
    )
    implementations = {hit[1] for line in lines for hit in line.entry["hits"]}
    there = set(models.Implementation.objects.filter(pk__in=implementations).values_list("pk", flat=True))
    kept = []
    for line in lines:
        if line.entry["org"] not in organisations:
            continue
        hits = [
            [hit[0], hit[1] if hit[1] in there else None, *hit[2:]] if hit[0] in known else None
            for hit in line.entry["hits"]
        ]
        misses = [miss for miss in line.entry["misses"] if miss[0] in known]
        kept.append(_Line(line.offset, line.entry | {"hits": hits, "misses": misses}))
    return kept


def _hits(line: _Line) -> Iterator[tuple[int, list[Any]]]:
    """(item, hit); the item number counts those left out too, so that it never moves."""
    return ((item, hit) for item, hit in enumerate(line.entry["hits"]) if hit is not None)


def _jobs(lines: Sequence[_Line]) -> dict[tuple[int, str], models.Job]:
    names = sorted({(line.entry["org"], line.entry["job"]) for line in lines if line.entry["job"]})
    return {
        (organisation, name): models.Job.objects.get_or_create(organisation_id=organisation, name=name)[0]
        for organisation, name in names
    }


def _usages(
    row: models.JournalSegment, lines: Sequence[_Line], jobs: dict[tuple[int, str], models.Job]
) -> Iterator[models.Usage]:
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


def _add_tallies(lines: Sequence[_Line]) -> None:
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


def _add_job_operators(lines: Sequence[_Line], jobs: dict[tuple[int, str], models.Job]) -> None:
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
