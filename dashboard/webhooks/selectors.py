"""Endpoints and deliveries as people and programs see them: an organisation's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from catalog.timerange import TimeRange
from catalog.viewing import Viewer
from dashboard.webhooks import clock
from dashboard.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint, Secret

LISTED = 500
"""Endpoints on one page, of all organisations together."""


@dataclass(frozen=True)
class DeliveryFilters:
    """What a list of deliveries is narrowed to; empty: everything."""

    endpoint: int | None = None
    states: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    during: TimeRange | None = None
    text: str = ""  # in a message's id or key


@dataclass(frozen=True)
class EndpointStanding:
    """An endpoint and how it does."""

    endpoint: Endpoint
    pending: int
    failed: int

    @property
    def state(self) -> str:
        return state_of(self.endpoint)


def state_of(endpoint: Endpoint) -> str:
    """``disabled``, ``failing`` (the last try failed) or ``enabled``."""
    if endpoint.disabled_at is not None:
        return "disabled"
    return "failing" if endpoint.failing_since is not None else "enabled"


def endpoints(viewer: Viewer) -> list[EndpointStanding]:
    """Those that may be seen, the oldest first. Two statements."""
    rows = list(
        Endpoint.objects.filter(viewer.owned()).select_related("organisation").order_by("pk")[:LISTED]
    )
    counted = (
        Delivery.objects.filter(endpoint__in=rows, state__in=(DeliveryState.PENDING, DeliveryState.FAILED))
        .values_list("endpoint", "state")
        .annotate(Count("pk"))
        .order_by()
    )
    counts = {(endpoint, state): count for endpoint, state, count in counted}
    states = (DeliveryState.PENDING, DeliveryState.FAILED)
    return [EndpointStanding(row, *(counts.get((row.pk, state), 0) for state in states)) for row in rows]


def old_secret_until(endpoint: Endpoint) -> datetime | None:
    """Until when an earlier secret signs along; None where none does."""
    rows = Secret.objects.filter(endpoint=endpoint, expires_at__gt=clock.now())
    return rows.order_by("-expires_at").values_list("expires_at", flat=True).first()


def deliveries(viewer: Viewer, filters: DeliveryFilters) -> QuerySet[Delivery]:
    """The latest first, each with its last attempt's status and error."""
    rows = Delivery.objects.filter(viewer.owned("endpoint__organisation"))
    if filters.endpoint is not None:
        rows = rows.filter(endpoint=filters.endpoint)
    if filters.states:
        rows = rows.filter(state__in=filters.states)
    if filters.event_types:
        rows = rows.filter(message__event_type__in=filters.event_types)
    if filters.during is not None:
        since, until = filters.during.since, filters.during.until
        rows = rows.filter(message__created_at__gte=since, message__created_at__lt=until)
    if filters.text:
        rows = rows.filter(
            Q(message__public_id__startswith=filters.text) | Q(message__key__icontains=filters.text)
        )
    last = Attempt.objects.filter(delivery=OuterRef("pk")).order_by("-pk")
    return (
        rows.select_related("endpoint", "message")
        .annotate(
            last_status=Subquery(last.values("status")[:1]),
            last_error=Subquery(last.values("error")[:1]),
            last_at=Subquery(last.values("at")[:1]),
        )
        .order_by("-pk")
    )


def attempts(delivery: Delivery) -> QuerySet[Attempt]:
    """The latest first."""
    return Attempt.objects.filter(delivery=delivery).order_by("-pk")
