"""Statistics and operation of the explore queues over REST. Views validate, then call a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Case, QuerySet, Value, When
from django.db.models.fields import BooleanField
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.errors import Unknown
from catalog.models import Miss, MissState
from catalog.services import scopes_of
from tuning import queues
from tuning.api import filters
from tuning.api.serializers import (
    ExplorationSerializer,
    MissSerializer,
    PrioritySerializer,
    QueueSerializer,
    QueuesSerializer,
    ReasonSerializer,
    TrialSerializer,
    TuningAccuracySerializer,
    WorkerSerializer,
)
from tuning.clock import now_in
from tuning.conf import conf
from tuning.models import Exploration, Pause, State, Trial, Worker
from tuning.slices import tuning_accuracy

_OPERATOR = OpenApiParameter("operator", str, description="Only those of this operator key.")


def _explorations(request: Request) -> QuerySet[Exploration]:
    """What this key may see: everything shared, and its own organisation's."""
    rows = Exploration.objects.select_related("operator", "target", "setting")
    return rows.filter(scope__in=scopes_of(request.user))  # type: ignore[arg-type]


class Explorations(generics.ListAPIView):  # type: ignore[type-arg]
    """Explorations, the most recently changed first."""

    serializer_class = ExplorationSerializer
    queryset = Exploration.objects.none()

    @extend_schema(
        parameters=[
            _OPERATOR,
            OpenApiParameter(
                "state", str, description=f"Some of {', '.join(State.values)}, separated by commas."
            ),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Exploration]:
        rows = _explorations(self.request)
        if states := filters.choices(self.request, "state", State.values):
            rows = rows.filter(state__in=states)
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(operator__key=operator)
        return rows.order_by("-updated_at", "-pk")


class ExplorationDetail(generics.RetrieveAPIView):  # type: ignore[type-arg]
    """One exploration."""

    serializer_class = ExplorationSerializer
    queryset = Exploration.objects.none()

    def get_object(self) -> Exploration:
        return _found(self.request, self.kwargs["pk"])


class Trials(generics.ListAPIView):  # type: ignore[type-arg]
    """Candidates that were tried, the latest first."""

    serializer_class = TrialSerializer
    queryset = Trial.objects.none()

    @extend_schema(
        parameters=[_OPERATOR, OpenApiParameter("exploration", int, description="Only of this one.")]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Trial]:
        rows = Trial.objects.filter(exploration__scope__in=scopes_of(self.request.user))  # type: ignore[arg-type]
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(exploration__operator__key=operator)
        if (pk := filters.number(self.request, "exploration")) is not None:
            rows = rows.filter(exploration=pk)
        return rows.select_related("exploration__operator", "environment").order_by("-pk")


class Workers(generics.ListAPIView):  # type: ignore[type-arg]
    """Workers, those alive first."""

    serializer_class = WorkerSerializer
    queryset = Worker.objects.none()

    def get_queryset(self) -> QuerySet[Worker]:
        alive = Case(
            When(stopped_at=None, last_seen_at__gt=now_in(-conf().served_s), then=Value(True)),
            default=Value(False),
            output_field=BooleanField(),
        )
        return Worker.objects.select_related("target").annotate(alive=alive).order_by("-alive", "name")


class Misses(generics.ListAPIView):  # type: ignore[type-arg]
    """The collect queue and what became of it, the latest asked first."""

    serializer_class = MissSerializer
    queryset = Miss.objects.none()

    @extend_schema(
        parameters=[
            _OPERATOR,
            OpenApiParameter("state", str, description=f"Some of {', '.join(MissState.values)}."),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Miss]:
        rows = Miss.objects.filter(scope__in=scopes_of(self.request.user))  # type: ignore[arg-type]
        if states := filters.choices(self.request, "state", MissState.values):
            rows = rows.filter(state__in=states)
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(operator__key=operator)
        return rows.select_related("operator", "target", "setting").order_by("-last_asked_at", "-pk")


class ExplorationAction(APIView):
    """Something that people do to one exploration; needs the scope ``operate``."""

    required_scope = "operate"

    def _act(self, request: Request, pk: int, act: Callable[[int], Exploration]) -> Response:
        _found(request, pk)
        act(pk)
        return Response(ExplorationSerializer(_found(request, pk)).data)


class PauseExploration(ExplorationAction):
    @extend_schema(request=ReasonSerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Take an exploration out of its queue; one that runs is taken away from its worker."""
        reason = _checked(ReasonSerializer, request)["reason"]
        return self._act(request, pk, lambda pk: queues.pause_exploration(pk, reason))


class ResumeExploration(ExplorationAction):
    @extend_schema(request=None, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Put a paused exploration back into its queue."""
        return self._act(request, pk, queues.resume_exploration)


class RetryExploration(ExplorationAction):
    @extend_schema(request=None, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Explore one that has ended afresh."""
        return self._act(request, pk, queues.retry)


class DiscardExploration(ExplorationAction):
    @extend_schema(request=ReasonSerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Give an exploration up; the reason is shown to whoever asks for the operator."""
        reason = _checked(ReasonSerializer, request)["reason"]
        return self._act(request, pk, lambda pk: queues.discard(pk, reason))


class PrioritiseExploration(ExplorationAction):
    @extend_schema(request=PrioritySerializer, responses=ExplorationSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Move an exploration to another explore queue."""
        priority = _checked(PrioritySerializer, request)["priority"]
        return self._act(request, pk, lambda pk: queues.prioritise(pk, priority))


class TuningAccuracy(APIView):
    @extend_schema(responses=TuningAccuracySerializer)
    def get(self, request: Request) -> Response:
        """What slices of tuning were expected to gain, against what they gained: overall and by op type."""
        return Response(TuningAccuracySerializer(tuning_accuracy(_explorations(request))).data)


class QueueState(APIView):
    @extend_schema(responses=QueuesSerializer)
    def get(self, request: Request) -> Response:
        """Which queues are paused."""
        return _queues()


class PauseQueue(APIView):
    required_scope = "operate"

    @extend_schema(request=QueueSerializer, responses=QueuesSerializer)
    def post(self, request: Request) -> Response:
        """Stop a capability's queues, or all: nothing more is claimed; what runs ends its slice."""
        asked = _checked(QueueSerializer, request)
        queues.pause(asked["capability"], asked["reason"])
        return _queues()


class ResumeQueue(APIView):
    required_scope = "operate"

    @extend_schema(request=QueueSerializer, responses=QueuesSerializer)
    def post(self, request: Request) -> Response:
        """End a pause; ending one that there is not changes nothing."""
        queues.resume(_checked(QueueSerializer, request)["capability"])
        return _queues()


def _queues() -> Response:
    return Response(QueuesSerializer({"paused": Pause.objects.order_by("capability")}).data)


def _checked(shape: type[Any], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def _found(request: Request, pk: int) -> Exploration:
    row = _explorations(request).filter(pk=pk).first()
    if row is None:
        raise Unknown(f"There is no exploration {pk}.")
    return row
