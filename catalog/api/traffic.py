"""Statistics of lookups: the pages' figures, from the same selectors. A key sees its own organisation; one of
the host that runs the service sees all together."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import models
from catalog.api.authentication import key_of
from catalog.api.describing import errors, query
from catalog.errors import RequestError
from catalog.figures import GROUPS
from catalog.selectors import statistics, statistics_operators
from catalog.timerange import RANGES, TimeRange, parse_range
from catalog.viewing import Viewer, viewer_of_key

SORTS = [sign + name for name in statistics_operators.SORTS for sign in ("-", "")]
RANGE = [
    query("range", f"One of {', '.join(RANGES)}; 7d if left out.", enum=list(RANGES)),
    query("since", "Instead of a range: from then on, ISO 8601."),
    query("until", "With since: up to then, not included; now if left out."),
]


class TrafficSerializer(serializers.Serializer[Any]):
    """Lookups and what they came to; a rate is null where there was nothing. See /statistics/definitions."""

    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    lookups = serializers.IntegerField()
    hit_calls = serializers.FloatField()
    miss_calls = serializers.FloatField()
    operators_asked = serializers.IntegerField()
    operators_hit = serializers.IntegerField()
    reused_hits = serializers.IntegerField()
    saved_s = serializers.FloatField()
    hit_rate = serializers.FloatField(allow_null=True)
    hit_rate_by_calls = serializers.FloatField(allow_null=True)
    hit_rate_by_operators = serializers.FloatField(allow_null=True)
    reuse_rate = serializers.FloatField(allow_null=True)


class TrafficSlotSerializer(TrafficSerializer):
    """One hour or day, from ``start`` on (UTC)."""

    start = serializers.DateTimeField()
    jobs = serializers.IntegerField()


class RouteTrafficSerializer(serializers.Serializer[Any]):
    """Hits that one route served, over the whole days that the range touches."""

    method = serializers.CharField()
    route = serializers.CharField()
    hits = serializers.IntegerField()
    calls = serializers.FloatField()
    saved_s = serializers.FloatField()


class TrafficStatisticsSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    grain = serializers.ChoiceField(["hour", "day"])
    counted_at = serializers.DateTimeField(allow_null=True, help_text="What is younger shows later.")
    total = TrafficSerializer()
    slots = TrafficSlotSerializer(many=True)
    routes = RouteTrafficSerializer(many=True)


class OperatorTrafficSerializer(serializers.Serializer[Any]):
    """One operator's lookups since the beginning."""

    key = serializers.CharField(source="operator.key")
    summary = serializers.CharField(source="operator.summary")
    op_type = serializers.CharField(source="operator.op_type")
    jobs = serializers.IntegerField()
    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    calls = serializers.FloatField()
    hit_rate = serializers.FloatField(allow_null=True)
    saved_s = serializers.FloatField()
    last_at = serializers.DateTimeField()

    def to_representation(self, instance: models.OperatorTotal) -> Any:
        return super().to_representation(statistics_operators.described(instance))  # type: ignore[arg-type]


class FigureSerializer(serializers.Serializer[Any]):
    """What one figure means and how it is counted."""

    name = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField()
    meaning = serializers.CharField()
    formula = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field's name, beside DRF's attribute


class FigureGroupSerializer(serializers.Serializer[Any]):
    title = serializers.CharField()
    figures = FigureSerializer(many=True)


class TrafficStatisticsView(APIView):
    @extend_schema(
        operation_id="traffic_statistics",
        tags=["statistics"],
        summary="Hit rate, reuse and time saved, over time and in all",
        parameters=RANGE,
        responses={200: TrafficStatisticsSerializer, **errors(400)},
    )
    def get(self, request: Request) -> Response:
        viewer, span = viewer_of_request(request), range_of(request)
        slots = statistics.slots(viewer, span)
        answer = {
            "since": span.since, "until": span.until, "grain": span.grain,
            "counted_at": statistics.rolled_up_at(), "total": statistics.total(slots), "slots": slots,
            "routes": statistics.routes(viewer, span),
        }  # fmt: skip
        return Response(TrafficStatisticsSerializer(answer).data)


class OperatorsStatisticsView(ListAPIView[models.OperatorTotal]):
    serializer_class = OperatorTrafficSerializer
    queryset = models.OperatorTotal.objects.none()

    @extend_schema(
        operation_id="operators_statistics",
        tags=["statistics"],
        summary="Reuse, hit rate and time saved, operator by operator",
        parameters=[query("sort", "What comes first; - sorts downwards. -jobs if left out.", enum=SORTS)],
        responses={200: OperatorTrafficSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.OperatorTotal]:
        sort = self.request.query_params.get("sort", "-jobs")
        if sort not in SORTS:
            raise RequestError(f"sort is one of {', '.join(SORTS)}.", where="sort")
        return statistics_operators.totals(viewer_of_request(self.request), sort)


class DefinitionsView(APIView):
    @extend_schema(
        operation_id="statistics_definitions",
        tags=["statistics"],
        summary="What every figure means, how it is counted, and from what",
        responses={200: FigureGroupSerializer(many=True), **errors()},
    )
    def get(self, request: Request) -> Response:
        groups = [{"title": title, "figures": figures} for title, figures in GROUPS]
        return Response(FigureGroupSerializer(groups, many=True).data)


def viewer_of_request(request: Request) -> Viewer:
    """Who asks."""
    return viewer_of_key(key_of(request))


def range_of(request: Request, default: str = "7d") -> TimeRange:
    """The range that the query asks for; raises :class:`RequestError` with one sentence."""
    given = {name: request.query_params.get(name, "") for name in ("range", "since", "until")}
    return parse_range(given, default)
