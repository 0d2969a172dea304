"""Usage: what is served is written down before the answer. Hits that are charged become rows at once, in the
lookup's transaction; all else goes to the journal, and is drained."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.utils import timezone

from catalog import models
from catalog.best.served import Hit
from catalog.conf import conf
from catalog.usage import journal
from catalog.usage.journal_line import JournalHit, JournalLine, counted_us
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
    journal.append(
        {
            "at": round(timezone.now().timestamp(), 3),
            "org": organisation_id,
            "job": job,
            # In the order of JournalHit, times rounded to what anybody reads.
            "hits": [
                (
                    hit.operator_id,
                    hit.implementation_id,
                    hit.route,
                    hit.method,
                    round(counted_us(hit), 3),
                    round(hit.default_us, 3),
                    calls,
                    hit.is_default,
                    *([True] if hit.from_neighbour else []),  # who drains may be of before it was noted
                )
                for hit, calls in hits
            ],
            "misses": misses,
            **({"asked": asked} if asked and list(asked) != in_order else {}),
        }
    )


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
