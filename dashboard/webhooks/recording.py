"""The result of a request: delivered, tried again or failed; and its endpoint's state."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from dashboard.webhooks import clock, endpoints
from dashboard.webhooks.guard import Reply
from dashboard.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint
from dashboard.webhooks.notices import tell_disabled
from dashboard.webhooks.retrying import next_try

DISABLE_AFTER = timedelta(days=3)
FAILURES_TO_DISABLE = 5  # a single message must not do it
GONE = 410


def record(delivery: Delivery, reply: Reply) -> None:
    """One transaction: the attempt, the delivery's next state, the endpoint's standing."""
    now = clock.now()
    with transaction.atomic():
        Attempt.objects.create(
            delivery=delivery,
            at=now,
            status=reply.status,
            duration_ms=reply.duration_ms,
            error=reply.error[:300],
            excerpt=reply.excerpt,
        )
        disabled = _succeeded(delivery, now) if reply.ok else _failed(delivery, reply, now)
    if disabled:
        tell_disabled(delivery.endpoint_id)


def _succeeded(delivery: Delivery, now: datetime) -> bool:
    # Whoever holds it meanwhile: it has arrived.
    Delivery.objects.filter(pk=delivery.pk).update(
        state=DeliveryState.DELIVERED, tries=F("tries") + 1, ended_at=now, claimed_until=None
    )
    if delivery.endpoint.failing_since is not None:
        Endpoint.objects.filter(pk=delivery.endpoint_id).update(failing_since=None, failures_in_a_row=0)
    return False


def _failed(delivery: Delivery, reply: Reply, now: datetime) -> bool:
    """Returns whether the endpoint was disabled by it."""
    gone = reply.status == GONE
    again = None
    if not gone:
        again = next_try(delivery.tries + 1, delivery.began_at, now, asked_s=reply.retry_after_s)
    change = {"next_try_at": again} if again is not None else {"state": DeliveryState.FAILED, "ended_at": now}
    # A late record of one whose claim ran out changes nothing: another has it.
    Delivery.objects.filter(pk=delivery.pk, fence=delivery.fence, state=DeliveryState.PENDING).update(
        tries=F("tries") + 1, claimed_until=None, **change
    )
    Endpoint.objects.filter(pk=delivery.endpoint_id).update(
        failing_since=Coalesce("failing_since", now), failures_in_a_row=F("failures_in_a_row") + 1
    )
    endpoint = Endpoint.objects.get(pk=delivery.endpoint_id)
    if gone:
        return endpoints.disable(endpoint, "The receiver answered 410 Gone: it wants nothing any more.")
    since = endpoint.failing_since or now
    if now - since >= DISABLE_AFTER and endpoint.failures_in_a_row >= FAILURES_TO_DISABLE:
        return endpoints.disable(
            endpoint, f"Every try failed for three days, the last with: {reply.error[:200]}"
        )
    return False
