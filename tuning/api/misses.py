"""Misses: the collect queue and what became of it, and what people do to it."""

from __future__ import annotations

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.describing import query
from catalog.api.endpoint import Listing, listing, operation
from catalog.api.shapes import ModelAnswer
from catalog.models import Miss, MissState
from tuning.api import filters
from tuning.api.explorations import OPERATOR, AtOnceSerializer, DoneAnswer, Operating, ReasonSerializer
from tuning.priority import PRIORITIES, Priority
from tuning.queue import permissions
from tuning.queue.permissions import MISS_VERBS, Done, Order


class MissRowAnswer(ModelAnswer):
    """What was asked for and is not known."""

    summary = serializers.CharField(source="operator.summary")

    class Meta:
        model = Miss
        fields = [
            "id", "operator", "summary", "target", "setting", "scope", "count", "calls", "related", "state",
            "reason", "first_asked_at", "last_asked_at",
        ]  # fmt: skip


class ExploreSerializer(serializers.Serializer[Miss]):
    """The explore queue that a miss is sent to; 0 is the most urgent."""

    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, default=Priority.HIGH)


class MissesAtOnceSerializer(ReasonSerializer):
    """One thing to do to several misses."""

    ids = AtOnceSerializer().fields["ids"]
    action = serializers.ChoiceField(choices=MISS_VERBS)
    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, default=Priority.HIGH)


@listing(MissRowAnswer, parameters=[OPERATOR, query("state", f"Some of {', '.join(MissState.values)}.")])
class MissesView(Listing[Miss]):
    """The collect queue and what became of it, the latest asked first."""

    def get_queryset(self) -> QuerySet[Miss]:
        rows = Miss.objects.filter(self.viewer.shown())
        if states := filters.choices(self.request, "state", MissState.values):
            rows = rows.filter(state__in=states)
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(operator__key=operator)
        return rows.select_related("operator", "target", "setting").order_by("-last_asked_at", "-pk")


class _OnMiss(Operating):
    def act_on_miss(self, pk: int, order: Order) -> Miss:
        miss = permissions.act_on_miss(self.viewer, pk, order)
        self.noted("miss", pk, order, miss.owner_id)
        return miss


class ExploreMissView(_OnMiss):
    @operation(MissRowAnswer, takes=ExploreSerializer)
    def post(self, request: Request, pk: int) -> Miss:
        """Explore a miss now, whatever the decider thought of it."""
        return self.act_on_miss(pk, self.order("explore", **self.sent(ExploreSerializer)))


class DiscardMissView(_OnMiss):
    @operation(MissRowAnswer, takes=ReasonSerializer)
    def post(self, request: Request, pk: int) -> Miss:
        """Do not explore a miss; the reason is shown to whoever asks for the operator."""
        return self.act_on_miss(pk, self.order("discard", **self.sent(ReasonSerializer)))


class MissesAtOnceView(Operating):
    @operation(DoneAnswer, takes=MissesAtOnceSerializer)
    def post(self, request: Request) -> Done:
        """Explore or discard several misses.

        What cannot be done to one is said, and the others go on."""
        sent = self.sent(MissesAtOnceSerializer)
        order = self.order(sent["action"], reason=sent["reason"], priority=sent["priority"])
        return self.noted_several("miss", order, permissions.act_on_misses(self.viewer, sent["ids"], order))


urlpatterns = [
    path("misses/", MissesView.as_view()),
    path("misses/bulk", MissesAtOnceView.as_view(), name="api-misses-bulk"),
    path("misses/<int:pk>/explore", ExploreMissView.as_view(), name="api-miss-explore"),
    path("misses/<int:pk>/discard", DiscardMissView.as_view(), name="api-miss-discard"),
]
