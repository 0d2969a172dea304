"""What is known of implementations and places, for many events at a time."""

from __future__ import annotations

from collections.abc import Collection

from catalog.models import Best, Implementation, Measurement

PlaceKey = tuple[int, int, int, str]
"""(operator, target, setting, scope)."""


def winners(operators: Collection[int]) -> dict[PlaceKey, Best]:
    """Who serves now, in every place of these operators."""
    rows = Best.objects.filter(operator_id__in=operators, rank=0)
    found = rows.select_related("measurement").defer("measurement__samples_us")
    return {(one.operator_id, one.target_id, one.setting_id, one.scope): one for one in found}


def ratios(implementations: Collection[int]) -> dict[int, float]:
    """Implementation → times the default, by the evidence that its seat rests on, else by its newest."""
    newest = Measurement.objects.filter(implementation_id__in=implementations).order_by("created_at", "pk")
    known = dict(newest.values_list("implementation_id", "ratio_to_default"))
    seats = Best.objects.filter(implementation_id__in=implementations)
    return known | dict(seats.values_list("implementation_id", "ratio_to_default"))


def defaults(implementations: Collection[int]) -> dict[int, str]:
    """Implementation → the route that it was timed in turns with, by its newest evidence; of old evidence it
    is not noted, and empty."""
    rows = Measurement.objects.filter(implementation_id__in=implementations).order_by("created_at", "pk")
    return dict(rows.values_list("implementation_id", "default_route"))


def places_of(implementations: Collection[int]) -> dict[int, PlaceKey]:
    """Where implementations compete."""
    rows = Implementation.objects.filter(pk__in=implementations).values_list(
        "pk", "operator_id", "target_id", "setting_id", "scope"
    )
    return {pk: (operator, target, setting, scope) for pk, operator, target, setting, scope in rows}
