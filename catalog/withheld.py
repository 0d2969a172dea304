"""What a job asked for and does not get until it is paid: its operators whose best is withheld now."""

from __future__ import annotations

from collections import defaultdict

from django.db.models import Exists, OuterRef

from catalog import models
from catalog.charging import Terms, charging
from catalog.selectors import jobs

MOST_LOOKED_AT = 20_000
"""Bests of one job; those beyond, of the operators it calls least, count as covered."""


def prices_withheld_from(job: models.Job) -> dict[int, str]:
    """Operator → the price of its best in words, where every best that the job could get costs what its
    organisation has not paid. Without price rules no statement."""
    decider = charging()
    if not decider.has_prices(job.organisation_id):
        return {}
    asked = models.JobOperator.objects.filter(job=job, operator=OuterRef("operator"))
    bests = jobs.bests_of(job).filter(Exists(asked)).select_related("implementation")
    bests = bests.only("operator", *(f"implementation__{name}" for name in _PRICED_BY))
    found = list(bests.order_by("ratio_to_default")[:MOST_LOOKED_AT])
    held = decider.withheld_now(job.organisation_id, [best.implementation for best in found])
    if not held:
        return {}
    by_operator: dict[int, list[Terms | None]] = defaultdict(list)
    for best in found:
        by_operator[best.operator_id].append(held.get(best.implementation_id))
    return {number: terms[0].sentence for number, terms in by_operator.items() if terms[0] and all(terms)}


_PRICED_BY = ("operator", "method", "route", "scope")
"""What of an implementation price rules go by."""
