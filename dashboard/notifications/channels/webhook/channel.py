"""Webhooks: handed to the organisation's outbox, which signs, sends, retries and replays."""

from __future__ import annotations

from typing import Any

from catalog.models import Organisation
from dashboard.notifications.channels.base import HandingOver
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.models import Happening
from dashboard.notifications.write.letters import Letter, LetterLine

EVENT_TYPES = {
    Happening.HIT: "hit.served",
    Happening.EXPLORED: "exploration.ended",
    Happening.BEST_CHANGED: "best.changed",
    Happening.WITHDRAWN: "implementation.withdrawn",
    Happening.SILENT: "workers.silent",
    Happening.FAILING: "route.failing",
    Happening.DISTURBED: "machine.disturbed",
    Happening.TEST: "endpoint.test",
}


class Webhook(HandingOver):
    name, label = "webhook", "Webhook"
    of_organisation = True
    card = "notifications/channels/_webhook.html"

    def hand_over(self, letter: Letter) -> SendResult:
        """An organisation is told of an event once, however many of its people asked for it."""
        from dashboard.webhooks import sending
        from dashboard.webhooks.models import Endpoint

        organisation = letter.organisation_id or _host_organisation()
        if organisation is None:
            none = "Webhooks belong to an organisation; this subscription has none."
            return SendResult(error=none, final=True)
        kinds = [EVENT_TYPES[Happening(line.happening)] for line in letter.lines]
        endpoints = Endpoint.objects.filter(organisation=organisation)
        if not any(one.wants(kind) for one in endpoints for kind in set(kinds)):
            return SendResult(error="The organisation has no webhook endpoint for this.", final=True)
        for kind, line in zip(kinds, letter.lines, strict=True):
            sending.send(organisation, kind, _data(line), key=f"notification:{line.key}")
        return SendResult(ok=True)


def _host_organisation() -> int | None:
    """Whose webhooks tell of what concerns the whole service."""
    return Organisation.objects.filter(host=True).order_by("pk").values_list("pk", flat=True).first()


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
