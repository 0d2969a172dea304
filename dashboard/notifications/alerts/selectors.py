"""Alerts as people see them: the host's for the host's people, an organisation's for its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.utils import timezone

from catalog.viewing import BILL, Viewer
from dashboard.notifications.models import OF_ACCOUNT, Alert, AlertDeed, AlertState, Happening, Severity
from tuning.statistics.alarms import Alarms, DisturbedTarget, FailingRoute

COUNTED = 100
"""The menu says "99+" beyond."""


@dataclass(frozen=True)
class AlertFilters:
    """``state``: one of AlertState, "muted", or "" for what is not over."""

    state: str = ""
    rule: str = ""


def visible(viewer: Viewer) -> Q:
    """The service's: for the host's people who look at all of it. An organisation's: for its members, those
    of its money for who may see its bills."""
    own = set(viewer.roles) if viewer.focus is None else {viewer.focus}
    billed = {number for number in own if viewer.may(BILL, number)}
    of_money = Q(rule__in=OF_ACCOUNT)
    found = Q(organisation__in=own) & ~of_money | Q(organisation__in=billed) & of_money
    if viewer.sees_all and viewer.focus is None:
        found |= ~of_money
        if viewer.may(BILL):
            found |= of_money
    return found


def alerts(viewer: Viewer, asked: AlertFilters) -> QuerySet[Alert]:
    """What fires first, the latest first within each state."""
    rows, now = Alert.objects.filter(visible(viewer)).select_related("organisation"), timezone.now()
    if asked.rule:
        rows = rows.filter(rule=asked.rule)
    if asked.state == "muted":
        rows = rows.filter(muted_until__gt=now).exclude(state=AlertState.RESOLVED)
    elif asked.state:
        rows = rows.filter(state=asked.state)
    firing_first = Case(
        When(state=AlertState.FIRING, then=Value(0)),
        When(state=AlertState.ACKNOWLEDGED, then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )
    return rows.order_by(firing_first, "-pk")


def firing(viewer: Viewer) -> int:
    """How many nobody has taken up, up to a hundred: one short statement on every page. What is only good to
    know (a new cause of failure: candidates fail every day) waits for nobody."""
    rows = Alert.objects.filter(visible(viewer), state=AlertState.FIRING).exclude(severity=Severity.INFO)
    rows = rows.filter(Q(muted_until=None) | Q(muted_until__lte=timezone.now()))
    return rows[:COUNTED].count()


def history(alert: Alert) -> QuerySet[AlertDeed]:
    """Who did what, the latest first."""
    return AlertDeed.objects.filter(alert=alert).order_by("-pk")


def alarms() -> Alarms:
    """What is wrong with exploring, as the courier last saw it: no page reads the trials for that."""
    rules = (Happening.FAILING, Happening.DISTURBED)
    rows = Alert.objects.filter(rule__in=rules, gone_at=None, ended_at=None)
    rows = rows.exclude(state=AlertState.RESOLVED).order_by("pk")
    found = {rule: [row for row in rows if row.rule == rule] for rule in rules}
    return Alarms(
        tuple(_failing(row) for row in found[Happening.FAILING]),
        tuple(_disturbed(row) for row in found[Happening.DISTURBED]),
    )


def _failing(row: Alert) -> FailingRoute:
    facts = row.facts
    target = int(row.cause.split(":")[1])
    return FailingRoute(
        target,
        facts["capability"],
        facts["route"],
        facts["trials"],
        facts["operators"],
        datetime.fromisoformat(facts["since"]),
        facts["status"],
        facts["reason"],
    )


def _disturbed(row: Alert) -> DisturbedTarget:
    facts = row.facts
    target = int(row.cause.split(":")[1])
    return DisturbedTarget(target, facts["capability"], facts["trials"], facts["noisy"], facts["workers"])
