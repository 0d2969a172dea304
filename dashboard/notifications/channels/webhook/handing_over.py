"""Webhooks: handed to the organisation's outbox, which signs, sends, retries and replays."""

from __future__ import annotations

from typing import Any

from catalog.models import Organisation
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.models import Happening
from dashboard.notifications.write.letters import Letter, LetterLine

EVENT_TYPES = {
    Happening.HIT: "hit.served",
    Happening.EXPLORED: "exploration.ended",
    Happening.BEST_CHANGED: "best.changed",
    Happening.WITHDRAWN: "implementation.withdrawn",
    Happening.TEST: "endpoint.test",
}


def send(letter: Letter) -> SendResult:
    """Inside the caller's transaction, so that nothing is handed over twice. An organisation is told of an
    event once, however many of its people asked for it."""
    from dashboard.webhooks import sending
    from dashboard.webhooks.models import Endpoint

    organisation = letter.organisation_id or host_organisation()
    if organisation is None:
        return SendResult(error="Webhooks belong to an organisation; this subscription has none.", final=True)
    wanted = {EVENT_TYPES[Happening(line.happening)] for line in letter.lines}
    if not any(
        one.wants(kind) for one in Endpoint.objects.filter(organisation=organisation) for kind in wanted
    ):
        return SendResult(error="The organisation has no webhook endpoint for this.", final=True)
    for line in letter.lines:
        sending.send(organisation, EVENT_TYPES[Happening(line.happening)], data(line), key=_key(line))
    return SendResult(ok=True)


def host_organisation() -> int | None:
    """Whose webhooks tell of what concerns the whole service."""
    return Organisation.objects.filter(host=True).order_by("pk").values_list("pk", flat=True).first()


def data(line: LetterLine) -> dict[str, Any]:
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


def _key(line: LetterLine) -> str:
    return f"notification:{line.key}"
