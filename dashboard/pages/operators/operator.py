"""One operator: its methods side by side, every implementation and trial, who reuses it, and what pays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from catalog.best.withdrawing import withdraw
from catalog.charging import Terms, charging
from catalog.default_names import default_name
from catalog.models import Artifact, Implementation, Operator
from catalog.people import audit
from catalog.selectors import detail
from catalog.selectors.predicted import related_to
from catalog.selectors.reuse import lookups_of, reuse
from catalog.timerange import RANGES
from catalog.viewing import APPROVE, Viewer
from dashboard.billing import selectors as billing
from dashboard.pages.operators import history, race, tables
from dashboard.pages.operators.related import graph
from dashboard.pages.operators.state import exploration_of, place_asked_for, state_part
from dashboard.pages.work.trials import trials_table
from dashboard.web import wording
from dashboard.web.asked import one_of, say_unknown, takes
from dashboard.web.charts import methods as method_charts
from dashboard.web.charts import operators as operator_charts
from dashboard.web.charts import traffic as traffic_charts
from dashboard.web.charts.drawing import METHODS, Figure, called, shortened
from dashboard.web.paging import asked_page
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest, number_in, refusals_said
from dashboard.web.tables import Table, exported
from opatlas.identity import Setting
from tuning.models import Exploration, Trial
from tuning.rechecks.selectors import reported
from tuning.statistics import benefit, sides
from tuning.withheld import shown_one_by_one, shown_trials

TRIALS_SHOWN, SLICES_SHOWN = 50, 200
CHANGES_READ = 200
"""The most changes of the best that a chart draws."""


@dataclass(frozen=True)
class TrialsPage:
    """The trials of one exploration that the URL asks for, a page of them, and how all of them ended."""

    rows: QuerySet[Trial]
    page: Any
    statuses: list[tuple[str, int]]
    routes: list[str]
    endings: Collection[tuple[str, str]]  # route, status
    status: str
    route: str


@require_safe
def operator(request: ViewerRequest, key: str) -> HttpResponse:
    row = get_object_or_404(Operator, key=key)
    takes(request, "at", "race", "implementation", "status", "route")
    viewer = request.viewer
    known = detail.ShownOperator(row, viewer.shown())
    place = place_asked_for(request, known.places)
    span = range_of(request)
    used = reuse(row, viewer)
    following = related_to(row, viewer)
    slots = lookups_of(row, viewer, span) if used.lookups else []
    asked = any(slot.hits + slot.misses for slot in slots)
    context: dict[str, Any] = {
        "operator": row, "graph": row.graph, "places": known.places, "place": place,
        "reuse": used, "range": span, "ranges": list(RANGES), "methods": METHODS,
        "host": request.build_absolute_uri("/").rstrip("/"), "setting": _setting(place),
        "jobs_table": tables.jobs(used), "models_table": tables.models(used),
        "lookups_table": tables.lookups(slots),
        "targets_table": tables.targets(known.bests, place),
        "related_table": tables.related(following), "related_graph": graph(following),
        "withheld": billing.withheld_totals(viewer.owned(), *billing.days_of(span), row.pk),
        "reuse_chart": traffic_charts.hit_rate(slots, height=220) if asked else None,
    }  # fmt: skip
    evidence = _evidence(request, known, place, viewer) if place is not None else {}
    context |= evidence
    every = [value for name, value in context.items() if name.endswith("_table")]
    if (answer := exported(request, *every)) is not None:
        return answer
    best, made, exploration = (evidence.get(name) for name in ("best", "made", "exploration"))
    shown = best.implementation.pk if best else 0
    part = state_part(request, row, place, made or [], evidence.get("terms", {}), used, exploration, shown)
    return render(request, "operators/operator.html", context | {"live": part.html})


@require_POST
def revoke(request: ViewerRequest, key: str) -> HttpResponse:
    """Take one implementation out of service, with a reason, and go back to the operator."""
    viewer = request.viewer
    found = Implementation.objects.filter(viewer.shown(), operator__key=key)
    if not viewer.may_approve and not any(viewer.may(APPROVE, one) for one in viewer.roles):
        raise PermissionDenied("Only approvers and administrators revoke implementations.")
    row = get_object_or_404(found, pk=number_in(request.POST.get("implementation", "")))
    if not viewer.may_on(APPROVE, row):
        raise PermissionDenied("What is shared is revoked by those who run the service.")
    reason = request.POST.get("reason", "")
    with refusals_said(request):
        withdraw(found.filter(pk=row.pk), reason)
        said = {"reason": reason[:300], "implementation": row.pk}
        audit.note(request, action="implementation.revoke", subject=str(row), detail=said)
        messages.success(request, f"Revoked: {row}. It is no longer served.")
    return redirect(f"{reverse('operator', args=[key])}?at={row.target_id}-{row.setting_id}")


def _setting(place: detail.Place | None) -> Mapping[str, str]:
    """The place's setting for a client, in Python and as JSON: threads, and whatever is not usual."""
    if place is None:
        return {}
    there, usual = Setting.from_json(place.setting.description).to_json(), Setting().to_json()
    said = {name: value for name, value in there.items() if name == "threads" or value != usual.get(name)}
    python = ", ".join(f"{name}={value!r}" for name, value in said.items())
    return {"python": f"Setting({python})", "json": json.dumps(said)}


def _evidence(
    request: ViewerRequest, known: detail.ShownOperator, place: detail.Place, viewer: Viewer
) -> dict[str, Any]:
    """Everything known in one place."""
    row, seen = known.operator, known.visible
    made = known.implementations(place)
    best = next((one for one in made if one.rank == 0), None)
    side = sides.side_by_side(made)
    against = sides.against_best(made)
    terms = charging().terms_of(viewer.payer, [one.implementation for one in made])
    exploration = exploration_of(row, place, viewer)
    raced = race.card(request, Exploration.objects.filter(seen, place.filter, operator=row))
    changes = detail.history(row, place, seen, CHANGES_READ)
    points = history.leaders(changes, made)
    found = history.events(changes, row, place, seen, exploration.pk if exploration else None)
    trials = _trials(request, exploration)
    default_route = best.measurement.default_route if best and best.measurement else ""
    default = default_name(default_route)
    chosen = next((o for o in made if str(o.implementation.pk) == request.GET.get("implementation")), None)
    if chosen is None:
        say_unknown(request, "implementation", " of this operator here")
        chosen = best
    return {
        "made": made, "best": best, "chosen": chosen, "side": side, "terms": terms,
        "artifact": _artifact(best, terms),
        "failures_table": tables.failures(reported([one.implementation for one in made], viewer)),
        "revocable": [one for one in made if viewer.may_on(APPROVE, one.implementation)],
        "exploration": exploration, "trials": trials, "history": found,
        "race": raced, "race_table": tables.race(raced),
        "sides_table": tables.sides(side),
        "implementations_table": tables.implementations(row, viewer, made, against, terms, chosen, side),
        "trials_table": _trials_table(trials, default_route, viewer),
        "best_table": tables.leaders(points), "history_table": tables.events(found),
        "best_chart": method_charts.best_over_time(points, timezone.now(), default) if points else None,
        "chart": _chart(made, default), "default": default,
        **_worth(row, best, exploration, trials, viewer),
    }  # fmt: skip


def _artifact(best: detail.RankedImplementation | None, terms: Mapping[int, Terms]) -> Artifact | None:
    """The best's artifact, unless it is withheld."""
    if best is None or ((found := terms.get(best.implementation.pk)) and found.withheld):
        return None
    return best.implementation.artifact


def _worth(
    row: Operator,
    best: detail.RankedImplementation | None,
    exploration: Exploration | None,
    trials: TrialsPage | None,
    viewer: Viewer,
) -> dict[str, Any]:
    """Whether more tuning would pay, and what the slices so far brought."""
    if best is None or best.measurement is None or exploration is None or trials is None:
        return {}
    rate = benefit.calls_per_day(row, viewer)
    slices = list(exploration.slices.order_by("-pk"))
    return {
        "calls_per_day": rate,
        "benefit": benefit.benefit(exploration, best.measurement.median_us, rate, slices, trials.endings),
        "slices_table": tables.slices(slices[:SLICES_SHOWN]),
    }


def _trials(request: ViewerRequest, exploration: Exploration | None) -> TrialsPage | None:
    if exploration is None:
        return None
    ended = exploration.trials.values_list("route", "status").annotate(n=Count("pk")).order_by()
    every = {(route, status): n for route, status, n in ended}
    counts: Counter[str] = Counter()
    for (_, status), n in every.items():
        counts[status] += n
    routes = sorted({route for route, _ in every})
    status, route = one_of(request, "status", counts), one_of(request, "route", routes)
    rows = exploration.trials.defer("candidate").order_by("-pk")
    if status:
        rows = rows.filter(status=status)
    if route:
        rows = rows.filter(route=route)
    pages = Paginator(rows, TRIALS_SHOWN)
    pages.count = sum(  # counted already
        n for (by, end), n in every.items() if route in ("", by) and status in ("", end)
    )
    page = asked_page(request, pages)
    return TrialsPage(rows, page, counts.most_common(), routes, every.keys(), status, route)


def _trials_table(trials: TrialsPage | None, default: str, viewer: Viewer) -> Table:
    if trials is None:
        return trials_table((), (), whole=False)
    every = shown_one_by_one(viewer, trials.rows.iterator(chunk_size=500))
    shown = shown_trials(viewer, trials.page.object_list)
    return trials_table(shown, every, whole=False, default=default)


def _chart(made: list[detail.RankedImplementation], default: str) -> Figure | None:
    timed = [one for one in made if one.measurement is not None]
    return operator_charts.ratios([_dot(one) for one in timed], default) if timed else None


def _dot(one: detail.RankedImplementation) -> operator_charts.Dot:
    implementation, m = one.implementation, one.measurement
    assert m is not None  # only timed ones are drawn
    default = default_name(m.default_route)
    name = called(implementation.route, implementation.label)
    took = f"{wording.duration_us(m.median_us)} ± {wording.duration_us(m.spread_us)}"
    return operator_charts.Dot(
        name=shortened(name, 44),
        method=implementation.method,
        value=m.ratio_to_default,
        low=m.ratio_low,
        high=m.ratio_high,
        hover=f"{name}<br>{wording.ratio(m.ratio_to_default)} the speed of the {default}"
        f"<br>{took} in {one.samples} samples, the default in turns {wording.duration_us(m.default_us)}",
    )
