"""Methods: what each method and route found, won and served, how fast, where it wins, and why it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from catalog.models import Method
from catalog.timerange import RANGES
from dashboard.web import wording
from dashboard.web.asked import one_of, say_unknown, takes
from dashboard.web.charts import methods as method_charts
from dashboard.web.paging import with_query
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported
from tuning.models import FailureReason
from tuning.routes.base import EVERYWHERE
from tuning.statistics import families, limits, methods
from tuning.statistics.families import FamilyCell, FamilyRow
from tuning.statistics.limits import KnownLimits, LimitRow
from tuning.statistics.methods import At, Cell, Fares

_CELLS_SHOWN, _REASONS_SHOWN = 60, 40

_FARES = (
    Column("operators_found", "Found", "count", "found", figure="operators_found"),
    Column("operators_won", "Won", "count", "won", figure="operators_won"),
    Column("win_rate", "Win rate", "percent", figure="win_rate"),
    Column("margin", "Margin", "ratio", figure="win_margin"),
    Column("speedup", "Speed-up", "ratio", figure="win_speedup"),
    Column("hits", "Hits", "count", figure="route_hits"),
    Column("calls", "Calls", "count", figure="route_calls"),
    Column("saved_us", "Saved", "us", figure="route_saved"),
)
_WAITS = (
    Column("explorations", "Explorations", "count"),
    Column("trials", "Trials", "count"),
    Column("verified", "Verified", "percent", "success_rate", figure="verified_trials"),
    Column("first_result_s", "First result", "seconds", figure="route_first_result"),
    Column("best_s", "Best", "seconds", figure="route_best_result"),
    Column("effort_s", "Effort", "seconds", figure="route_effort"),
    Column("build_s", "Build", "seconds", figure="route_build"),
)


@require_safe
def methods_page(request: ViewerRequest) -> HttpResponse:
    places = methods.places()
    at = next((one for one in places if one.value == request.GET.get("at")), At())
    if not at.value:
        say_unknown(request, "at", what="place")
    span = range_of(request)
    routes = methods.routes(at, request.viewer, span)
    by_method = methods.by_method(routes, at)
    takes(request, "at", "route", "by", "method")
    named = one_of(request, "route", [one.route for one in routes])
    route = next((one for one in routes if one.route == named), None)
    method = one_of(request, "method", Method.values)
    by = one_of(request, "by", ("method", "route"), "method", "heat map by")
    cells = methods.cells(at, by, named)
    reasons = methods.failures(at, method, named)
    known = limits.known_limits(request.viewer, named)
    shown = [route] if route else routes
    won = families.families(at, by)
    tables = {
        "methods": _fares_table("methods", "Methods", by_method, _FARES),
        "method_times": _fares_table("method_times", "How fast methods find", by_method, _WAITS),
        "routes": _fares_table("routes", "Routes", shown, _FARES, request),
        "times": _fares_table(
            "times", "How fast routes find", [one for one in shown if one.trials], _WAITS, request
        ),
        "families": _families_table(won),
        "where": _where_table(cells, route),
        "failures": _failures_table(reasons),
        "limits": _limits_table(known),
    }
    if (answer := exported(request, *tables.values())) is not None:
        return answer
    context = {
        **tables, "places": places, "at": at, "range": span, "ranges": list(RANGES), "route": route,
        "all_routes": routes, "method_names": Method.values, "method": method,
        "by_route": by == "route", "made_at": methods.made_at(),
        "drawn": _charts(shown, reasons), "known": known, **_heat_map(won, route, by),
    }  # fmt: skip
    return render(request, "operators/methods.html", context)


def _heat_map(rows: Sequence[FamilyRow], route: Fares | None, by: str) -> dict[str, Any]:
    """What its template takes; of one route the families in which it, or its method, won anything."""
    columns = families.columns(rows)
    if route:
        name = route.route if by == "route" else route.method
        columns = [one for one in columns if one[0] == name]
        rows = [row for row in rows if name in row.cells]
    shown = [
        {
            "family": row.family, "op_types": row.op_types, "operators": row.operators,
            "shown": [row.cells.get(name) for name, _ in columns],
        }
        for row in rows
    ]  # fmt: skip
    return {"heat_rows": shown, "heat_columns": columns, "heat_steps": _steps()}


def _steps() -> list[tuple[int, str]]:
    """What each colour stands for."""
    edges = [wording.ratio(edge) for edge in families.STEPS]
    between = [f"{low} – {high}" for low, high in pairwise(edges)]
    return list(enumerate([f"less than {edges[0]}", *between, f"{edges[-1]} and more"]))


def _charts(routes: Sequence[Fares], reasons: Sequence[FailureReason]) -> dict[str, Any]:
    """Only charts that have something to show."""
    drawn = {
        "won": method_charts.found_and_won(routes) if any(one.found for one in routes) else None,
        "waits": method_charts.waits(routes)
        if any(one.first_result_s is not None for one in routes)
        else None,
        "failures": method_charts.failures(reasons) if reasons else None,
    }
    return {name: chart for name, chart in drawn.items() if chart}


def _fares_table(
    name: str,
    title: str,
    rows: Sequence[Fares],
    columns: Sequence[Column],
    request: ViewerRequest | None = None,
) -> Table:
    """``request``: routes link to their own view, other filters kept."""
    first = Column("name", "Method", "method")
    if request:
        first = Column("name", "Route", "method", link=partial(_own_view, request))
    empty = "Nothing stands here yet: no operator was explored."
    return Table(name, title, [first, *columns], rows, empty)


def _own_view(request: ViewerRequest, one: Fares) -> str:
    return with_query(request, route=one.route, export=None, table=None)


def _of_type(cell: Cell) -> str:
    return f"{reverse('operators')}?op_type={cell.op_type}"


@dataclass(frozen=True)
class _FamilyLine:
    """A cell of the heat map, as a row of its export."""

    row: FamilyRow
    cell: FamilyCell


_FAMILIES = (
    Column("family", "Family", value="row.family"),
    Column("name", "Won by", "method", "cell.name", beside="cell.method"),
    Column("margin", "Margin", "ratio", "cell.margin", figure="win_margin"),
    Column("contested", "With a runner-up", "count", "cell.contested"),
    Column("won", "Won", "count", "cell.won"),
    Column("operators", "Operators", "count", "row.operators"),
)


def _families_table(rows: Sequence[FamilyRow]) -> Table:
    lines = [_FamilyLine(row, cell) for row in rows for cell in row.cells.values()]
    return Table("families", "Win margins by family", _FAMILIES, lines, "Nobody has won yet.")


def _where_table(cells: Sequence[Cell], route: Fares | None) -> Table:
    columns = [
        Column("op_type", "Operator type", link=_of_type),
        Column("size", "Size of one run"),
        Column("leader", "Most wins", "method", "leader.0", beside="leader.1"),
        Column("share", "Of the operators", "percent", figure="where_it_wins"),
        Column("won", "Won", "count", "leader.2"),
        Column("operators", "Operators", "count"),
        Column("speedup", "Over the default", "ratio"),
    ]
    if route:
        name = route.route
        columns.insert(4, Column("route_won", f"Won by {name}", "count", lambda cell: cell.won_by(name)))
    rows = sorted(cells, key=lambda cell: (-cell.operators, cell.op_type, cell.size_class))
    return Table(
        "where", "Where each wins", columns, rows[:_CELLS_SHOWN], every=rows, empty="Nobody has won yet."
    )


def _example(one: FailureReason) -> str:
    return one.example.exploration.operator.summary if one.example else ""


def _example_address(one: FailureReason) -> str | None:
    if one.example is None:
        return None
    exploration = one.example.exploration
    place = f"{exploration.target_id}-{exploration.setting_id}"
    query = f"?at={place}&status={one.status}&route={one.route}#trials"
    return reverse("operator", args=[exploration.operator.key]) + query


_FAILURES = (
    Column("route", "Route", "method"),
    Column("status", "Ended", "badge"),
    Column("reason", "What was said, numbers aside"),
    Column("count", "Trials", "count", figure="failure_reasons"),
    Column("example", "For example", value=_example, link=_example_address),
)


def _failures_table(reasons: Sequence[FailureReason]) -> Table:
    empty = "No trial has failed among the latest explorations."
    return Table("failures", "Failures by reason", _FAILURES, reasons[:_REASONS_SHOWN], empty, reasons)


def _only_where(row: LimitRow) -> str:
    return "" if row.where == EVERYWHERE else f"Only {row.where}"


_LIMITS = (
    Column("route", "Route", "method"),
    Column("sentence", "What it misses", css="wide-text"),
    Column("where", "Where", under="sentence", show=_only_where),
    Column("operators", "Operators", "count"),
    Column("share_of_calls", "Of the calls", "percent", figure="known_limits"),
    Column("refused", "Refused", only="export"),
)


def _limits_table(known: KnownLimits) -> Table:
    empty = "Nothing was counted yet." if known.made_at is None else "None is known."
    return Table("limits", "Known limits", _LIMITS, known.rows[:_REASONS_SHOWN], empty, known.rows)
