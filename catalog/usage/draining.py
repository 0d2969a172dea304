"""The journal, drained into rows exactly once."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from catalog import failpoints, models
from catalog.conf import conf, journal_folder
from catalog.file_lock import only_one
from catalog.steps import LASTS, PASSING, each, held_back, note_failure, number_of
from catalog.usage import closing, journal
from catalog.usage.journal_line import JournalHit, JournalLine
from catalog.usage.usage_rows import count, jobs_of, usages

logger = logging.getLogger(__name__)

_LINES_PER_TRANSACTION = 200
OF_SEGMENTS, OF_LINES = "draining a segment of the journal", "draining a line of the journal"
SET_ASIDE = "set-aside"
"""The folder, below the journal's, for lines that cannot become rows."""
KEPT = timedelta(days=30)
"""Rows of segments that are closed: a client may repeat a report for a week."""


def drain_journal(limit: int = 1_000_000) -> int:
    """Turn this machine's journal into Usage, LookupTally and JobOperator rows; gives the lines drained.

    Harmless to repeat, to kill anywhere and to run twice at the same time: rows and position move in one
    transaction. At most ``limit`` lines. Every machine that answers lookups drains its own folder.
    """
    drained = 0
    with only_one(journal_folder() / "drain.lock") as may_drain:
        if not may_drain:
            return 0

        def drain(path: Path) -> None:
            nonlocal drained
            while drained < limit:
                # Asked before reading: what a writer that is gone left behind is all there will be.
                closed = journal.is_closed(path)
                lines = _drain_some(path, min(_LINES_PER_TRANSACTION, limit - drained), closed)
                drained += lines
                if lines == 0:
                    if closed:
                        _finish(path)
                    break

        each(OF_SEGMENTS, journal.segments(), drain, shared=True)
    return drained


def is_held_up() -> bool:
    """Whether a segment could not be drained and is tried again later."""
    return held_back(OF_SEGMENTS).exists()


def _drain_some(path: Path, most: int, closed: bool) -> int:
    """Drain the next lines of one segment, without one that cannot be saved; returns how many lines."""
    try:
        return _drain_together(path, most, closed)
    except Exception as error:
        if isinstance(error, PASSING):
            raise
        if most == 1:
            return _leave_out(path, error)
        logger.warning("journal %s: %d lines cannot be saved together (%s).", path.name, most, error)
        return _drain_some(path, most // 2, closed)


def _leave_out(path: Path, error: Exception) -> int:
    """Skip the next line, which is kept aside, after it has failed a few times: an error of every line must
    not set all of them aside. Until then the error is raised."""
    row, _ = models.JournalSegment.objects.get_or_create(node=conf().node, segment=path.name)
    failed = number_of(f"{path.name}:{row.drained_bytes}")
    if note_failure(OF_LINES, error, failed, for_good=True) < LASTS:
        raise error
    with transaction.atomic():
        row = models.JournalSegment.objects.select_for_update().get(pk=row.pk)
        with path.open("rb") as reader:
            reader.seek(row.drained_bytes)
            raw = reader.readline()
        _keep_aside(path, row.drained_bytes, raw, error)
        models.JournalSegment.objects.filter(pk=row.pk).update(drained_bytes=row.drained_bytes + len(raw))
        # The next line's failures are its own: the segment need not wait ever longer for them.
        models.StepFailure.objects.filter(step=OF_SEGMENTS, row=number_of(path)).delete()
    return 1


def _keep_aside(path: Path, start: int, raw: bytes, error: Exception) -> None:
    """Keep a line that cannot become rows in a file that is not drained, and tell the service's operators."""
    folder = journal_folder() / SET_ASIDE
    logger.error("journal %s: the line at byte %d is set aside in %s: %r", path.name, start, folder, error)
    folder.mkdir(exist_ok=True)
    with (folder / path.name).open("ab") as kept:
        kept.write(raw)
    note_failure(OF_LINES, error, number_of(f"{path.name}:{start}"), for_good=True)


def _drain_together(path: Path, most: int, closed: bool) -> int:
    """One transaction: the next lines of one segment; gives how many lines it went over."""
    with transaction.atomic():
        row, _ = models.JournalSegment.objects.get_or_create(node=conf().node, segment=path.name)
        row = models.JournalSegment.objects.select_for_update().get(pk=row.pk)
        read = _read(path, row.drained_bytes, most, closed)
        if read.gone_over == 0:
            return 0
        _save(row, read.lines, read.end)
        for start, raw, error in read.unreadable:
            _keep_aside(path, start, raw, error)
        row.drained_bytes = read.end
        row.save(update_fields=["drained_bytes"])
        failpoints.at("draining")
    return read.gone_over


class ReadLines(NamedTuple):
    """Lines that can be read, those that cannot (where each begins, itself, and why), the position after all
    of them, and how many there were."""

    lines: list[JournalLine]
    unreadable: list[tuple[int, bytes, Exception]]
    end: int
    gone_over: int


def _read(path: Path, start: int, most: int, closed: bool) -> ReadLines:
    """Whole lines from ``start``.

    A last line without its end is still being written, or, in a closed file, was never answered.
    """
    lines: list[JournalLine] = []
    unreadable: list[tuple[int, bytes, Exception]] = []
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
                try:
                    lines.append(JournalLine.of_entry(start, json.loads(raw)))
                except (ValueError, KeyError, TypeError, OverflowError) as error:
                    unreadable.append((start, raw, error))
            start += len(raw)
            gone_over += 1
    return ReadLines(lines, unreadable, start, gone_over)


def _finish(path: Path) -> None:
    """A closed segment that is drained: delete its file, and keep its row for a while."""
    rows = models.JournalSegment.objects.filter(node=conf().node, segment=path.name)
    rows.update(closed=True, closed_at=timezone.now())
    path.unlink(missing_ok=True)


def forget_old_segments() -> int:
    """The courier's chore. A later repetition finds its Usage rows, if it had any."""
    return models.JournalSegment.objects.filter(closed_at__lt=timezone.now() - KEPT).delete()[0]


def _save(row: models.JournalSegment, lines: Sequence[JournalLine], end: int) -> None:
    fresh = _not_drained(row, lines, end)
    lines = _of_known(fresh)
    if not lines:
        return
    jobs = jobs_of(lines)
    kept = list(usages(row, _of_open_months(row, lines), jobs))
    models.Usage.objects.bulk_create(kept, ignore_conflicts=True, batch_size=50)
    count(lines, jobs)


def _of_open_months(row: models.JournalSegment, lines: Sequence[JournalLine]) -> Sequence[JournalLine]:
    open_from = closing.boundary(min(line.at for line in lines))
    kept = [line for line in lines if line.at >= open_from]
    if late := len(lines) - len(kept):
        logger.warning("journal %s: %d lines of closed months are in sums alone", row.segment, late)
    return kept


def _not_drained(row: models.JournalSegment, lines: Sequence[JournalLine], end: int) -> list[JournalLine]:
    """Lines whose usage is not stored yet. The position says so too; but if it is lost (a restored table),
    nothing may be charged twice."""
    if not lines:
        return []
    times = [line.at for line in lines]
    there = set(
        models.Usage.objects.filter(
            node=row.node,
            segment=row.segment,
            offset__gte=lines[0].offset,
            offset__lt=end,
            served_at__range=(min(times), max(times)),  # of a table of months: no other is looked into
        ).values_list("offset", flat=True)
    )
    return [line for line in lines if line.offset not in there]


def _of_known(lines: Sequence[JournalLine]) -> list[JournalLine]:
    """Without rows deleted since: one that cannot be written must not stop all others."""
    hits = [hit for line in lines for _, hit in line.numbered_hits()]
    operators = {hit.operator_id for hit in hits}
    operators |= {miss.operator_id for line in lines for miss in line.misses}
    operators |= {operator for line in lines for operator in line.asked}
    known = _there(models.Operator, operators)
    organisations = _there(models.Organisation, {line.organisation_id for line in lines})
    there = _there(models.Implementation, {hit.implementation_id for hit in hits})

    def kept(hit: JournalHit | None) -> JournalHit | None:
        if hit is None or hit.operator_id not in known:
            return None
        return hit if hit.implementation_id in there else hit._replace(implementation_id=None)

    return [
        replace(
            line,
            hits=[kept(hit) for hit in line.hits],
            misses=[miss for miss in line.misses if miss.operator_id in known],
            asked=[operator for operator in line.asked if operator in known],
        )
        for line in lines
        if line.organisation_id in organisations
    ]


def _there(model: type[Model], numbers: Collection[int | None]) -> set[int]:
    return set(model._default_manager.filter(pk__in=numbers).values_list("pk", flat=True))
