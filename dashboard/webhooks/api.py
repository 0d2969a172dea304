"""Webhooks over REST: endpoints, deliveries, replay. Rows of other organisations do not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import shape
from dashboard.webhooks import endpoints, retention, selectors
from dashboard.webhooks.bodies import body_for
from dashboard.webhooks.endpoints import SUBSCRIBABLE
from dashboard.webhooks.models import Attempt, BodyForm, Delivery, DeliveryState, Endpoint, EventType
from dashboard.webhooks.selectors import DeliveryFilters
from tuning.api import filters

TRIES_SHOWN = 200


class EndpointAnswer(serializers.ModelSerializer[Endpoint]):
    event_types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBABLE),
        help_text="What it is told about; an empty list: everything.",
    )
    disabled_reason = serializers.CharField(help_text="Why nothing is sent to it; empty while it is enabled.")

    class Meta:
        model = Endpoint
        fields = ["id", "url", "description", "event_types", "form", "created_at", "disabled_at",
                  "disabled_reason",
                  "failing_since", "failures_in_a_row"]  # fmt: skip


class EndpointWithSecretAnswer(EndpointAnswer):
    secret = serializers.CharField(
        help_text="The signing secret (whsec_…). It is shown this once and cannot be had again."
    )

    class Meta(EndpointAnswer.Meta):
        fields = [*EndpointAnswer.Meta.fields, "secret"]


class EndpointWriteSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=2048, help_text="Where to send: https, a public host.")
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    event_types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBABLE),
        required=False,
        max_length=20,
        help_text="What to be told about; none or an empty list: everything.",
    )
    form = serializers.ChoiceField(
        BodyForm.choices,
        required=False,
        help_text="standard: type, timestamp and data, for programs; slack: one sentence, for chat rooms; "
        "pagerduty: alerts alone, as PagerDuty's Events API v2 takes them.",
    )
    routing_key = serializers.CharField(
        required=False,
        max_length=64,
        write_only=True,
        help_text="Of PagerDuty's integration, for the form pagerduty. It is kept encrypted and never shown.",
    )


class EndpointChangeSerializer(EndpointWriteSerializer):
    url = serializers.CharField(max_length=2048, required=False)


class WhySerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=300, required=False, allow_blank=True)


class DeliveryAnswer(serializers.ModelSerializer[Delivery]):
    endpoint = serializers.IntegerField(source="endpoint_id")
    message_id = serializers.CharField(source="message.public_id", help_text="The header webhook-id.")
    event_type = serializers.ChoiceField(EventType.choices, source="message.event_type")
    created_at = serializers.DateTimeField(source="message.created_at", help_text="When it happened.")
    state = serializers.ChoiceField(DeliveryState.choices)
    last_status = serializers.IntegerField(allow_null=True, help_text="Of the last try; null: no answer.")
    last_error = serializers.CharField(
        allow_null=True, help_text="Of the last try; empty where it went well."
    )

    class Meta:
        model = Delivery
        fields = ["id", "endpoint", "message_id", "event_type", "state", "tries", "created_at", "next_try_at",
                  "ended_at", "last_status", "last_error"]  # fmt: skip


class AttemptAnswer(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["at", "status", "duration_ms", "error", "excerpt"]


class DeliveryDetailAnswer(DeliveryAnswer):
    body = serializers.CharField(help_text="What is sent, to the letter.")
    attempts = AttemptAnswer(many=True, source="tried", help_text="Every try, the latest first.")

    class Meta(DeliveryAnswer.Meta):
        fields = [*DeliveryAnswer.Meta.fields, "body", "attempts"]


class ReplaySerializer(serializers.Serializer[Any]):
    endpoint = serializers.IntegerField(min_value=1, max_value=2**62)
    since = serializers.DateTimeField(help_text="Messages from then on: at most 30 days back.")
    failed_only = serializers.BooleanField(default=False, help_text="Only what failed for good.")


@dataclass(frozen=True)
class Replayed:
    messages: Annotated[int, "How many are sent again."]


class _Webhooks(RestView):
    needs = Needs("billing")

    def endpoints(self) -> QuerySet[Endpoint]:
        return Endpoint.objects.filter(self.viewer.owned()).order_by("pk")

    def endpoint(self, pk: int) -> Endpoint:
        return one(self.endpoints(), pk, f"There is no endpoint {pk}.")

    def delivery(self, pk: int) -> Delivery:
        return one(selectors.deliveries(self.viewer, DeliveryFilters()), pk, f"There is no delivery {pk}.")


@listing(EndpointAnswer)
class EndpointsView(_Webhooks, Listing[Endpoint]):
    """Receivers of this organisation, the oldest first."""

    def get_queryset(self) -> QuerySet[Endpoint]:
        return self.endpoints()

    @operation(EndpointWithSecretAnswer, status=201, takes=EndpointWriteSerializer)
    def post(self, request: Request) -> Endpoint:
        """Add a receiver; the answer has its signing secret, this once."""
        asked = self.sent(EndpointWriteSerializer)
        row, secret = endpoints.create(
            self.key.organisation,
            asked["url"],
            description=asked.get("description", ""),
            event_types=asked.get("event_types", ()),
            form=asked.get("form", BodyForm.STANDARD),
            routing_key=asked.get("routing_key", ""),
        )
        return _with_secret(row, secret)


class EndpointView(_Webhooks):
    @operation(EndpointAnswer)
    def get(self, request: Request, pk: int) -> Endpoint:
        """One receiver and how it does."""
        return self.endpoint(pk)

    @operation(EndpointAnswer, takes=EndpointChangeSerializer)
    def patch(self, request: Request, pk: int) -> Endpoint:
        """Change the address, the description or what it is told about."""
        return endpoints.change(self.endpoint(pk), **self.sent(EndpointChangeSerializer))

    @operation(status=204)
    def delete(self, request: Request, pk: int) -> None:
        """Delete a receiver with its deliveries."""
        self.endpoint(pk).delete()


class RotateSecretView(_Webhooks):
    @operation(EndpointWithSecretAnswer)
    def post(self, request: Request, pk: int) -> Endpoint:
        """Make a new secret, valid at once and shown this once; the old one signs along for 24 hours."""
        row = self.endpoint(pk)
        return _with_secret(row, endpoints.rotate(row))


class TestEndpointView(_Webhooks):
    @operation(DeliveryAnswer)
    def post(self, request: Request, pk: int) -> Delivery:
        """Send an `endpoint.test` to this receiver, whatever it is told about."""
        row = self.endpoint(pk)
        message = endpoints.test(row)
        return selectors.deliveries(self.viewer, DeliveryFilters(endpoint=row.pk)).get(message=message)


class DisableEndpointView(_Webhooks):
    @operation(EndpointAnswer, takes=WhySerializer)
    def post(self, request: Request, pk: int) -> Endpoint:
        """Send nothing more; what waits is kept."""
        row = self.endpoint(pk)
        endpoints.disable(row, self.sent(WhySerializer).get("reason") or "Disabled by hand.")
        row.refresh_from_db()
        return row


class EnableEndpointView(_Webhooks):
    @operation(EndpointAnswer)
    def post(self, request: Request, pk: int) -> Endpoint:
        """Send again, what waits first."""
        row = self.endpoint(pk)
        endpoints.enable(row)
        row.refresh_from_db()
        return row


@listing(
    DeliveryAnswer,
    parameters=[
        OpenApiParameter("endpoint", int, description="Only to this receiver."),
        query("state", f"Some of {', '.join(DeliveryState.values)}."),
        query("event_type", f"Some of {', '.join(EventType.values)}."),
    ],
)
class DeliveriesView(_Webhooks, Listing[Delivery]):
    """Messages on their way and those that have ended, the latest first."""

    def get_queryset(self) -> QuerySet[Delivery]:
        asked = DeliveryFilters(
            endpoint=filters.number(self.request, "endpoint"),
            states=tuple(filters.choices(self.request, "state", DeliveryState.values)),
            event_types=tuple(filters.choices(self.request, "event_type", EventType.values)),
        )
        return selectors.deliveries(self.viewer, asked)


class DeliveryView(_Webhooks):
    @operation(DeliveryDetailAnswer)
    def get(self, request: Request, pk: int) -> Delivery:
        """One delivery with what is sent and every try."""
        row: Any = self.delivery(pk)
        row.body, row.tried = body_for(row.endpoint, row.message), selectors.attempts(row)[:TRIES_SHOWN]
        return row


class ReplayDeliveryView(_Webhooks):
    @operation(DeliveryAnswer)
    def post(self, request: Request, pk: int) -> Delivery:
        """Send one message again, under its own id; one that waits is tried at once."""
        retention.replay(self.delivery(pk))
        return self.delivery(pk)


class ReplayView(_Webhooks):
    @operation(shape(Replayed), takes=ReplaySerializer)
    def post(self, request: Request) -> Replayed:
        """Send everything since a time again to one receiver, what it missed while disabled included."""
        asked = self.sent(ReplaySerializer)
        row = self.endpoint(asked["endpoint"])
        return Replayed(retention.replay_since(row, asked["since"], failed_only=asked["failed_only"]))


def _with_secret(row: Endpoint, secret: str) -> Endpoint:
    row.secret = secret  # type: ignore[attr-defined]
    return row


_ONE = "webhooks/endpoints/<row_id:pk>"
urlpatterns = [
    path("webhooks/endpoints/", EndpointsView.as_view(), name="webhook-endpoint-list"),
    path(_ONE, EndpointView.as_view(), name="webhook-endpoint"),
    path(f"{_ONE}/rotate", RotateSecretView.as_view(), name="webhook-rotate"),
    path(f"{_ONE}/test", TestEndpointView.as_view(), name="webhook-test"),
    path(f"{_ONE}/disable", DisableEndpointView.as_view(), name="webhook-disable"),
    path(f"{_ONE}/enable", EnableEndpointView.as_view(), name="webhook-enable"),
    path("webhooks/deliveries/", DeliveriesView.as_view(), name="webhook-delivery-list"),
    path("webhooks/deliveries/<row_id:pk>", DeliveryView.as_view(), name="webhook-delivery"),
    path(
        "webhooks/deliveries/<row_id:pk>/replay", ReplayDeliveryView.as_view(), name="webhook-delivery-replay"
    ),
    path("webhooks/replay", ReplayView.as_view(), name="webhook-replay"),
]
