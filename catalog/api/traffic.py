"""Statistics of lookups: the pages' figures, from the same selectors. A key sees its own organisation; one of
the host that runs the service sees all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog import models
from catalog.api.describing import query, time_range
from catalog.api.endpoint import Listing, RestView, listing, operation
from catalog.api.shapes import shape
from catalog.errors import RequestError
from catalog.figures import GROUPS, Figure
from catalog.selectors import statistics, statistics_operators
from catalog.timerange import parse_range

SORTS = [sign + name for name in statistics_operators.SORTS for sign in ("-", "")]
_RATES = ("lookups", "saved_s", "hit_rate", "hit_rate_by_calls", "hit_rate_by_operators", "reuse_rate")

TrafficAnswer = shape(statistics.Traffic, *_RATES, without=["saved_us"])
BucketAnswer = shape(statistics.TrafficBucket, *_RATES, without=["saved_us"])
RouteAnswer = shape(statistics.RouteTraffic, "saved_s", without=["saved_us"])
OperatorTrafficAnswer = shape(
    statistics_operators.OperatorTraffic,
    "hit_rate",
    "saved_s",
    without=["operator", "saved_us"],
    key=serializers.CharField(source="operator.key"),
    summary=serializers.CharField(source="operator.summary"),
    op_type=serializers.CharField(source="operator.op_type"),
)


@dataclass(frozen=True)
class TrafficStatistics:
    since: datetime
    until: datetime
    grain: Literal["hour", "day"]
    counted_at: Annotated[datetime | None, "What is younger shows later."]
    total: statistics.Traffic
    slots: Sequence[statistics.TrafficBucket]
    routes: Sequence[statistics.RouteTraffic]


@dataclass(frozen=True)
class FigureGroup:
    title: str
    figures: Sequence[Figure]


TrafficStatisticsAnswer = shape(TrafficStatistics, using=[TrafficAnswer, BucketAnswer, RouteAnswer])


class TrafficView(RestView):
    @operation(TrafficStatisticsAnswer, name="traffic_statistics", parameters=time_range("7d"))
    def get(self, request: Request) -> TrafficStatistics:
        """Hit rate, reuse and time saved, over time and in all."""
        span = parse_range(request.query_params)
        slots = statistics.slots(self.viewer, span)
        return TrafficStatistics(
            span.since,
            span.until,
            span.grain,
            counted_at=statistics.rolled_up_at(),
            total=statistics.total(slots),
            slots=slots,
            routes=statistics.routes(self.viewer, span),
        )


@listing(
    OperatorTrafficAnswer,
    name="operators_statistics",
    parameters=[query("sort", "What comes first; - sorts downwards. -jobs if left out.", enum=SORTS)],
)
class OperatorTrafficView(Listing[models.OperatorTotal]):
    """Reuse, hit rate and time saved, operator by operator."""

    def get_queryset(self) -> QuerySet[models.OperatorTotal]:
        sort = self.request.query_params.get("sort", "-jobs")
        if sort not in SORTS:
            raise RequestError(f"sort is one of {', '.join(SORTS)}.", where="sort")
        return statistics_operators.totals(self.viewer, sort)

    def paginate_queryset(self, queryset: QuerySet[models.OperatorTotal]):  # type: ignore[override]
        return [statistics_operators.described(row) for row in super().paginate_queryset(queryset) or []]


class DefinitionsView(RestView):
    @operation(shape(FigureGroup), name="statistics_definitions", many=True)
    def get(self, request: Request) -> list[FigureGroup]:
        """What every figure means, how it is counted, and from what."""
        return [FigureGroup(title, figures) for title, figures in GROUPS]


urlpatterns = [
    path("statistics/traffic", TrafficView.as_view(), name="traffic-statistics"),
    path("statistics/operators", OperatorTrafficView.as_view(), name="operators-statistics"),
    path("statistics/definitions", DefinitionsView.as_view(), name="definitions"),
]
