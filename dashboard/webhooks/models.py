"""Endpoints, messages, and the results of sending."""

from __future__ import annotations

import secrets

from django.db import models
from django.db.models import Q
from django.utils import timezone

from catalog.models import Organisation


class EventType(models.TextChoices):
    """What a receiver can be told about."""

    EXPLORATION_ENDED = "exploration.ended"
    BEST_CHANGED = "best.changed"
    IMPLEMENTATION_WITHDRAWN = "implementation.withdrawn"
    HIT_SERVED = "hit.served"
    WORKERS_SILENT = "workers.silent"
    ROUTE_FAILING = "route.failing"
    MACHINE_DISTURBED = "machine.disturbed"
    QUEUE_OLD = "queue.old"
    HITS_FALLING = "hits.falling"
    BEST_REGRESSED = "best.regressed"
    FAILURE_NEW = "failure.new"
    STEP_FAILING = "step.failing"
    CREDIT_LOW = "credit.low"
    SPENDING_SUDDEN = "spending.sudden"
    ALERT_ACKNOWLEDGED = "alert.acknowledged"
    ALERT_RESOLVED = "alert.resolved"
    LEDGER_CHARGED = "ledger.charged"
    CREDIT_ADDED = "credit.added"
    PAYMENT_REQUIRED = "payment.required"
    ENDPOINT_TEST = "endpoint.test"


ALERTS = (
    EventType.WORKERS_SILENT,
    EventType.ROUTE_FAILING,
    EventType.MACHINE_DISTURBED,
    EventType.QUEUE_OLD,
    EventType.HITS_FALLING,
    EventType.BEST_REGRESSED,
    EventType.FAILURE_NEW,
    EventType.STEP_FAILING,
    EventType.CREDIT_LOW,
    EventType.SPENDING_SUDDEN,
)
"""Events that fire and are acknowledged and resolved later."""

OF_ALERTS = (*ALERTS, EventType.ALERT_ACKNOWLEDGED, EventType.ALERT_RESOLVED)


class BodyForm(models.TextChoices):
    """How an event is written for a receiver."""

    STANDARD = "standard", "Standard Webhooks"  # type, timestamp and data, for programs
    SLACK = "slack", "Slack-compatible"  # one sentence: incoming webhooks of Slack, Mattermost, Rocket.Chat
    PAGERDUTY = "pagerduty", "PagerDuty-compatible"  # of alerts alone: Events API v2


def _message_id() -> str:
    return f"msg_{secrets.token_hex(16)}"


class Endpoint(models.Model):
    """A receiver's address. ``event_types`` is what it subscribes to; an empty list means everything."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="webhook_endpoints")
    url = models.CharField(max_length=2048)
    description = models.CharField(max_length=200, blank=True)
    event_types = models.JSONField(default=list)
    form = models.CharField(
        max_length=10, choices=BodyForm, default=BodyForm.STANDARD, db_default=BodyForm.STANDARD
    )
    # PagerDuty's routing key, encrypted as signing secrets are; empty for other forms.
    sealed_key = models.TextField(blank=True, default="", db_default="")
    created_at = models.DateTimeField(auto_now_add=True)
    disabled_at = models.DateTimeField(null=True, blank=True)
    disabled_reason = models.CharField(max_length=300, blank=True)
    # The first of the failures since the last success.
    failing_since = models.DateTimeField(null=True, blank=True)
    failures_in_a_row = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "url"], name="one_endpoint_per_address"),
        ]

    def __str__(self) -> str:
        return self.url

    def wants(self, event_type: str, fired_as: str = "") -> bool:
        """``fired_as``: what an alert was told as when it fired; who pages people for that also wants to hear
        what became of it."""
        if self.form == BodyForm.PAGERDUTY:
            kind = fired_as or event_type
            return kind in ALERTS and (not self.event_types or kind in self.event_types)
        return not self.event_types or event_type in self.event_types


class Secret(models.Model):
    """A signing secret, encrypted. After a rotation the old one signs along until ``expires_at``."""

    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="secrets")
    sealed = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint"], condition=Q(expires_at=None), name="one_current_secret"
            ),
        ]


class Message(models.Model):
    """One event, written in the transaction of what it tells: the outbox."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="webhook_messages")
    public_id = models.CharField(max_length=40, unique=True, default=_message_id)
    key = models.CharField(max_length=200)  # what happened, by name: told once however often it is sent
    event_type = models.CharField(max_length=40, choices=EventType)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "key"], name="one_message_per_key"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} {self.public_id}"


class DeliveryState(models.TextChoices):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(models.Model):
    """One message on its way to one endpoint."""

    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="deliveries")
    message = models.ForeignKey(Message, models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.PENDING)
    tries = models.PositiveIntegerField(default=0)  # since it began or was last replayed
    began_at = models.DateTimeField(default=timezone.now)  # the three days count from here
    next_try_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)
    # Whoever sends holds it until then, by the database's clock; ``fence`` tells a late record.
    claimed_until = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "message"], name="one_delivery_per_endpoint"),
        ]
        indexes = [
            models.Index(
                fields=["endpoint", "next_try_at"], condition=Q(state="pending"), name="webhooks_due"
            ),
            models.Index(fields=["endpoint", "-id"], name="webhooks_of_endpoint"),
            models.Index(
                fields=["endpoint", "state"],
                condition=Q(state__in=["pending", "failed"]),
                name="webhooks_by_state",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.message} to {self.endpoint}"


class Attempt(models.Model):
    """One request that was sent, and what came back."""

    delivery = models.ForeignKey(Delivery, models.CASCADE, related_name="attempts")
    at = models.DateTimeField(default=timezone.now)
    status = models.PositiveIntegerField(null=True)
    duration_ms = models.FloatField(default=0)
    error = models.CharField(max_length=300, blank=True)
    excerpt = models.TextField(blank=True)  # of the answer's body, at most 1 KiB
