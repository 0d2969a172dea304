"""Workers: what each can do, what it does, and what it gets done."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import Listing, RestView, listing, operation
from catalog.api.shapes import ModelAnswer, shape
from tuning.models import Worker
from tuning.queue.clock import alive
from tuning.queue.rates import rates
from tuning.queue.waits import held_now
from tuning.statistics.workers import LeasedExploration, WorkerRow, fleet, workers


class WorkerAnswer(ModelAnswer):
    """A worker, what it can do and what it does."""

    capability = serializers.CharField(source="target.capability")
    alive = serializers.BooleanField()
    routes = serializers.DictField()

    class Meta:
        model = Worker
        fields = [
            "name", "host", "pid", "target", "capability", "routes", "tier", "memory_bytes", "device",
            "device_memory_bytes", "device_state", "doing", "warm", "alive", "started_at", "last_seen_at",
            "stopped_at",
        ]  # fmt: skip


class WorkerStatisticsSerializer(serializers.Serializer[Any]):
    """A worker: how it does, what it holds, and what it gets done."""

    name = serializers.CharField(source="worker.name")
    host = serializers.CharField(source="worker.host")
    state = serializers.ChoiceField(["alive", "silent", "stopped"])
    capability = serializers.CharField(source="worker.target.capability")
    tier = serializers.CharField(source="worker.tier")
    memory_bytes = serializers.IntegerField(source="worker.memory_bytes")
    device = serializers.CharField(
        source="worker.device", help_text="``cuda:0``; empty where it serves the processor."
    )
    device_memory_bytes = serializers.IntegerField(source="worker.device_memory_bytes")
    device_state = serializers.DictField(
        source="worker.device_state",
        help_text="Clocks, temperature and memory in use when it was last heard.",
    )
    doing = serializers.CharField(source="worker.doing")
    last_seen_at = serializers.DateTimeField(source="worker.last_seen_at")
    available = serializers.SerializerMethodField()
    unavailable = serializers.SerializerMethodField()
    holds = shape(LeasedExploration)(many=True)
    free_in_s = serializers.FloatField(
        allow_null=True,
        help_text="Until it is expected to take up the next first result; null: nobody can say.",
    )
    slices_per_hour = serializers.FloatField(
        source="per_hour", allow_null=True, help_text="In an hour of work, by its latest slices."
    )
    slices_last_hour = serializers.IntegerField(source="ended_last_hour")

    def get_available(self, row: WorkerRow) -> list[str]:
        return [name for name, _ in row.available]

    def get_unavailable(self, row: WorkerRow) -> dict[str, str]:
        return {name: str(facts.get("reason", "")) for name, facts in row.unavailable}


@listing(WorkerAnswer)
class WorkersView(Listing[Worker]):
    """Workers, those alive first."""

    def get_queryset(self) -> QuerySet[Worker]:
        return Worker.objects.select_related("target").annotate(alive=alive()).order_by("-alive", "name")


class WorkerStatisticsView(RestView):
    @operation(WorkerStatisticsSerializer, many=True)
    def get(self, request: Request) -> list[WorkerRow]:
        """Workers heard within a day, those alive first."""
        return workers(fleet(), rates(), held_now(self.viewer.shown()), limit=200)


urlpatterns = [
    path("workers/", WorkersView.as_view()),
    path("statistics/workers", WorkerStatisticsView.as_view()),
]
