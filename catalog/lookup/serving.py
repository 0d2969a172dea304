"""The last step of a lookup: what was served is written down, and charged where a price rule applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from django.db import transaction

from catalog.charging import Batch, Terms, charging
from catalog.usage.recording import journal_lookup, write_hits


def serve(
    organisation_id: int, job: str, hits: Batch, misses: Sequence[tuple[int, float]]
) -> Mapping[str, Terms]:
    """Write one lookup down before its answer leaves; gives the terms of what is charged or withheld, by
    operator key.

    Free hits and misses (operator id, calls) are journalled. Charged hits are written in one transaction:
    usage, ledger entry and balance together. The journal comes last in it, so that a journal that cannot be
    written charges nobody. What is withheld counts as a miss: the job got nothing.

    Raises :class:`catalog.errors.JournalError`; then nothing must be served.
    """
    decider = charging()
    if not hits or not decider.concerns(organisation_id, hits):
        journal_lookup(organisation_id, job, hits, misses)
        return {}
    with transaction.atomic():
        terms = decider.settle(organisation_id, hits, partial(write_hits, organisation_id, job))
        free = [(hit, calls) for hit, calls in hits if hit.key not in terms]
        empty = [
            (hit.operator_id, calls) for hit, calls in hits if hit.key in terms and terms[hit.key].withheld
        ]
        journal_lookup(organisation_id, job, free, [*misses, *empty])
    return terms
