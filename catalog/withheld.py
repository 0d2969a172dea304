"""What a job or a model does not get until it is paid: its operators whose best is withheld now."""

from __future__ import annotations

from collections import defaultdict

from django.db.models import Exists, OuterRef, QuerySet

from catalog import models
from catalog.best.served import scopes_of
from catalog.charging import Terms, charging
from catalog.selectors import jobs

MOST_LOOKED_AT = 20_000
"""Bests of one job; those beyond, of the operators it calls least, count as covered."""


def prices_withheld_from(job: models.Job, places: jobs.Places | None = None) -> dict[int, str]:
    """Operator → the price of its best in words, where every best that the job could get costs what its
    organisation has not paid. Without price rules that withhold no statement."""
    if not charging().may_withhold(job.organisation_id):
        return {}
    asked = models.JobOperator.objects.filter(job=job, operator=OuterRef("operator"))
    return _prices_withheld(job.organisation_id, jobs.bests_of(job, places).filter(Exists(asked)))


def prices_withheld_of(model: models.Model) -> dict[int, str]:
    """The same of a model's operators where it runs, for the organisation that gave it."""
    if model.organisation is None or not charging().may_withhold(model.organisation.pk):
        return {}
    bests = models.Best.objects.filter(
        operator__models__model=model,
        target=model.target_id,
        setting=model.setting_id,
        scope__in=scopes_of(model.organisation),
    )
    return _prices_withheld(model.organisation.pk, bests)


def _prices_withheld(organisation_id: int, bests: QuerySet[models.Best]) -> dict[int, str]:
    decider = charging()
    bests = bests.select_related("implementation")
    bests = bests.only("operator", *(f"implementation__{name}" for name in _PRICED_BY))
    found = list(bests.order_by("ratio_to_default")[:MOST_LOOKED_AT])
    held = decider.withheld_now(organisation_id, [best.implementation for best in found])
    if not held:
        return {}
    by_operator: dict[int, list[Terms | None]] = defaultdict(list)
    for best in found:
        by_operator[best.operator_id].append(held.get(best.implementation_id))
    return {number: terms[0].sentence for number, terms in by_operator.items() if terms[0] and all(terms)}


_PRICED_BY = ("operator", "method", "route", "scope")
"""What of an implementation price rules go by."""
