"""Usage: what is served is written down before the answer. Hits that are charged become rows at once, in the
lookup's transaction; all else goes to the journal, and is drained."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence

from django.utils import timezone

from catalog import models
from catalog.best.served import Hit
from catalog.conf import conf
from catalog.usage import journal
from catalog.usage.journal_line import JournalHit, JournalLine, hit_text, line_text
from catalog.usage.usage_rows import count, jobs_of, usages

CHARGED = "charged-"
"""How segments of rows begin that have a ledger entry each."""


def journal_lookup(
    organisation_id: int,
    job: str,
    hits: Sequence[tuple[Hit, float]],
    misses: Sequence[tuple[int, float]],
    asked: Sequence[int] = (),
) -> None:
    """Write one lookup down: hits with their calls, misses as (operator id, calls), and the ids of all that
    was ``asked``, in order.

    Raises :class:`catalog.errors.JournalError` when that is not possible; then nothing must be served.
    """
    if not hits and not misses and not asked:
        return
    in_order = [hit.operator_id for hit, _ in hits] + [operator for operator, _ in misses]
    text = line_text(
        time.time(),
        organisation_id,
        json.dumps(job),
        [hit_text(hit, calls) for hit, calls in hits],
        json.dumps(misses, separators=(",", ":")),
        json.dumps(asked, separators=(",", ":")) if asked and list(asked) != in_order else "",
    )
    journal.append_line(text.encode())


def journal_said(said: bytes) -> None:
    """Write a lookup down of which all but the time is a text already (``said_text``). Raises as above."""
    journal.append_line(b'{"at":%.3f%b' % (time.time(), said))


def write_hits(organisation_id: int, job: str, hits: Sequence[tuple[Hit, float]]) -> list[models.Usage]:
    """Hits that are charged: their Usage rows, tallies and days at once, in the caller's transaction, under
    a segment of their own. Gives the rows in the order of the hits."""
    row = models.JournalSegment(node=conf().node, segment=f"{CHARGED}{uuid.uuid4().hex}")
    served = [JournalHit.of(hit, calls) for hit, calls in hits]
    lines = [JournalLine(0, timezone.now(), organisation_id, job, served, [])]
    jobs = jobs_of(lines)
    rows = list(usages(row, lines, jobs))
    models.Usage.objects.bulk_create(rows, batch_size=50)
    count(lines, jobs)
    return rows
