"""Failed trials by cause, and having a cause's candidates tried again."""

from __future__ import annotations

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, operation
from catalog.api.shapes import ModelAnswer, shape
from tuning.api import filters
from tuning.api.explorations import Operating
from tuning.failures import again, selectors
from tuning.failures.again import TriedAgain
from tuning.failures.selectors import FailureFilters
from tuning.models import FailureGroup
from tuning.withheld import shown_trials


class FailureGroupAnswer(ModelAnswer):
    """Trials that failed for one cause: `reason` has numbers, paths and addresses left out."""

    routes = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = FailureGroup
        fields = ["id", "scope", "status", "reason", "routes", "trials", "operators", "first_at", "last_at",
                  "again_at", "again_by"]  # fmt: skip


class FailureGroupDetailAnswer(FailureGroupAnswer):
    """A group with what its latest trial and its first one said: plain text of a compiler or a candidate,
    unchecked."""

    detail = serializers.CharField(source="latest.detail", default="")
    log_tail = serializers.CharField(source="latest.log_tail", default="")
    exploration = serializers.IntegerField(source="latest.exploration_id", allow_null=True, default=None)
    first_detail = serializers.CharField(source="first.detail", default="")
    first_log_tail = serializers.CharField(source="first.log_tail", default="")
    first_exploration = serializers.IntegerField(source="first.exploration_id", allow_null=True, default=None)

    class Meta(FailureGroupAnswer.Meta):
        fields = [*FailureGroupAnswer.Meta.fields, "detail", "log_tail", "exploration",
                  "first_detail", "first_log_tail", "first_exploration"]  # fmt: skip


@listing(
    FailureGroupAnswer,
    name="failure_groups",
    parameters=[
        query("status", f"Some of {', '.join(selectors.STATUSES)}."),
        query("q", "Words of the reason or a route."),
    ],
)
class FailureGroupsView(Listing[FailureGroup]):
    """Failed trials by cause, the latest seen first."""

    def get_queryset(self) -> QuerySet[FailureGroup]:
        rows = selectors.groups(self.viewer, FailureFilters(q=self.text("q", 200)))
        if wanted := filters.choices(self.request, "status", selectors.STATUSES):
            rows = rows.filter(status__in=wanted)
        return rows


class FailureGroupView(RestView):
    @operation(FailureGroupDetailAnswer, name="failure_group")
    def get(self, request: Request, pk: int) -> FailureGroup:
        """One group, with what its latest trial and its first one said."""
        group = again.found(self.viewer, pk)
        shown_trials(self.viewer, again.trials_of(group))
        return group


class TryAgainView(Operating):
    @operation(shape(TriedAgain), name="failure_group_again")
    def post(self, request: Request, pk: int) -> TriedAgain:
        """Have the group's explorations that have ended contest its routes again, 200 at a time."""
        came = again.try_again(self.viewer, pk, f"key {self.key.name}")
        again.audit(request, again.found(self.viewer, pk), came)
        return came


urlpatterns = [
    path("failure-groups/", FailureGroupsView.as_view()),
    path("failure-groups/<row_id:pk>", FailureGroupView.as_view()),
    path("failure-groups/<row_id:pk>/again", TryAgainView.as_view(), name="api-failures-again"),
]
