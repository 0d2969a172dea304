"""The courier's chore that judges the rules: alerts begin, go on and end. It may be killed anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from catalog.steps import each, step
from dashboard.notifications.alerts.causes import AlertRule, Cause, rules
from dashboard.notifications.alerts.telling import note
from dashboard.notifications.models import Alert, AlertState, Deed
from tuning.queue.clock import database_now

SEEN_EVERY = timedelta(minutes=1)
"""How often a lasting cause is written down: an idle service hardly writes."""

LONGEST_QUIET_S = 3600.0
FLAPPING_WITHIN = timedelta(days=1)


def watch() -> None:
    """Judge every rule once. One that fails is logged and leaves its alerts as they are; the others go on."""
    for rule in rules():
        with step(f"judging the alert rule {rule.name.replace('_', ' ')}"):
            judge(rule, rule.causes())


def judge(rule: AlertRule, causes: Iterable[Cause]) -> None:
    """Apply one rule: an alert for each present cause, ended when that has been gone for a while."""
    found = {f"{rule.name}:{cause.key}"[:120]: cause for cause in causes}
    with transaction.atomic():
        now = database_now()
        open_ones = Alert.objects.select_for_update().filter(rule=rule.name, ended_at=None)
        followed = {alert.cause: alert for alert in open_ones}

        def tell(name: str) -> None:
            if name in followed:
                _go_on(followed[name], found[name], now)
            else:
                _fire(rule, name, found[name], now)

        each("telling of an alert's cause", found, tell)
        gone = [alert for name, alert in followed.items() if name not in found]
        each("ending an alert", gone, lambda alert: _miss(rule, alert, now))


def _fire(rule: AlertRule, name: str, cause: Cause, now: datetime) -> None:
    # Who muted a cause meant the cause, and not only this time.
    before = Alert.objects.filter(rule=rule.name, cause=name, muted_until__gt=now).order_by("-pk").first()
    alert = Alert.objects.create(
        rule=rule.name,
        cause=name,
        organisation_id=cause.organisation_id,
        severity=rule.severity,
        text=cause.text,
        path=cause.path[:300],
        facts={**cause.facts, **cause.explained()},
        fired_at=now,
        seen_at=now,
        muted_until=before.muted_until if before else None,
    )
    note(alert, Deed.FIRED, now=now)


def _go_on(alert: Alert, cause: Cause, now: datetime) -> None:
    is_due = alert.gone_at is not None or now - alert.seen_at >= SEEN_EVERY
    if is_due or alert.text != cause.text:
        alert.text, alert.facts = cause.text, {**alert.facts, **cause.facts}
        if is_due:
            alert.facts, alert.seen_at, alert.gone_at = {**alert.facts, **cause.explained()}, now, None
        alert.save(update_fields=["text", "facts", "seen_at", "gone_at"])
    if not alert.told and alert.state == AlertState.FIRING and not alert.muted_at(now):
        note(alert, Deed.FIRED, now=now)  # it was muted when it began


def _miss(rule: AlertRule, alert: Alert, now: datetime) -> None:
    """Its cause is absent: first that is written down, and after a while the alert ends."""
    if alert.gone_at is None:
        alert.gone_at = now
        alert.save(update_fields=["gone_at"])
    elif (now - alert.gone_at).total_seconds() >= _quiet_s(rule, alert, now):
        alert.ended_at = now
        if alert.state == AlertState.RESOLVED:  # by hand, before
            alert.save(update_fields=["ended_at"])
            return
        alert.state, alert.resolved_at = AlertState.RESOLVED, now
        alert.save(update_fields=["state", "resolved_at", "ended_at"])
        note(alert, Deed.RESOLVED, now=now, detail="The cause is gone.")


def _quiet_s(rule: AlertRule, alert: Alert, now: datetime) -> float:
    """How long its cause must be gone: doubled each time that it came back within a day, so that a flapping
    cause is one alert."""
    lately = Alert.objects.filter(
        rule=rule.name, cause=alert.cause, fired_at__gte=now - FLAPPING_WITHIN, pk__lt=alert.pk
    )
    return min(rule.quiet_s * 2 ** min(lately.count(), 10), LONGEST_QUIET_S)
