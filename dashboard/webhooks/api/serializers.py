"""Shapes of the webhooks' API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from dashboard.webhooks.endpoints import SUBSCRIBABLE
from dashboard.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint, EventType


class EndpointSerializer(serializers.ModelSerializer[Endpoint]):
    event_types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBABLE),
        help_text="What it is told about; an empty list: everything.",
    )
    disabled_reason = serializers.CharField(help_text="Why nothing is sent to it; empty while it is enabled.")

    class Meta:
        model = Endpoint
        fields = ["id", "url", "description", "event_types", "created_at", "disabled_at", "disabled_reason",
                  "failing_since", "failures_in_a_row"]  # fmt: skip


class EndpointWithSecretSerializer(EndpointSerializer):
    secret = serializers.CharField(
        help_text="The signing secret (whsec_…). It is shown this once and cannot be had again."
    )

    class Meta(EndpointSerializer.Meta):
        fields = [*EndpointSerializer.Meta.fields, "secret"]


class EndpointWriteSerializer(serializers.Serializer[Any]):
    url = serializers.CharField(max_length=2048, help_text="Where to send: https, a public host.")
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    event_types = serializers.ListField(
        child=serializers.ChoiceField(SUBSCRIBABLE),
        required=False,
        max_length=20,
        help_text="What to be told about; none or an empty list: everything.",
    )


class EndpointChangeSerializer(EndpointWriteSerializer):
    url = serializers.CharField(max_length=2048, required=False)


class WhySerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=300, required=False, allow_blank=True)


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    endpoint = serializers.IntegerField(source="endpoint_id")
    message_id = serializers.CharField(source="message.public_id", help_text="The header webhook-id.")
    event_type = serializers.ChoiceField(EventType.choices, source="message.event_type")
    state = serializers.ChoiceField(DeliveryState.choices)
    created_at = serializers.DateTimeField(source="message.created_at", help_text="When it happened.")
    last_status = serializers.IntegerField(allow_null=True, help_text="Of the last try; null: no answer.")
    last_error = serializers.CharField(
        allow_null=True, help_text="Of the last try; empty where it went well."
    )

    class Meta:
        model = Delivery
        fields = ["id", "endpoint", "message_id", "event_type", "state", "tries", "created_at", "next_try_at",
                  "ended_at", "last_status", "last_error"]  # fmt: skip


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["at", "status", "duration_ms", "error", "excerpt"]


class DeliveryDetailSerializer(DeliverySerializer):
    body = serializers.CharField(help_text="What is sent, to the letter.")
    attempts = AttemptSerializer(many=True, help_text="Every try, the latest first.")

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "body", "attempts"]


class ReplaySerializer(serializers.Serializer[Any]):
    endpoint = serializers.IntegerField(min_value=1, max_value=2**62)
    since = serializers.DateTimeField(help_text="Messages from then on: at most 30 days back.")
    failed_only = serializers.BooleanField(default=False, help_text="Only what failed for good.")


class ReplayedSerializer(serializers.Serializer[Any]):
    messages = serializers.IntegerField(help_text="How many are sent again.")
