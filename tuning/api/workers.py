"""Statistics of queues and workers: the same figures as the pages, from the same selectors."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors
from catalog.viewing import viewer_of_key
from tuning.api.views import found
from tuning.statistics import collecting, queues
from tuning.statistics.eta import eta
from tuning.statistics.rates import rates
from tuning.statistics.workers import workers


class LaneSerializer(serializers.Serializer[Any]):
    """One explore queue."""

    capability = serializers.CharField()
    stage = serializers.IntegerField()
    stage_name = serializers.CharField()
    priority = serializers.IntegerField()
    queued = serializers.IntegerField()
    running = serializers.IntegerField()
    paused = serializers.IntegerField()
    oldest_at = serializers.DateTimeField(
        allow_null=True, help_text="When the oldest that waits was asked for."
    )
    worth_us = serializers.FloatField(help_text="Calls × time × expected gain of what waits.")


class CapabilitySerializer(serializers.Serializer[Any]):
    """All explore queues of one capability."""

    capability = serializers.CharField()
    workers = serializers.IntegerField(help_text="Live ones.")
    paused = serializers.CharField(allow_null=True, help_text="Why; null: it is not paused.")
    queued = serializers.IntegerField()
    running = serializers.IntegerField()
    held = serializers.IntegerField(help_text="Explorations paused one by one.")
    oldest_at = serializers.DateTimeField(allow_null=True)
    worth_us = serializers.FloatField()
    ended_last_hour = serializers.IntegerField()
    ended_last_day = serializers.IntegerField()
    drain_s = serializers.FloatField(allow_null=True)
    drain_how = serializers.CharField()


class HourSerializer(serializers.Serializer[Any]):
    """What ended within one hour."""

    start = serializers.DateTimeField()
    done = serializers.IntegerField()
    unsupported = serializers.IntegerField()
    discarded = serializers.IntegerField()
    dead = serializers.IntegerField()
    ended = serializers.IntegerField()
    first_results = serializers.IntegerField()


class ReasonCountSerializer(serializers.Serializer[Any]):
    """Misses that nobody explores now, for one reason."""

    state = serializers.CharField()
    reason = serializers.CharField()
    count = serializers.IntegerField()
    oldest_at = serializers.DateTimeField()
    latest_at = serializers.DateTimeField()


class QueueStatisticsSerializer(serializers.Serializer[Any]):
    """The explore queues and the collect queue."""

    capabilities = CapabilitySerializer(many=True)
    lanes = LaneSerializer(many=True)
    throughput = HourSerializer(many=True)
    dead = serializers.IntegerField(help_text="Explorations that were given up.")
    collect = ReasonCountSerializer(many=True)


class HeldSerializer(serializers.Serializer[Any]):
    """An exploration under a worker's lease."""

    id = serializers.IntegerField()
    summary = serializers.CharField()
    doing = serializers.CharField()
    lease_expires_at = serializers.DateTimeField(allow_null=True)


class WorkerStatisticsSerializer(serializers.Serializer[Any]):
    """A worker: how it does, what it holds, and what it gets done."""

    name = serializers.CharField(source="worker.name")
    host = serializers.CharField(source="worker.host")
    state = serializers.ChoiceField(["alive", "silent", "stopped"])
    capability = serializers.CharField(source="worker.target.capability")
    tier = serializers.CharField(source="worker.tier")
    memory_bytes = serializers.IntegerField(source="worker.memory_bytes")
    doing = serializers.CharField(source="worker.doing")
    last_seen_at = serializers.DateTimeField(source="worker.last_seen_at")
    available = serializers.SerializerMethodField()
    unavailable = serializers.SerializerMethodField()
    holds = HeldSerializer(many=True)
    slices_per_hour = serializers.FloatField(
        source="per_hour", allow_null=True, help_text="In an hour of work, by its latest slices."
    )
    slices_last_hour = serializers.IntegerField(source="ended_last_hour")

    def get_available(self, row: Any) -> list[str]:
        return [name for name, _ in row.available]

    def get_unavailable(self, row: Any) -> dict[str, str]:
        return {name: str(facts.get("reason", "")) for name, facts in row.unavailable}


class EtaSerializer(serializers.Serializer[Any]):
    """When an exploration will be over; ``seconds`` is null where nothing can be said."""

    seconds = serializers.FloatField(allow_null=True)
    wait_s = serializers.FloatField()
    work_s = serializers.FloatField()
    at_most = serializers.BooleanField()
    how = serializers.CharField()


class EtaAnswerSerializer(serializers.Serializer[Any]):
    """Null where it has ended or is paused."""

    eta = EtaSerializer(allow_null=True)


class QueueStatistics(APIView):
    @extend_schema(responses={200: QueueStatisticsSerializer, **errors()})
    def get(self, request: Request) -> Response:
        """Depth, age, worth and pace of the explore queues, and why misses are not explored."""
        visible, now = _visible(request), timezone.now()
        answer = {
            "capabilities": queues.capability_queues(visible, rates(), now),
            "lanes": queues.lanes(visible),
            "throughput": queues.throughput(visible, now),
            "dead": queues.dead_letters(visible).count(),
            "collect": collecting.reasons(visible),
        }
        return Response(QueueStatisticsSerializer(answer).data)


class WorkerStatistics(APIView):
    @extend_schema(responses={200: WorkerStatisticsSerializer(many=True), **errors()})
    def get(self, request: Request) -> Response:
        """Workers heard within a day, those alive first."""
        rows = workers(200, rates(), _visible(request))
        return Response(WorkerStatisticsSerializer(rows, many=True).data)


class ExplorationEta(APIView):
    @extend_schema(responses={200: EtaAnswerSerializer, **errors(404)})
    def get(self, request: Request, pk: int) -> Response:
        """When an exploration will be over, and how that was estimated."""
        return Response(EtaAnswerSerializer({"eta": eta(found(request, pk), rates())}).data)


def _visible(request: Request) -> Q:
    return viewer_of_key(key_of(request)).shown()
