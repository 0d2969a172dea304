"""Alerts over REST: what is wrong, and taking it up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer
from dashboard.notifications.alerts import selectors, steering
from dashboard.notifications.alerts.selectors import AlertFilters
from dashboard.notifications.alerts.steering import LONGEST_MUTE_S, AlertOrder
from dashboard.notifications.models import ALERTING, Alert, AlertDeed, AlertState
from tuning.api import filters

RULES = [one.value for one in ALERTING]
STATES = [*AlertState.values, "muted"]


class AlertAnswer(ModelAnswer):
    """One cause while it lasts. `muted_until`: nobody is told of it until then. `gone_at`: since when the
    cause is not seen; after a while without it the alert resolves itself. Nothing in `organisation`: it is
    the service's."""

    rule = serializers.ChoiceField(RULES)
    organisation = serializers.IntegerField(source="organisation_id", allow_null=True)

    class Meta:
        model = Alert
        fields = ["id", "rule", "cause", "organisation", "severity", "state", "text", "path", "facts",
                  "fired_at", "seen_at", "gone_at", "acknowledged_by", "muted_until", "resolved_at",
                  "ended_at"]  # fmt: skip


class AlertDeedAnswer(ModelAnswer):
    """What was done. `by` is empty where the service did it."""

    class Meta:
        model = AlertDeed
        fields = ["what", "by", "detail", "at"]


class AlertDetailAnswer(AlertAnswer):
    """An alert with its history, the latest first."""

    history = AlertDeedAnswer(many=True, source="told_deeds")

    class Meta(AlertAnswer.Meta):
        fields = [*AlertAnswer.Meta.fields, "history"]


class AlertReasonSerializer(serializers.Serializer[Any]):
    """Why, in a sentence that people will read in its history."""

    reason = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class MuteSerializer(AlertReasonSerializer):
    """For how many seconds nobody is told of it; 0: it is muted no longer."""

    for_s = serializers.IntegerField(min_value=0, max_value=LONGEST_MUTE_S)


@listing(
    AlertAnswer,
    name="alerts",
    parameters=[
        query("state", "Only in this state.", enum=STATES),
        query("rule", "Only of this rule.", enum=RULES),
    ],
)
class AlertsView(Listing[Alert]):
    """What is wrong, or was: firing ones first, the latest first."""

    def get_queryset(self) -> QuerySet[Alert]:
        state = (filters.choices(self.request, "state", STATES) or [""])[0]
        rule = (filters.choices(self.request, "rule", RULES) or [""])[0]
        return selectors.alerts(self.viewer, AlertFilters(state, rule))


class _OnAlert(RestView):
    def found(self, pk: int) -> Alert:
        rows = Alert.objects.filter(selectors.visible(self.viewer))
        row: Any = one(rows, pk, f"There is no alert {pk}.")
        row.told_deeds = selectors.history(row)[:200]
        return row

    def act(self, pk: int, verb: str, **values: Any) -> Alert:
        order = replace(AlertOrder(verb, f"key {self.key.name}"), **values)
        row = steering.act(self.viewer, pk, order)
        steering.audit(self.request, row, order)
        return self.found(pk)


class AlertView(_OnAlert):
    @operation(AlertDetailAnswer, name="alert")
    def get(self, request: Request, pk: int) -> Alert:
        """One alert with its history."""
        return self.found(pk)


class _Taking(_OnAlert):
    # Operators take up what is wrong with the service, the billing role what is spent: steering says who.
    needs = Needs("operate")


class AcknowledgeAlertView(_Taking):
    @operation(AlertDetailAnswer, name="acknowledge_alert", takes=AlertReasonSerializer)
    def post(self, request: Request, pk: int) -> Alert:
        """Say that somebody sees to it."""
        return self.act(pk, "acknowledge", **self.sent(AlertReasonSerializer))


class MuteAlertView(_Taking):
    @operation(AlertDetailAnswer, name="mute_alert", takes=MuteSerializer)
    def post(self, request: Request, pk: int) -> Alert:
        """Tell nobody of it for a while, also where it fires anew meanwhile."""
        return self.act(pk, "mute", **self.sent(MuteSerializer))


class ResolveAlertView(_Taking):
    @operation(AlertDetailAnswer, name="resolve_alert", takes=AlertReasonSerializer)
    def post(self, request: Request, pk: int) -> Alert:
        """Call it resolved. It fires again only after its cause was gone."""
        return self.act(pk, "resolve", **self.sent(AlertReasonSerializer))


urlpatterns = [
    path("alerts/", AlertsView.as_view()),
    path("alerts/<row_id:pk>", AlertView.as_view()),
    path("alerts/<row_id:pk>/acknowledge", AcknowledgeAlertView.as_view(), name="api-alert-acknowledge"),
    path("alerts/<row_id:pk>/mute", MuteAlertView.as_view(), name="api-alert-mute"),
    path("alerts/<row_id:pk>/resolve", ResolveAlertView.as_view(), name="api-alert-resolve"),
]
