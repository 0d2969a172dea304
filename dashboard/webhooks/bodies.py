"""What is sent: an event as Standard Webhooks have it, a sentence that chat rooms show, or an incident."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

from dashboard.webhooks.models import BodyForm, Endpoint, EventType, Message

HIDDEN = "…"
"""What people see in place of a routing key."""

_ACTIONS = {
    EventType.ALERT_ACKNOWLEDGED: "acknowledge",
    EventType.ALERT_RESOLVED: "resolve",
}


def body_for(endpoint: Endpoint, message: Message, routing_key: str = HIDDEN) -> str:
    """The same text at every try. ``routing_key``: for PagerDuty, once it is sent."""
    if endpoint.form == BodyForm.PAGERDUTY:
        document = _incident(message, routing_key)
    else:
        document = _sentence(message) if endpoint.form == BodyForm.SLACK else _event(message)
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def _event(message: Message) -> dict[str, object]:
    return {
        "type": message.event_type,
        "timestamp": _moment(message),
        "data": message.data,
    }


def _sentence(message: Message) -> dict[str, object]:
    """``{"text": …}`` with a link where the event has one; in it &, < and > are written as Slack asks."""
    said = str(message.data.get("text") or EventType(message.event_type).label)
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        said = said.replace(mark, instead)
    url = _url(message)
    plain = bool(url) and not {"<", ">", "|"} & {*url}
    return {"text": f"{said} <{url}|Open>" if plain else said}


def _incident(message: Message, routing_key: str) -> dict[str, object]:
    """PagerDuty's Events API v2. All that is told of one alert has its address for ``dedup_key``."""
    data: dict[str, Any] = message.data
    alert = data.get("alert") or {}
    action = _ACTIONS.get(EventType(message.event_type), "trigger")
    document: dict[str, object] = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": (_url(message) or f"opatlas {message.event_type}")[:255],
    }
    if action == "trigger":
        document["client"] = "Opatlas"
        document["payload"] = {
            "summary": str(data.get("text") or EventType(message.event_type).label)[:1024],
            "source": str(alert.get("cause") or "opatlas"),
            "severity": str(alert.get("severity") or "info"),
            "timestamp": _moment(message),
            "class": message.event_type,
            "custom_details": data.get("facts") or {},
        }
        if _url(message):
            document["client_url"] = _url(message)
            document["links"] = [{"href": _url(message), "text": "Open the alert"}]
    return document


def _url(message: Message) -> str:
    url = str(message.data.get("url") or "")
    return url if url.startswith(("http://", "https://")) else ""


def _moment(message: Message) -> str:
    return message.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
