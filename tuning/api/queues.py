"""The explore queues: what waits in them, how fast it goes, which are paused; how well tuning is ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from django.urls import path
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import MAX_ID, RestView, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.people.audit import note
from tuning.api.explorations import Operating, ReasonSerializer
from tuning.explore.slice_history import TuningAccuracy, tuning_accuracy
from tuning.models import Pause
from tuning.queue import permissions
from tuning.queue.rates import rates
from tuning.queue.shares import LEAST_WEIGHT, MOST_WEIGHT
from tuning.statistics import collecting, queues
from tuning.statistics.shares import OrganisationShare, organisations_shares


class PauseAnswer(ModelAnswer):
    class Meta:
        model = Pause
        fields = ["capability", "reason", "created_at"]


class QueuesSerializer(serializers.Serializer[Any]):
    """Which queues are paused, after a change if there was one."""

    paused = PauseAnswer(many=True)


class WhichSerializer(ReasonSerializer):
    """Which queues: a capability such as ``cpu.zen3``, or ``*`` for all."""

    capability = serializers.CharField(max_length=80, required=False, default="*")


@dataclass(frozen=True)
class QueueStatistics:
    """The explore queues and the collect queue."""

    capabilities: Sequence[queues.CapabilityQueue]
    lanes: Sequence[queues.Lane]
    throughput: Sequence[queues.HourSlot]
    dead: Annotated[int, "Explorations that were given up."]
    collect: Sequence[collecting.ReasonRow]


QueueStatisticsAnswer = shape(
    QueueStatistics,
    using=[
        shape(queues.Lane, "stage_name", without=["slices_left"]),
        shape(
            queues.CapabilityQueue,
            *("queued", "running", "held", "oldest_at", "worth_us"),
            without=["lanes"],
        ),
        shape(queues.HourSlot, "ended"),
    ],
)


class QueueStatisticsView(RestView):
    @operation(QueueStatisticsAnswer)
    def get(self, request: Request) -> QueueStatistics:
        """Depth, age, worth and pace of the explore queues, and why misses are not explored."""
        shown = self.viewer.shown()
        work = queues.WorkNow(shown, timezone.now())
        return QueueStatistics(
            capabilities=queues.capability_queues(work, rates()),
            lanes=work.lanes,
            throughput=queues.throughput(work),
            dead=queues.dead_letters(shown).count(),
            collect=collecting.reasons(shown),
        )


class AccuracyView(RestView):
    @operation(shape(TuningAccuracy, without=["pairs"]))
    def get(self, request: Request) -> TuningAccuracy:
        """What slices of tuning were expected to gain, against what they gained: overall and by op type."""
        return tuning_accuracy(self.viewer.shown("exploration__"))


OrganisationShareAnswer = shape(OrganisationShare, "waiting", "said")


class WeightSerializer(serializers.Serializer[Any]):
    """What an organisation weighs beside the others when the workers are shared out."""

    organisation = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    weight = serializers.FloatField(help_text=f"From {LEAST_WEIGHT} to {MOST_WEIGHT:g}; 1 is everybody's.")


class SharesView(RestView):
    @operation(OrganisationShareAnswer, many=True)
    def get(self, request: Request) -> Sequence[OrganisationShare]:
        """How the workers are shared out by organisation: of every one for the host's keys, of one's own for
        others."""
        return organisations_shares(None if self.viewer.sees_all else self.key.organisation_id)


class WeightView(Operating):
    @operation(OrganisationShareAnswer, many=True, takes=WeightSerializer)
    def post(self, request: Request) -> Sequence[OrganisationShare]:
        """Set what an organisation weighs; for operators of the host organisation."""
        sent = self.sent(WeightSerializer)
        row = permissions.set_weight(self.viewer, sent["organisation"], sent["weight"])
        note(request, action="queue.weight", subject=row.name, detail={"weight": sent["weight"]})
        return organisations_shares()


class QueuesView(RestView):
    @operation(QueuesSerializer)
    def get(self, request: Request) -> dict[str, Any]:
        """Which queues are paused."""
        return {"paused": Pause.objects.order_by("capability")}


class PauseQueueView(Operating):
    @operation(QueuesSerializer, takes=WhichSerializer)
    def post(self, request: Request) -> dict[str, Any]:
        """Stop a capability's queues, or all: nothing more is claimed; what runs ends its slice."""
        sent = self.sent(WhichSerializer)
        permissions.pause_queue(self.viewer, sent["capability"], sent["reason"], self.order("pause").by)
        note(request, action="queue.pause", subject=sent["capability"], detail={"reason": sent["reason"]})
        return {"paused": Pause.objects.order_by("capability")}


class ResumeQueueView(Operating):
    @operation(QueuesSerializer, takes=WhichSerializer)
    def post(self, request: Request) -> dict[str, Any]:
        """End a pause; ending one that there is not changes nothing."""
        capability = self.sent(WhichSerializer)["capability"]
        permissions.resume_queue(self.viewer, capability)
        note(request, action="queue.resume", subject=capability)
        return {"paused": Pause.objects.order_by("capability")}


urlpatterns = [
    path("statistics/queues", QueueStatisticsView.as_view()),
    path("tuning/accuracy", AccuracyView.as_view()),
    path("statistics/shares", SharesView.as_view()),
    path("queues/weight", WeightView.as_view(), name="api-queue-weight"),
    path("queues/", QueuesView.as_view()),
    path("queues/pause", PauseQueueView.as_view(), name="api-queue-pause"),
    path("queues/resume", ResumeQueueView.as_view(), name="api-queue-resume"),
]
