"""Explorations: where each stands, what was tried, when it will be over; and what people do to them.

Views validate, ``tuning.queue.permissions`` acts. A tenant's key steers its own private explorations, the
host's all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.people.audit import note
from catalog.viewing import Viewer
from tuning.api import filters
from tuning.explore.race.report import Entry
from tuning.models import Exploration, State
from tuning.priority import PRIORITIES
from tuning.queue import permissions
from tuning.queue.permissions import MAX_AT_ONCE, VERBS, Done, Order
from tuning.queue.rates import rates
from tuning.statistics.eta import Eta, eta
from tuning.statistics.log import LogLine, log
from tuning.statistics.races import RaceTold, latest, told

OPERATOR = query("operator", "Only those of this operator key.")
DoneAnswer = shape(Done)


class ExplorationAnswer(ModelAnswer):
    """Where an exploration stands."""

    summary = serializers.CharField(source="operator.summary")
    stage_name = serializers.CharField(source="get_stage_display")

    class Meta:
        model = Exploration
        fields = [
            "id", "operator", "summary", "target", "setting", "scope", "capability", "stage", "stage_name",
            "priority", "worth", "calls", "state", "reason", "doing", "steps_done", "steps_total", "tries",
            "max_tries", "error", "round", "tuning_slices", "max_tuning_slices", "expected_gain", "spent_s",
            "lease_owner", "lease_expires_at", "fence", "asked_at", "first_result_at", "created_at",
            "updated_at", "finished_at",
        ]  # fmt: skip


@dataclass(frozen=True)
class ExplorationLog:
    """An exploration's latest entries, the oldest of them first."""

    state: State
    doing: str
    lines: Sequence[LogLine]


@dataclass(frozen=True)
class EtaOf:
    """Null where it has ended or is paused."""

    eta: Eta | None


@dataclass(frozen=True)
class ExplorationRaces:
    """The latest races of an exploration, the newest first."""

    races: Sequence[RaceTold]


RaceAnswer = shape(RaceTold, using=[shape(Entry, "ended", called="RaceEntry")])


class ReasonSerializer(serializers.Serializer[Any]):
    """Why, in a sentence that people will read."""

    reason = serializers.CharField(max_length=300, required=False, default="", allow_blank=True)


class PrioritySerializer(serializers.Serializer[Any]):
    """The explore queue to move to; 0 is the most urgent."""

    priority = serializers.ChoiceField(choices=PRIORITIES)


class AtOnceSerializer(ReasonSerializer):
    """One thing to do to several explorations."""

    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1), min_length=1, max_length=MAX_AT_ONCE
    )
    action = serializers.ChoiceField(choices=VERBS)
    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["action"] == "prioritise" and attrs["priority"] is None:
            raise serializers.ValidationError({"priority": "To prioritise takes a priority from 0 to 3."})
        return attrs


def visible(viewer: Viewer) -> QuerySet[Exploration]:
    """What may be seen: everything shared, and the organisation's own (the host's operators: all)."""
    return Exploration.objects.select_related("operator", "target", "setting").filter(viewer.shown())


def found(viewer: Viewer, pk: int) -> Exploration:
    """An exploration that may be seen; raises Unknown."""
    return one(visible(viewer), pk, f"There is no exploration {pk}.")


@listing(
    ExplorationAnswer,
    parameters=[OPERATOR, query("state", f"Some of {', '.join(State.values)}, separated by commas.")],
)
class ExplorationsView(Listing[Exploration]):
    """Explorations, the most recently changed first."""

    def get_queryset(self) -> QuerySet[Exploration]:
        rows = visible(self.viewer)
        if states := filters.choices(self.request, "state", State.values):
            rows = rows.filter(state__in=states)
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(operator__key=operator)
        return rows.order_by("-updated_at", "-pk")


class ExplorationView(RestView):
    @operation(ExplorationAnswer)
    def get(self, request: Request, pk: int) -> Exploration:
        """One exploration."""
        return found(self.viewer, pk)


class LogView(RestView):
    @operation(shape(ExplorationLog))
    def get(self, request: Request, pk: int) -> ExplorationLog:
        """What was tried lately, what it said and what failed, and what the worker does now; oldest first."""
        row = found(self.viewer, pk)
        return ExplorationLog(State(row.state), row.doing, log(row, self.viewer))


class EtaView(RestView):
    @operation(shape(EtaOf))
    def get(self, request: Request, pk: int) -> EtaOf:
        """When an exploration will be over, and how that was estimated."""
        return EtaOf(eta(found(self.viewer, pk), rates()))


class RacesView(RestView):
    @operation(shape(ExplorationRaces, using=[RaceAnswer]))
    def get(self, request: Request, pk: int) -> ExplorationRaces:
        """The races of an exploration as they ran: who was dropped when and with what chance, and what each
        final decided."""
        rows = latest(visible(self.viewer).filter(pk=found(self.viewer, pk).pk))
        return ExplorationRaces([told(one) for one in rows])


class Operating(RestView):
    """Base of what people do to explorations, misses and queues: the order that a request makes."""

    needs = Needs("operate")

    def order(self, verb: str, **values: Any) -> Order:
        return Order(verb, f"key {self.key.name}", **values)

    def act(self, pk: int, order: Order) -> Exploration:
        row = permissions.act(self.viewer, pk, order)
        self.noted("exploration", pk, order, row.owner_id)
        return found(self.viewer, pk)

    def noted(self, what: str, pk: int, order: Order, owner_id: int | None) -> None:
        detail = {"reason": order.reason, "priority": order.priority}
        subject = f"{what} {pk}"
        note(
            self.request, action=f"{what}.{order.verb}", subject=subject, detail=detail, organisation=owner_id
        )

    def noted_several(self, what: str, order: Order, came: Done) -> Done:
        subject = f"{len(came.done)} at once"
        note(self.request, action=f"{what}.{order.verb}", subject=subject, detail={"ids": list(came.done)})
        return came


_VERBS: tuple[tuple[str, type[serializers.Serializer[Any]] | None, str], ...] = (
    (
        "pause",
        ReasonSerializer,
        "Take an exploration out of its queue; one that runs is taken away from its worker.",
    ),
    ("resume", None, "Put a paused exploration back into its queue."),
    ("retry", None, "Explore one that has ended afresh."),
    (
        "discard",
        ReasonSerializer,
        "Give an exploration up; the reason is shown to whoever asks for the operator.",
    ),
    ("prioritise", PrioritySerializer, "Move an exploration to another explore queue."),
)


def _acting(verb: str, takes: type[serializers.Serializer[Any]] | None, meaning: str) -> type[Operating]:
    """The view of one verb."""

    def post(self: Operating, request: Request, pk: int) -> Exploration:
        return self.act(pk, self.order(verb, **(self.sent(takes) if takes else {})))

    post.__doc__ = meaning
    return type(
        f"{verb.title()}View", (Operating,), {"post": operation(ExplorationAnswer, takes=takes)(post)}
    )


class AtOnceView(Operating):
    @operation(DoneAnswer, takes=AtOnceSerializer)
    def post(self, request: Request) -> Done:
        """Do one thing to several explorations.

        Each stands for itself: what cannot be done to one is said, and the others go on."""
        sent = self.sent(AtOnceSerializer)
        order = self.order(sent["action"], reason=sent["reason"], priority=sent["priority"])
        came = permissions.act_on_many(self.viewer, sent["ids"], order)
        return self.noted_several("exploration", order, came)


urlpatterns = [
    path("explorations/", ExplorationsView.as_view()),
    path("explorations/bulk", AtOnceView.as_view(), name="api-explorations-bulk"),
    path("explorations/<int:pk>", ExplorationView.as_view()),
    *(
        path(f"explorations/<int:pk>/{verb[0]}", _acting(*verb).as_view(), name=f"api-exploration-{verb[0]}")
        for verb in _VERBS
    ),
    path("explorations/<int:pk>/log", LogView.as_view()),
    path("explorations/<int:pk>/races", RacesView.as_view()),
    path("explorations/<int:pk>/eta", EtaView.as_view()),
]
