"""One operator: every implementation, its trials, who reuses it, its code, how to ask for it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_POST, require_safe

from catalog.models import Implementation, Operator
from catalog.selectors import detail, traffic
from catalog.services import withdraw
from dashboard import charts, wording
from dashboard.code import highlighted
from dashboard.selectors import history
from dashboard.selectors.visible import visible
from opatlas.errors import CallerError
from tuning.models import Exploration, Trial

TRIALS_SHOWN = 200


@require_safe
def operator(request: HttpRequest, key: str) -> HttpResponse:
    row = get_object_or_404(Operator, key=key)
    seen = visible(request.user)
    places = detail.places(row, seen)
    place = next((one for one in places if one.value == request.GET.get("at")), places[0] if places else None)
    reuse = detail.reuse(row)
    context = {
        "operator": row,
        "graph": row.graph,
        "places": places,
        "place": place,
        "reuse": reuse,
        "methods": charts.METHODS,
        "host": request.build_absolute_uri("/").rstrip("/"),
    }
    if place is not None:
        context |= _evidence(row, place, seen)
    if reuse.hits + reuse.misses:
        now = timezone.now()
        slots = traffic.lookups(now - timedelta(days=14), now, by_day=True, operator=row)
        context |= {"slots": slots[::-1], "reuse_chart": charts.hit_rate(slots, height=220)}
    return render(request, "operator.html", context)


@require_safe
def code(request: HttpRequest, key: str, implementation_id: int) -> HttpResponse:
    """Schedule and source of one implementation: as a part of the operator's page, or a page of its own."""
    found = Implementation.objects.filter(visible(request.user), operator__key=key)
    implementation = get_object_or_404(found.select_related("operator", "artifact"), pk=implementation_id)
    recipe = implementation.artifact.manifest.get("recipe")
    context = {
        "operator": implementation.operator,
        "implementation": implementation,
        "texts": [
            (title, text, highlighted(text))
            for title, text in (("Schedule", implementation.schedule), ("Source", implementation.source))
            if text
        ],
        "recipe": highlighted(json.dumps(recipe or implementation.candidate, indent=2)),
        "recipe_title": "Recipe" if recipe else "Candidate",
    }
    template = "_operator_code.html" if request.htmx else "operator_code.html"  # type: ignore[attr-defined]
    response = render(request, template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response


@require_POST
def revoke(request: HttpRequest, key: str) -> HttpResponse:
    """Take one implementation out of service, with a reason, and go back to the operator."""
    if not request.user.is_staff:
        raise PermissionDenied("Only administrators revoke implementations.")
    number = request.POST.get("implementation", "")
    found = Implementation.objects.filter(visible(request.user), operator__key=key)
    row = get_object_or_404(found, pk=int(number) if number.isdecimal() and len(number) < 19 else 0)
    try:
        withdraw(found.filter(pk=row.pk), request.POST.get("reason", ""))
    except CallerError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Revoked: {row}. It is no longer served.")
    return redirect(f"{reverse('operator', args=[key])}?at={row.target_id}-{row.setting_id}")


def _evidence(row: Operator, place: detail.Place, seen: Q) -> dict:
    made = detail.implementations(row, place, seen)
    timed = [one for one in made if one.measurement is not None]
    best = next((one for one in made if one.rank == 0), None)
    default_us = best.measurement.default_us if best and best.measurement else None
    key = {"operator": row, "target": place.target, "setting": place.setting}
    exploration = Exploration.objects.filter(seen, **key).first()
    trials: list[Trial] = []
    if exploration is not None:
        found = exploration.trials.select_related("implementation").defer(
            "candidate", "implementation__schedule", "implementation__source", "implementation__candidate"
        )
        trials = list(found.order_by("-pk")[:TRIALS_SHOWN])
    present = {one.implementation.method for one in made}
    return {
        "made": made,
        "best": best,
        "default_us": default_us,
        "absent": [method for method in charts.METHODS if method not in present],
        "miss": None if best else detail.miss(row, place, seen),
        "exploration": exploration,
        "trials": trials,
        "trial_counts": Counter(trial.status for trial in trials).most_common(),
        "history": history.events(row, place, seen, exploration.pk if exploration else None),
        "chart": charts.times([_dot(one) for one in timed]) if timed else None,
    }


def _dot(one: detail.Made) -> charts.Dot:
    implementation, m = one.implementation, one.measurement
    assert m is not None  # only timed ones are drawn
    name = (
        f"{implementation.route} · {implementation.label}" if implementation.label else implementation.route
    )
    return charts.Dot(
        name=name if len(name) <= 44 else f"{name[:43]}…",
        method=implementation.method,
        value=m.median_us,
        low=max(m.median_us - m.spread_us, 0),
        high=m.median_us + m.spread_us,
        default=m.default_us,
        hover=f"{name}<br>{wording.duration_us(m.median_us)} ± {wording.duration_us(m.spread_us)}"
        f"<br>{wording.ratio(m.ratio_to_default)} the default's speed",
    )
