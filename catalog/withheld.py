"""What a job, a model or who looks does not get until it is paid: operators whose best is withheld now."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q, QuerySet

from catalog import models
from catalog.best.served import scopes_of
from catalog.charging import charging
from catalog.selectors import jobs, listing
from catalog.viewing import Viewer

MOST_LOOKED_AT = 20_000
"""Bests that a price may withhold; those beyond, the fastest against their defaults, count as covered."""


def prices_withheld_from(job: models.Job, places: jobs.Places | None = None) -> dict[int, str]:
    """Operator → the price of its best in words, where every best that the job could get costs what its
    organisation has not paid. Without price rules that withhold no statement."""
    if charging().may_withhold(job.organisation_id) is None:
        return {}
    asked = models.JobOperator.objects.filter(job=job, operator=OuterRef("operator"))
    return _prices_withheld(job.organisation_id, jobs.bests_of(job, places).filter(Exists(asked)))


def prices_withheld_of(model: models.Model) -> dict[int, str]:
    """The same of a model's operators where it runs, for the organisation that gave it."""
    if model.organisation is None or charging().may_withhold(model.organisation.pk) is None:
        return {}
    bests = models.Best.objects.filter(
        operator__models__model=model,
        target=model.target_id,
        setting=model.setting_id,
        scope__in=scopes_of(model.organisation),
    )
    return _prices_withheld(model.organisation.pk, bests)


def may_be_withheld_from(viewer: Viewer) -> bool:
    """Whether a price rule may keep anything from who looks. No statement."""
    return viewer.payer is not None and charging().may_withhold(viewer.payer) is not None


def prices_withheld_in(
    filters: listing.OperatorFilters, viewer: Viewer, operators: Collection[int] | None = None
) -> dict[int, str]:
    """The same of a list of operators for who looks, or of these of its ``operators`` alone: by the best that
    stands for an operator there, of several targets'."""
    if viewer.payer is None or not may_be_withheld_from(viewer):
        return {}
    bests = listing.foremost(listing.winners(filters, viewer))
    if operators is not None:
        bests = bests.filter(operator__in=operators)
    return _prices_withheld(viewer.payer, bests)


def _prices_withheld(organisation_id: int, bests: QuerySet[models.Best]) -> dict[int, str]:
    decider = charging()
    some = bests.filter(decider.may_withhold(organisation_id) or Q()).select_related("implementation")
    some = some.only("operator", *(f"implementation__{name}" for name in _PRICED_BY))
    found = list(some.order_by("ratio_to_default")[:MOST_LOOKED_AT])
    held = decider.withheld_now(organisation_id, [best.implementation for best in found])
    prices: dict[int, str] = {}
    for best in found:
        if best.implementation_id in held:
            prices.setdefault(best.operator_id, held[best.implementation_id].sentence)
    if prices:
        # One that is given in another place covers the operator.
        others = bests.filter(operator__in=list(prices)).values_list("operator", "implementation")
        for operator, implementation in others:
            if implementation not in held:
                prices.pop(operator, None)
    return prices


_PRICED_BY = ("operator", "method", "route", "scope")
"""What of an implementation price rules go by."""
