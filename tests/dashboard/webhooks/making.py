"""Webhooks of made-up organisations, in every state, for pages and tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from catalog.models import Organisation
from dashboard.webhooks import endpoints
from dashboard.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint, Message

_EVENTS = (
    ("best.changed", {"operator": "o1:5f3a", "summary": "Softmax 64×1024 float32", "speedup": 1.62}),
    (
        "exploration.ended",
        {"operator": "o1:9c01", "summary": "Conv 1×64×56×56, 64×64×3×3 float32", "trials": 41},
    ),
    ("credit.added", {"amount_micros": 50_000_000, "currency": "EUR"}),
    ("hit.served", {"operator": "o1:5f3a", "job": "nightly-train", "calls": 1200}),
)


def webhooks_of(organisation: Organisation) -> list[Endpoint]:
    """Three endpoints (enabled, failing, disabled) and deliveries in every state."""
    names = (
        ("https://hooks.example.com/opatlas", "CI: rebuild when a best changes"),
        ("https://ops.example.net/in", ""),
        ("https://old.example.org/gone", "the former system"),
    )
    rows = [endpoints.create(organisation, url, description=text)[0] for url, text in names]
    now = timezone.now()
    Endpoint.objects.filter(pk=rows[0].pk).update(event_types=["best.changed", "exploration.ended"])
    Endpoint.objects.filter(pk=rows[1].pk).update(failing_since=now - timedelta(hours=5), failures_in_a_row=9)
    endpoints.disable(rows[2], "The receiver answered 410 Gone: it wants nothing any more.")
    for number in reversed(range(24)):
        kind, data = _EVENTS[number % len(_EVENTS)]
        message = Message.objects.create(
            organisation=organisation, key=f"made:{number}", event_type=kind, data=data,
            created_at=now - timedelta(minutes=5 + 37 * number),
        )  # fmt: skip
        for row in rows:
            _deliver(row, message, number)
    return rows


def _deliver(endpoint: Endpoint, message: Message, number: int) -> None:
    state, attempts = _course(endpoint, number)
    delivery = Delivery.objects.create(
        endpoint=endpoint, message=message, state=state, tries=len(attempts), began_at=message.created_at,
        next_try_at=timezone.now() + timedelta(minutes=13) if state == "pending" else message.created_at,
        ended_at=None if state == "pending" else timezone.now(),
    )  # fmt: skip
    for place, (status, error, excerpt) in enumerate(attempts):
        Attempt.objects.create(
            delivery=delivery, at=message.created_at + timedelta(seconds=2 + 15 * place), status=status,
            duration_ms=41.7 + 3 * place, error=error, excerpt=excerpt,
        )  # fmt: skip


def _course(endpoint: Endpoint, number: int) -> tuple[str, list[Any]]:
    if endpoint.url.startswith("https://hooks"):
        return DeliveryState.DELIVERED, [(200, "", '{"ok": true}')]
    if endpoint.url.startswith("https://ops"):
        wrong = (503, "It answered 503.", "upstream connect error")
        return (DeliveryState.PENDING, [wrong, (None, "The connection timed out.", "")]) if number < 8 else (
            DeliveryState.DELIVERED, [wrong, (202, "", "")])  # fmt: skip
    return DeliveryState.FAILED, [(410, "It answered 410.", "Gone")]
