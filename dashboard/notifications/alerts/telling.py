"""An alert's history, and the webhooks that are sent at once.

People are told by their subscriptions (``dashboard.notifications.find``), which read the same rows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from catalog.models import Organisation
from dashboard.notifications.models import Alert, AlertDeed, AlertState, Deed, Happening
from dashboard.notifications.write import wording
from opatlas.conf import conf

TOLD_AT_ONCE = (Deed.FIRED, Deed.ACKNOWLEDGED, Deed.RESOLVED)
EVENT_TYPES = {
    Happening.SILENT: "workers.silent",
    Happening.FAILING: "route.failing",
    Happening.DISTURBED: "machine.disturbed",
    Happening.QUEUE_OLD: "queue.old",
    Happening.HITS_FALLING: "hits.falling",
    Happening.REGRESSED: "best.regressed",
    Happening.NEW_FAILURE: "failure.new",
    Happening.STEP_FAILING: "step.failing",
    Happening.SPEND: "credit.low",
    Happening.SPEND_SUDDEN: "spending.sudden",
}
"""Rule → the webhook event type when it fires; later events are ``alert.…``."""


def note(alert: Alert, what: Deed, *, now: datetime, by: str = "", detail: str = "") -> AlertDeed:
    """Write down what happened, in the transaction that changes the alert, and tell of it unless it is muted.
    Those who were told that it fired are told its end, muted or not, so that nothing stays open elsewhere."""
    told = what in TOLD_AT_ONCE and (alert.told or (what == Deed.FIRED and not alert.muted_at(now)))
    deed = AlertDeed.objects.create(
        alert=alert, what=what, by=by[:150], detail=detail[:300], told=told, at=now
    )
    if told:
        if not alert.told:
            alert.told = True
            Alert.objects.filter(pk=alert.pk).update(told=True)
        _tell_webhooks(alert, deed)
    return deed


def sentence(alert: Alert, what: str) -> str:
    """A sentence about it, in at most 160 characters."""
    return wording.over(alert.text) if what == Deed.RESOLVED else alert.text


def key_of(alert_id: object, what: str) -> str:
    """The permanent name of this alert's firing, acknowledgement or resolution."""
    return f"alert:{alert_id}:{what}"


def event_type(alert: Alert, what: str) -> str:
    return EVENT_TYPES[Happening(alert.rule)] if what == Deed.FIRED else f"alert.{what}"


def facts_of(alert: Alert, what: str) -> dict[str, Any]:
    """The facts for an event of it."""
    return {**alert.facts, "alert": alert.pk, "said": sentence(alert, what), "path": alert.get_absolute_url()}


def _tell_webhooks(alert: Alert, deed: AlertDeed) -> None:
    from dashboard.webhooks import sending

    owner = alert.organisation_id or host_organisation()
    if owner is None:
        return
    data = {
        "happening": alert.rule,
        "text": sentence(alert, deed.what),
        "url": f"{conf().service_url}{alert.get_absolute_url()}",
        "at": deed.at.astimezone(UTC).isoformat(),
        "count": 1,
        "operator": None,
        "facts": alert.facts,
        "alert": {
            "id": alert.pk,
            "rule": alert.rule,
            "cause": alert.cause,
            "severity": alert.severity,
            "state": AlertState.FIRING.value if deed.what == Deed.FIRED else deed.what,
            "by": deed.by,
            "fired_as": EVENT_TYPES[Happening(alert.rule)],
        },
    }
    # The name that a subscription's message by webhook has too: whoever is first tells it.
    key = f"notification:{key_of(alert.pk, deed.what)}"
    sending.send(owner, event_type(alert, deed.what), data, key=key)


def host_organisation() -> int | None:
    """The organisation whose webhooks get alerts of the whole service."""
    return Organisation.objects.filter(host=True).order_by("pk").values_list("pk", flat=True).first()
