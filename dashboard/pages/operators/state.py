"""An operator's state in one place: the figures on top of its page, live while it is explored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from catalog.charging import Terms, charging
from catalog.lookup.lookups import is_served
from catalog.lookup.neighbours import NeighbourHit, find_neighbours
from catalog.models import SHARED, MissState, Operator
from catalog.selectors import detail
from catalog.selectors.reuse import OperatorReuse, reuse
from catalog.viewing import Viewer
from dashboard.pages.work.current_work import ACTIVE
from dashboard.web.asked import say_unknown
from dashboard.web.live import Part
from dashboard.web.requests import ViewerRequest, number_in
from tuning.models import Exploration

EVERY_S = 3
UNDECIDED = (MissState.WAITING, MissState.PROMOTED)


def place_asked_for(request: ViewerRequest, places: Sequence[detail.Place]) -> detail.Place | None:
    """The place in the address, else the first."""
    found = next((one for one in places if one.value == request.GET.get("at")), None)
    if found is None:
        say_unknown(request, "at", " of this operator", "place")
    return found or next(iter(places), None)


def exploration_of(row: Operator, place: detail.Place, viewer: Viewer) -> Exploration | None:
    """The first of those that the viewer may see."""
    found = Exploration.objects.filter(viewer.shown(), place.filter, operator=row).order_by("pk").first()
    if found is not None:
        found.operator, found.target, found.setting = row, place.target, place.setting
    return found


def state_part(
    request: ViewerRequest,
    row: Operator,
    place: detail.Place | None,
    made: Sequence[detail.RankedImplementation],
    terms: Mapping[int, Terms],
    used: OperatorReuse,
    exploration: Exploration | None,
    shown: int,
) -> Part:
    """The figures and the operator's state. ``shown``: the best implementation when the whole page was made,
    0 if there was none."""
    viewer = request.viewer
    best = next((one for one in made if one.rank == 0), None)
    miss = detail.miss(row, place, viewer.shown()) if place and not best else None
    context: dict[str, Any] = {
        "operator": row,
        "place": place,
        "reuse": used,
        "best": best,
        "best_terms": best and terms.get(best.implementation.pk),
        "default_us": best.measurement.default_us if best and best.measurement else None,
        "miss": miss,
        "near": _neighbour(row, place, viewer) if place and not best else None,
        "exploration": exploration,
        "moving": _is_moving(exploration, miss),
        "newer": bool(shown and best and best.implementation.pk != shown),
    }
    query = f"?at={place.value}&shown={shown}" if place else ""
    path = reverse("operator-state", args=[row.key]) + query
    every_s = EVERY_S if context["moving"] else None
    return Part(request, "operators/_operator_state.html", context, path=path, every_s=every_s)


@require_safe
def state(request: ViewerRequest, key: str) -> HttpResponse:
    """Refreshed while the operator is explored. A page without results is loaded again once there are some:
    nobody is reading anything on it."""
    row = get_object_or_404(Operator, key=key)
    viewer = request.viewer
    known = detail.ShownOperator(row, viewer.shown())
    place = place_asked_for(request, known.places)
    shown = number_in(request.GET.get("shown", "")) or 0
    made = known.implementations(place) if place else []
    if made and not shown and any(one.rank == 0 for one in made):
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    terms = charging().terms_of(viewer.payer, [one.implementation for one in made])
    exploration = exploration_of(row, place, viewer) if place else None
    return state_part(request, row, place, made, terms, reuse(row, viewer), exploration, shown).response()


def _is_moving(exploration: Exploration | None, miss: Any) -> bool:
    if exploration is not None:
        return exploration.state in ACTIVE
    return miss is not None and miss.state in UNDECIDED


def _neighbour(row: Operator, place: detail.Place, viewer: Viewer) -> NeighbourHit | None:
    """Another target's result that jobs here are given, while no worker explores for this one."""
    if is_served(place.target):
        return None
    scopes = viewer.scopes or (SHARED,)
    return find_neighbours([row.key], place.target, place.setting, scopes).get(row.key)
