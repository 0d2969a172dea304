"""How methods and routes fare, and where each wins: the pages' figures, from the same selectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from django.urls import path
from rest_framework.request import Request

from catalog.api.describing import query, time_range
from catalog.api.endpoint import RestView, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.models import Setting, Target
from catalog.timerange import parse_range
from tuning.api import filters
from tuning.api.places import PLACE, place_of
from tuning.models import FailureReason
from tuning.statistics import limits, methods
from tuning.statistics.limits import LimitRow
from tuning.statistics.methods import Fares

FaresAnswer = shape(
    methods.Fares,
    "win_rate",
    without=["contested", "log_margin", "log_speedup", "verified"],
    operators_found="found",
    operators_won="won",
    win_margin="margin",
    win_speedup="speedup",
    route_hits="hits",
    route_calls="calls",
    route_saved_us="saved_us",
    verified_trials="success_rate",
    route_first_result_s="first_result_s",
    route_best_result_s="best_s",
    route_effort_s="effort_s",
    route_build_s="build_s",
)


class FailureAnswer(ModelAnswer):
    """Trials that ended in the same words, numbers aside."""

    class Meta:
        model = FailureReason
        fields = ["method", "route", "status", "reason", "count"]


CellAnswer = shape(
    methods.Cell, "size", "share", "speedup", without=["log_speedup"], wins=shape(methods.Win)(many=True)
)


@dataclass(frozen=True)
class MethodStatistics:
    """Every method and route. ``target`` and ``setting`` are null where everything is counted."""

    target: Target | None
    setting: Setting | None
    since: datetime
    until: datetime
    methods: Sequence[Fares]
    routes: Sequence[Fares]
    failures: Annotated[Sequence[FailureReason], "The most frequent first, at most 500."]
    known_limits: Annotated[Sequence[LimitRow], "What compilers miss in any place, the dearest first."]


@dataclass(frozen=True)
class Heatmap:
    """Where each wins."""

    target: Target | None
    setting: Setting | None
    by: Literal["method", "route"]
    cells: Sequence[methods.Cell]


class MethodsView(RestView):
    @operation(
        shape(MethodStatistics, using=[FaresAnswer, FailureAnswer]),
        name="method_statistics",
        parameters=[*PLACE, *time_range("30d")],
        fails=[404],
    )
    def get(self, request: Request) -> MethodStatistics:
        """What each method and route found, won and served, how fast, and why it failed."""
        at = place_of(request)
        given = {name: filters.key(request, name) for name in ("range", "since", "until")}
        span = parse_range(given, default="30d")
        routes = methods.routes(at, self.viewer, span)
        return MethodStatistics(
            at.target,
            at.setting,
            span.since,
            span.until,
            methods=methods.by_method(routes, at),
            routes=routes,
            failures=methods.failures(at),
            known_limits=limits.known_limits(self.viewer).rows,
        )


class HeatmapView(RestView):
    @operation(
        shape(Heatmap, using=[CellAnswer]),
        name="heatmap",
        parameters=[
            *PLACE,
            query("by", "Count wins by method or by route; method if left out.", enum=["method", "route"]),
            query("route", "Only kinds that this route found something for."),
        ],
        fails=[404],
    )
    def get(self, request: Request) -> Heatmap:
        """Where each wins: operator type × size."""
        at = place_of(request)
        by = next(iter(filters.choices(request, "by", ["method", "route"])), "method")
        cells = methods.cells(at, by, filters.key(request, "route"))
        return Heatmap(at.target, at.setting, "route" if by == "route" else "method", cells)


urlpatterns = [
    path("statistics/methods", MethodsView.as_view()),
    path("statistics/heatmap", HeatmapView.as_view()),
]
