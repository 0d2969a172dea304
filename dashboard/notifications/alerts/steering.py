"""What people do to alerts: acknowledge, mute, resolve; for pages and REST. Alerts of the service are for the
host's operators. An organisation's money alerts are for those who may see its bills, its others for its
operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from catalog.errors import RequestError, Unknown
from catalog.people.audit import note as note_audit
from catalog.viewing import BILL, OPERATE, Viewer
from dashboard.notifications.alerts.selectors import visible
from dashboard.notifications.alerts.telling import note
from dashboard.notifications.models import OF_ACCOUNT, Alert, AlertState, Deed
from opatlas.errors import CallerError
from tuning.queue.clock import database_now

LONGEST_MUTE_S = 30 * 24 * 3600
MUTES = ((3600, "1 hour"), (8 * 3600, "8 hours"), (24 * 3600, "1 day"), (7 * 24 * 3600, "1 week"))
"""(seconds, how people call it)."""


class NotYours(CallerError):
    """The caller may look at this, but not change it."""

    status = 403


class NotInState(RequestError):
    status = 409


@dataclass(frozen=True)
class AlertOrder:
    """``by``: who asks, as the history names them. ``for_s``: how long to mute it; 0: no longer."""

    verb: str
    by: str
    reason: str = ""
    for_s: float = 0.0


def may_steer(viewer: Viewer, alert: Alert) -> bool:
    """Whether this viewer may change this alert."""
    return viewer.may(BILL if alert.rule in OF_ACCOUNT else OPERATE, alert.organisation_id)


def act(viewer: Viewer, pk: int, order: AlertOrder) -> Alert:
    """Do one thing to one alert, or raise Unknown, NotYours, RequestError or NotInState and do nothing."""
    if order.verb not in VERBS:
        raise RequestError(f"An action is one of {', '.join(VERBS)}.", where="action")
    with transaction.atomic():
        alert = Alert.objects.select_for_update().filter(visible(viewer), pk=pk).first()
        if alert is None:
            raise Unknown(f"There is no alert {pk}.")
        if not may_steer(viewer, alert):
            raise NotYours("This alert is for the operators, or the billing role, of whom it concerns.")
        _ACTS[order.verb](alert, order, database_now())
    return alert


def audit(request: Any, alert: Alert, order: AlertOrder) -> None:
    """Write down who did it, where everything that people change is written down."""
    note_audit(
        request,
        action=f"alert.{order.verb}",
        subject=f"alert {alert.pk}",
        detail={"cause": alert.cause, "reason": order.reason, "for_s": order.for_s},
        organisation=alert.organisation_id,
    )


def _acknowledge(alert: Alert, order: AlertOrder, now: datetime) -> None:
    if alert.state != AlertState.FIRING:
        raise NotInState(f"It is {alert.state}: only what is firing can be acknowledged.")
    alert.state, alert.acknowledged_by = AlertState.ACKNOWLEDGED, order.by[:150]
    alert.save(update_fields=["state", "acknowledged_by"])
    note(alert, Deed.ACKNOWLEDGED, now=now, by=order.by, detail=order.reason)


def _mute(alert: Alert, order: AlertOrder, now: datetime) -> None:
    if not 0 <= order.for_s <= LONGEST_MUTE_S:
        raise RequestError("An alert is muted for 1 second to 30 days; 0 ends that.", where="for_s")
    if order.for_s == 0:
        alert.muted_until = None
        alert.save(update_fields=["muted_until"])
        note(alert, Deed.UNMUTED, now=now, by=order.by, detail=order.reason)
        return
    if alert.ended_at is not None:
        raise NotInState("It is over: mute it when it fires again.")
    alert.muted_until = now + timedelta(seconds=order.for_s)
    alert.save(update_fields=["muted_until"])
    until = f"until {alert.muted_until:%Y-%m-%d %H:%M} UTC"
    note(alert, Deed.MUTED, now=now, by=order.by, detail=f"{until}. {order.reason}".strip())


def _resolve(alert: Alert, order: AlertOrder, now: datetime) -> None:
    if alert.state == AlertState.RESOLVED:
        raise NotInState("It is resolved already.")
    alert.state, alert.resolved_at = AlertState.RESOLVED, now
    alert.save(update_fields=["state", "resolved_at"])
    note(alert, Deed.RESOLVED, now=now, by=order.by, detail=order.reason)


_ACTS: Mapping[str, Callable[[Alert, AlertOrder, datetime], None]] = {
    "acknowledge": _acknowledge,
    "mute": _mute,
    "resolve": _resolve,
}
VERBS = tuple(_ACTS)
