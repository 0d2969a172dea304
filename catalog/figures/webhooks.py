"""What leaves the service for people's own systems."""

from __future__ import annotations

from catalog.figures.base import Figure

WEBHOOKS: tuple[Figure, ...] = (
    Figure(
        "webhooks_waiting",
        "Webhooks waiting",
        "deliveries",
        "How many messages are on their way to an endpoint, new or to be retried.",
        "count of deliveries in the state pending, by endpoint",
        "webhooks' Delivery",
    ),
    Figure(
        "webhooks_failed",
        "Webhooks failed",
        "deliveries",
        "How many messages an endpoint never accepted: all tries over three days failed, or it answered 410.",
        "count of deliveries in the state failed, by endpoint, of the 30 days that messages are kept",
        "webhooks' Delivery",
    ),
)
