"""The last step of a lookup: served hits are written down, and charged if a price rule applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from django.db import transaction

from catalog.charging import Batch, Payer, Terms, charging
from catalog.usage.recording import journal_lookup, write_hits


def serve(
    payer: Payer,
    hits: Batch,
    misses: Sequence[tuple[int, float]],
    asked: Sequence[int],
    keep: Callable[[Mapping[str, Terms]], None],
) -> Mapping[str, Terms]:
    """Write one lookup down before its answer leaves; returns the terms of what is charged or withheld, by
    operator key. ``asked``: ids of all operators in the request's order. Free hits and misses (operator id,
    calls) are journalled. Charged hits are written in one transaction: usage, ledger entry, balance and, with
    ``keep``, the answer. The journal comes last in it, so that a journal that cannot be written charges
    nobody. What is withheld counts as a miss: the job got nothing. Raises
    :class:`catalog.errors.JournalError`; nothing may be served then."""
    decider = charging()
    if not hits or not decider.concerns(payer.organisation_id, hits):
        journal_lookup(payer.organisation_id, payer.job, hits, misses, asked)
        return {}
    with transaction.atomic():
        terms = decider.settle(payer, hits, partial(write_hits, payer.organisation_id, payer.job))
        if not all(one.withheld for one in terms.values()):
            keep(terms)
        free = [(hit, calls) for hit, calls in hits if hit.key not in terms]
        empty = [
            (hit.operator_id, calls) for hit, calls in hits if hit.key in terms and terms[hit.key].withheld
        ]
        journal_lookup(payer.organisation_id, payer.job, free, [*misses, *empty], asked)
    return terms
