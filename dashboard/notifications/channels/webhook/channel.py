"""Webhooks: handed to the organisation's outbox, which signs, sends, retries and replays."""

from __future__ import annotations

from typing import Any

from dashboard.notifications.alerts import telling
from dashboard.notifications.channels.base import HandingOver
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.models import Deed, Happening
from dashboard.notifications.write.letters import Letter, LetterLine

EVENT_TYPES = {
    Happening.HIT: "hit.served",
    Happening.EXPLORED: "exploration.ended",
    Happening.BEST_CHANGED: "best.changed",
    Happening.WITHDRAWN: "implementation.withdrawn",
    Happening.TEST: "endpoint.test",
    **telling.EVENT_TYPES,
}


class Webhook(HandingOver):
    name, label = "webhook", "Webhook"
    of_organisation = True
    card = "notifications/channels/_webhook.html"

    def hand_over(self, letter: Letter) -> SendResult:
        """An organisation is told of an event once, however many of its people asked for it."""
        from dashboard.webhooks import sending
        from dashboard.webhooks.models import Endpoint

        organisation = letter.organisation_id or telling.host_organisation()
        if organisation is None:
            none = "Webhooks belong to an organisation; this subscription has none."
            return SendResult(error=none, final=True)
        kinds = [_kind(line) for line in letter.lines]
        endpoints = Endpoint.objects.filter(organisation=organisation)
        if not any(one.wants(kind) for one in endpoints for kind in set(kinds)):
            return SendResult(error="The organisation has no webhook endpoint for this.", final=True)
        for kind, line in zip(kinds, letter.lines, strict=True):
            sending.send(organisation, kind, _data(line), key=f"notification:{line.key}")
        return SendResult(ok=True)


def _kind(line: LetterLine) -> str:
    over = line.key == telling.key_of(line.facts.get("alert"), Deed.RESOLVED)
    return "alert.resolved" if over else EVENT_TYPES[Happening(line.happening)]


def _data(line: LetterLine) -> dict[str, Any]:
    """An event's body: the sentence, and what it was made of."""
    return {
        "happening": line.happening,
        "text": line.text,
        "url": line.url,
        "at": line.at,
        "count": line.count,
        "operator": line.operator_key or None,
        "facts": line.facts,
    }
