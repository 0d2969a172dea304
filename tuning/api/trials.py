"""What explores, and what is explored, over REST: to read. ``operation`` has what people do to it."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, QuerySet, Value, When
from django.db.models.fields import BooleanField
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.charging import charging
from catalog.errors import Unknown
from catalog.models import Implementation, Miss, MissState
from catalog.viewing import viewer_of_key
from tuning.api import filters
from tuning.api.serializers import (
    ExplorationSerializer,
    MissSerializer,
    QueuesSerializer,
    TrialSerializer,
    TuningAccuracySerializer,
    WorkerSerializer,
)
from tuning.conf import conf
from tuning.explore.slice_history import tuning_accuracy
from tuning.models import Exploration, Pause, State, Trial, Worker
from tuning.queue.clock import now_in

_OPERATOR = OpenApiParameter("operator", str, description="Only those of this operator key.")


def _explorations(request: Request) -> QuerySet[Exploration]:
    """What this key may see: everything shared, and its own organisation's (the host's operators: all)."""
    rows = Exploration.objects.select_related("operator", "target", "setting")
    return rows.filter(viewer_of_key(key_of(request)).shown())


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
        return found(self.request, self.kwargs["pk"])


class TrialListView(generics.ListAPIView):  # type: ignore[type-arg]
    """Candidates that were tried, the latest first."""

    serializer_class = TrialSerializer
    queryset = Trial.objects.none()

    @extend_schema(
        parameters=[_OPERATOR, OpenApiParameter("exploration", int, description="Only of this one.")]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Trial]:
        rows = Trial.objects.filter(viewer_of_key(key_of(self.request)).shown("exploration__"))
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(exploration__operator__key=operator)
        if (pk := filters.number(self.request, "exploration")) is not None:
            rows = rows.filter(exploration=pk)
        return rows.select_related("exploration__operator", "environment").order_by("-pk")

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        """A page; what is withheld until it is paid does not show how it was made."""
        rows = super().paginate_queryset(queryset) or []
        organisation = viewer_of_key(key_of(self.request)).payer
        if organisation is not None and charging().has_prices(organisation):
            numbers = {row.implementation_id for row in rows if row.implementation_id}
            made = Implementation.objects.filter(pk__in=numbers).defer("source", "schedule", "candidate")
            terms = charging().terms_of(organisation, list(made))
            for row in rows:
                if row.implementation_id in terms and terms[row.implementation_id].withheld:
                    row.candidate, row.log_tail = {}, ""
        return rows


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
        rows = Miss.objects.filter(viewer_of_key(key_of(self.request)).shown())
        if states := filters.choices(self.request, "state", MissState.values):
            rows = rows.filter(state__in=states)
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(operator__key=operator)
        return rows.select_related("operator", "target", "setting").order_by("-last_asked_at", "-pk")


class TuningAccuracyView(APIView):
    @extend_schema(responses=TuningAccuracySerializer)
    def get(self, request: Request) -> Response:
        """What slices of tuning were expected to gain, against what they gained: overall and by op type."""
        return Response(TuningAccuracySerializer(tuning_accuracy(_explorations(request))).data)


class QueueState(APIView):
    @extend_schema(responses=QueuesSerializer)
    def get(self, request: Request) -> Response:
        """Which queues are paused."""
        return queues_now()


def queues_now() -> Response:
    """Which queues are paused."""
    return Response(QueuesSerializer({"paused": Pause.objects.order_by("capability")}).data)


def found(request: Request, pk: int) -> Exploration:
    """An exploration that this key may see; raises Unknown."""
    row = _explorations(request).filter(pk=pk).first()
    if row is None:
        raise Unknown(f"There is no exploration {pk}.")
    return row
