"""The journal, drained into rows exactly once."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import transaction

from catalog import models
from catalog.conf import conf, journal_folder
from catalog.file_lock import only_one
from catalog.usage import journal
from catalog.usage.usage_rows import JournalLine, count, jobs_of, usages

logger = logging.getLogger(__name__)

_LINES_PER_TRANSACTION = 200


def drain_journal(limit: int = 1_000_000) -> int:
    """Turn this machine's journal into Usage, LookupTally and JobOperator rows; gives the lines drained.

    Harmless to repeat, to kill anywhere and to run twice at the same time: rows and position move in one
    transaction. At most ``limit`` lines. Every machine that answers lookups drains its own folder.
    """
    drained = 0
    with only_one(journal_folder() / "drain.lock") as may_drain:
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


def _drain_some(path: Path, most: int, closed: bool) -> int:
    """One transaction: the next lines of one segment; gives how many lines it went over."""
    with transaction.atomic():
        row, _ = models.JournalSegment.objects.get_or_create(node=conf().node, segment=path.name)
        row = models.JournalSegment.objects.select_for_update().get(pk=row.pk)
        lines, end, gone_over = _read(path, row.drained_bytes, most, closed)
        if gone_over == 0:
            return 0
        _save(row, lines, end)
        row.drained_bytes = end
        row.save(update_fields=["drained_bytes"])
    return gone_over


def _read(path: Path, start: int, most: int, closed: bool) -> tuple[list[JournalLine], int, int]:
    """Whole lines from ``start``: those that can be read, the position after them, and how many there were.

    A last line without its end is still being written, or, in a closed file, was never answered.
    """
    lines: list[JournalLine] = []
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
                    lines.append(JournalLine(start, entry))
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
    models.JournalSegment.objects.filter(node=conf().node, segment=path.name).update(closed=True)
    path.unlink(missing_ok=True)


def _save(row: models.JournalSegment, lines: Sequence[JournalLine], end: int) -> None:
    fresh = _not_drained(row, lines, end)
    lines = _of_known(fresh)
    jobs = jobs_of(lines)
    models.Usage.objects.bulk_create(list(usages(row, lines, jobs)), ignore_conflicts=True, batch_size=50)
    count(lines, jobs)


def _not_drained(row: models.JournalSegment, lines: Sequence[JournalLine], end: int) -> list[JournalLine]:
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


def _of_known(lines: Sequence[JournalLine]) -> list[JournalLine]:
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
        kept.append(JournalLine(line.offset, line.entry | {"hits": hits, "misses": misses}))
    return kept
