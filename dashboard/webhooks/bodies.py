"""What is sent: an event as Standard Webhooks have it, or as a sentence that chat rooms show."""

from __future__ import annotations

import json
from datetime import UTC

from dashboard.webhooks.models import BodyForm, Endpoint, EventType, Message


def body_for(endpoint: Endpoint, message: Message) -> str:
    """The same text at every try."""
    document = _sentence(message) if endpoint.form == BodyForm.SLACK else _event(message)
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _event(message: Message) -> dict[str, object]:
    return {
        "type": message.event_type,
        "timestamp": message.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": message.data,
    }


def _sentence(message: Message) -> dict[str, object]:
    """``{"text": …}`` with a link where the event has one; in it &, < and > are written as Slack asks."""
    said = str(message.data.get("text") or EventType(message.event_type).label)
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        said = said.replace(mark, instead)
    url = str(message.data.get("url") or "")
    plain = url.startswith(("http://", "https://")) and not {"<", ">", "|"} & {*url}
    return {"text": f"{said} <{url}|Open>" if plain else said}
