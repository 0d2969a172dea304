"""Sending again what was sent before, and forgetting what is old."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from django.db import transaction
from django.db.models import F

from catalog.errors import RequestError
from dashboard.webhooks import clock
from dashboard.webhooks.endpoints import EndpointRefused
from dashboard.webhooks.models import (
    OF_ALERTS,
    BodyForm,
    Delivery,
    DeliveryState,
    Endpoint,
    EventType,
    Message,
)

KEEP = timedelta(days=30)
"""How long messages are kept, and how far back a replay can go."""

_BATCH = 1000


def replay(delivery: Delivery) -> None:
    """Send one message again, under its own id; one that waits is tried at once."""
    _check_enabled(delivery.endpoint)
    _begin_again(delivery.endpoint, [delivery.message_id])


def replay_since(endpoint: Endpoint, since: datetime, *, failed_only: bool = False) -> int:
    """Send everything since then again, what the endpoint missed while it was disabled included; returns how
    many messages. Tests are not repeated."""
    _check_enabled(endpoint)
    _check_since(since)
    rows = Message.objects.filter(organisation=endpoint.organisation_id, created_at__gte=since)
    rows = rows.exclude(event_type=EventType.ENDPOINT_TEST)
    if endpoint.event_types:
        rows = rows.filter(event_type__in=endpoint.event_types)
    if endpoint.form == BodyForm.PAGERDUTY:
        rows = rows.filter(event_type__in=OF_ALERTS)
    if failed_only:
        rows = rows.filter(deliveries__endpoint=endpoint, deliveries__state=DeliveryState.FAILED)
    count, left = 0, rows.order_by("pk").values_list("pk", flat=True).iterator(_BATCH)
    while batch := list(islice(left, _BATCH)):
        count += _begin_again(endpoint, batch)
    return count


def forget_old() -> int:
    """Delete messages beyond the time they are kept, with their deliveries, unless one is on its way."""
    old = Message.objects.filter(created_at__lt=clock.now() - KEEP)
    waiting = Delivery.objects.filter(
        state=DeliveryState.PENDING, endpoint__disabled_at=None, message__in=old
    ).values("message")
    pks = list(old.exclude(pk__in=waiting).values_list("pk", flat=True)[:_BATCH])
    return Message.objects.filter(pk__in=pks).delete()[0] if pks else 0


def _begin_again(endpoint: Endpoint, messages: list[int]) -> int:
    now = clock.now()
    with transaction.atomic():
        Delivery.objects.bulk_create(
            [Delivery(endpoint=endpoint, message_id=pk) for pk in messages], ignore_conflicts=True
        )
        # The fence moves on: a request that is under way says nothing about the new try if it fails.
        return Delivery.objects.filter(endpoint=endpoint, message__in=messages).update(
            state=DeliveryState.PENDING,
            tries=0,
            began_at=now,
            next_try_at=now,
            ended_at=None,
            claimed_until=None,
            fence=F("fence") + 1,
        )


def _check_since(since: datetime) -> None:
    try:
        age = clock.now() - since
    except OverflowError:  # the first or last day that there is, in another time zone
        age = KEEP * 2
    if not timedelta() <= age <= KEEP + timedelta(minutes=5):
        raise RequestError(f"since must be a time of the last {KEEP.days} days.", where="since")


def _check_enabled(endpoint: Endpoint) -> None:
    if endpoint.disabled_at is not None:
        raise EndpointRefused("The endpoint is disabled: enable it first.")
