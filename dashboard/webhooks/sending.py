"""Writing events into the outbox: they are sent once the caller's transaction commits, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models.functions import Now

from catalog import failpoints
from catalog.models import Organisation
from dashboard.webhooks.models import Delivery, Endpoint, EventType, Message


def send(
    organisation: Organisation | int, event_type: str, data: Mapping[str, Any], *, key: str
) -> Message | None:
    """Tell an organisation's receivers; ``data`` is plain JSON, ``key`` (at most 200 characters) names what
    happened, so that sending it again changes nothing.

    Returns the message, or None where nothing was written: it had been sent before, or the organisation has
    no endpoint that subscribes to this type. (A disabled endpoint counts: what it missed can be replayed.)
    Two to four short statements, none of which waits for a receiver.
    """
    kind = EventType(event_type)
    number = organisation if isinstance(organisation, int) else organisation.pk
    wanting = [
        one
        for one in Endpoint.objects.filter(organisation_id=number).only("event_types", "form", "disabled_at")
        if one.wants(kind, _fired_as(data))
    ]
    return _write(number, kind, data, key, wanting) if wanting else None


def _fired_as(data: Mapping[str, Any]) -> str:
    return str((data.get("alert") or {}).get("fired_as", ""))


def send_to(endpoint: Endpoint, event_type: str, data: Mapping[str, Any], *, key: str) -> Message | None:
    """The same for one endpoint alone, whatever it subscribes to: a test."""
    return _write(endpoint.organisation_id, EventType(event_type), data, key, [endpoint])


def _write(
    organisation_id: int, kind: EventType, data: Mapping[str, Any], key: str, endpoints: list[Endpoint]
) -> Message | None:
    # By the database's clock, as whoever sends it asks what is due.
    now = Now()
    message = Message(
        organisation_id=organisation_id, key=key, event_type=kind, data=dict(data), created_at=now
    )
    # A conflict must not abort the caller's transaction, so it is ignored rather than caught.
    Message.objects.bulk_create([message], ignore_conflicts=True)
    written = Message.objects.filter(public_id=message.public_id).first()
    if written is not None:
        Delivery.objects.bulk_create(
            [
                Delivery(endpoint=one, message=written, began_at=now, next_try_at=now)
                for one in endpoints
                if one.disabled_at is None
            ],
            ignore_conflicts=True,
        )
    failpoints.at("outbox-writing")
    return written
