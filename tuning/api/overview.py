"""The overview's key figures over REST, from the selectors that the page reads."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.describing import errors
from catalog.api.views.statistics import RANGE, TrafficSerializer, range_of, viewer_of_request
from catalog.selectors import statistics
from tuning.statistics import paid_back, waiting


class CatalogueSerializer(serializers.Serializer[Any]):
    """What is known to this key: shared, and its organisation's own."""

    operators = serializers.IntegerField()
    known = serializers.IntegerField()
    implementations = serializers.IntegerField()
    geomean_speedup = serializers.FloatField(allow_null=True)
    wins = serializers.DictField(child=serializers.IntegerField(), help_text="By method.")


class ReuseSerializer(serializers.Serializer[Any]):
    operators = serializers.IntegerField()
    shared = serializers.IntegerField()
    jobs_per_operator = serializers.FloatField(allow_null=True)
    shared_operators = serializers.FloatField(allow_null=True)


class PaidBackSerializer(serializers.Serializer[Any]):
    """Time spent on exploring against the time that it saved, since the beginning."""

    explored = serializers.IntegerField()
    paid_back = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True)
    spent_s = serializers.FloatField()
    saved_s = serializers.FloatField()
    return_on_tuning = serializers.FloatField(allow_null=True)


class WaitingSerializer(serializers.Serializer[Any]):
    queued = serializers.IntegerField()
    running = serializers.IntegerField()
    paused = serializers.IntegerField()
    collecting = serializers.IntegerField()
    workers = serializers.IntegerField()
    oldest_s = serializers.FloatField(allow_null=True)


class OverviewSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    traffic = TrafficSerializer()
    jobs = serializers.IntegerField()
    catalogue = CatalogueSerializer()
    reuse = ReuseSerializer()
    exploring = PaidBackSerializer()
    now = WaitingSerializer()


class OverviewStatistics(APIView):
    @extend_schema(
        operation_id="overview_statistics",
        tags=["statistics"],
        summary="Key figures: hit rate, reuse, time saved and spent, queues, workers",
        parameters=RANGE,
        responses={200: OverviewSerializer, **errors(400)},
    )
    def get(self, request: Request) -> Response:
        viewer, span = viewer_of_request(request), range_of(request)
        state = waiting.waiting(viewer)
        now = {
            name: getattr(state, name) for name in ("queued", "running", "paused", "collecting", "workers")
        }
        answer = {
            "since": span.since, "until": span.until,
            "traffic": statistics.total(statistics.slots(viewer, span)),
            "jobs": statistics.jobs_served(viewer),
            "catalogue": statistics.catalogue(viewer),
            "reuse": statistics.reuse(viewer),
            "exploring": paid_back.paid_back(viewer),
            "now": now | {"oldest_s": state.oldest_s(timezone.now())},
        }  # fmt: skip
        return Response(OverviewSerializer(answer).data)
