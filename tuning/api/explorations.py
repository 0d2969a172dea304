"""Operation of queues, explorations and misses over REST. Views validate, ``tuning.queue.permissions`` acts.

Whoever asks needs the scope ``operate``; a tenant's key steers its own private explorations, the host's all.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors
from catalog.people.audit import note
from catalog.viewing import Viewer, viewer_of_key
from tuning.api.serializers import (
    BulkSerializer,
    DoneSerializer,
    ExplorationSerializer,
    ExploreSerializer,
    LogSerializer,
    MissBulkSerializer,
    MissSerializer,
    PrioritySerializer,
    QueueSerializer,
    QueuesSerializer,
    ReasonSerializer,
)
from tuning.api.views import found, queues_now
from tuning.queue import permissions as operating
from tuning.queue.permissions import Order
from tuning.statistics.log import log


class Operating(APIView):
    """Base: who asks, what they sent, and the order that it makes."""

    required_scope: Any = "operate"

    def viewer(self) -> Viewer:
        return viewer_of_key(key_of(self.request))

    def sent(self, shape: type[Any]) -> dict[str, Any]:
        serializer = shape(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def order(self, verb: str, **values: Any) -> Order:
        return Order(verb, f"key {key_of(self.request).name}", **values)

    def act(self, pk: int, order: Order) -> Response:
        row = operating.act(self.viewer(), pk, order)
        note(
            self.request,
            action=f"exploration.{order.verb}",
            subject=f"exploration {pk}",
            detail={"reason": order.reason, "priority": order.priority},
            organisation=row.owner_id,
        )
        return Response(ExplorationSerializer(found(self.request, pk)).data)

    def act_on_miss(self, pk: int, order: Order) -> Response:
        miss = operating.act_on_miss(self.viewer(), pk, order)
        note(
            self.request,
            action=f"miss.{order.verb}",
            subject=f"miss {pk}",
            detail={"reason": order.reason, "priority": order.priority},
            organisation=miss.owner_id,
        )
        return Response(MissSerializer(miss).data)


class PauseExploration(Operating):
    @extend_schema(request=ReasonSerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Take an exploration out of its queue; one that runs is taken away from its worker."""
        return self.act(pk, self.order("pause", **self.sent(ReasonSerializer)))


class ResumeExploration(Operating):
    @extend_schema(request=None, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Put a paused exploration back into its queue."""
        return self.act(pk, self.order("resume"))


class RetryExploration(Operating):
    @extend_schema(request=None, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Explore one that has ended afresh."""
        return self.act(pk, self.order("retry"))


class DiscardExploration(Operating):
    @extend_schema(request=ReasonSerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Give an exploration up; the reason is shown to whoever asks for the operator."""
        return self.act(pk, self.order("discard", **self.sent(ReasonSerializer)))


class PrioritiseExploration(Operating):
    @extend_schema(request=PrioritySerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Move an exploration to another explore queue."""
        return self.act(pk, self.order("prioritise", **self.sent(PrioritySerializer)))


class ExplorationsAtOnce(Operating):
    @extend_schema(request=BulkSerializer, responses={200: DoneSerializer, **errors(400)})
    def post(self, request: Request) -> Response:
        """Do one thing to several explorations. Each stands for itself: what cannot be done to one is said,
        and the others go on."""
        sent = self.sent(BulkSerializer)
        order = self.order(sent["action"], reason=sent["reason"], priority=sent["priority"])
        came = operating.act_on_many(self.viewer(), sent["ids"], order)
        return _answer(request, f"exploration.{order.verb}", came)


class ExplorationLog(APIView):
    @extend_schema(responses=LogSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What was tried lately, what it said and what failed, and what the worker does now; oldest first."""
        row = found(request, pk)
        return Response(LogSerializer({"doing": row.doing, "state": row.state, "lines": log(row)}).data)


class ExploreMiss(Operating):
    @extend_schema(request=ExploreSerializer, responses=MissSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Explore a miss now, whatever the decider thought of it."""
        return self.act_on_miss(pk, self.order("explore", **self.sent(ExploreSerializer)))


class DiscardMiss(Operating):
    @extend_schema(request=ReasonSerializer, responses=MissSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Do not explore a miss; the reason is shown to whoever asks for the operator."""
        return self.act_on_miss(pk, self.order("discard", **self.sent(ReasonSerializer)))


class MissesAtOnce(Operating):
    @extend_schema(request=MissBulkSerializer, responses={200: DoneSerializer, **errors(400)})
    def post(self, request: Request) -> Response:
        """Explore or discard several misses; what cannot be done to one is said, and the others go on."""
        sent = self.sent(MissBulkSerializer)
        order = self.order(sent["action"], reason=sent["reason"], priority=sent["priority"])
        came = operating.act_on_misses(self.viewer(), sent["ids"], order)
        return _answer(request, f"miss.{order.verb}", came)


class PauseQueue(Operating):
    @extend_schema(request=QueueSerializer, responses=QueuesSerializer)
    def post(self, request: Request) -> Response:
        """Stop a capability's queues, or all: nothing more is claimed; what runs ends its slice."""
        sent = self.sent(QueueSerializer)
        by = self.order("pause").by
        operating.pause_queue(self.viewer(), sent["capability"], sent["reason"], by)
        note(request, action="queue.pause", subject=sent["capability"], detail={"reason": sent["reason"]})
        return queues_now()


class ResumeQueue(Operating):
    @extend_schema(request=QueueSerializer, responses=QueuesSerializer)
    def post(self, request: Request) -> Response:
        """End a pause; ending one that there is not changes nothing."""
        capability = self.sent(QueueSerializer)["capability"]
        operating.resume_queue(self.viewer(), capability)
        note(request, action="queue.resume", subject=capability)
        return queues_now()


def _answer(request: Request, action: str, came: operating.Done) -> Response:
    note(request, action=action, subject=f"{len(came.done)} at once", detail={"ids": list(came.done)})
    return Response(DoneSerializer(came).data)
