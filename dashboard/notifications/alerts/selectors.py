"""Alerts as people see them: the host's for the host's people, an organisation's for its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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


@dataclass(frozen=True)
class OpenAlerts:
    """How many fire that nobody has taken up, and how many somebody has; together up to a hundred."""

    firing: int
    taken: int


def open_alerts(viewer: Viewer) -> OpenAlerts:
    """One short statement on every page. What is muted, or only good to know (a new cause of failure:
    candidates fail every day), waits for nobody."""
    states = (AlertState.FIRING, AlertState.ACKNOWLEDGED)
    rows = Alert.objects.filter(visible(viewer), state__in=states).exclude(severity=Severity.INFO)
    rows = rows.filter(Q(muted_until=None) | Q(muted_until__lte=timezone.now())).order_by("-state")
    counted = Counter(rows.values_list("state", flat=True)[:COUNTED])
    return OpenAlerts(counted[AlertState.FIRING], counted[AlertState.ACKNOWLEDGED])


def history(alert: Alert) -> QuerySet[AlertDeed]:
    """Who did what, the latest first."""
    return AlertDeed.objects.filter(alert=alert).order_by("-pk")


@dataclass(frozen=True)
class BeganFailing:
    """A route that failed on every trial for a while, or still does (``until`` is None)."""

    failing: FailingRoute
    path: str  # its alert's page
    until: datetime | None


@dataclass(frozen=True)
class SeenAlarms(Alarms):
    """What is wrong with exploring now, and which routes began to fail lately, the latest first."""

    began: Sequence[BeganFailing] = ()


def alarms(since: datetime) -> SeenAlarms:
    """As the courier last saw it: no page reads the trials for that. ``began``: since then."""
    rules = (Happening.FAILING, Happening.DISTURBED)
    fired = Q(gone_at=None, ended_at=None) & ~Q(state=AlertState.RESOLVED) | Q(fired_at__gte=since)
    rows = list(Alert.objects.filter(fired, rule__in=rules).order_by("pk"))
    holding = [row for row in rows if row.state != AlertState.RESOLVED and not (row.gone_at or row.ended_at)]
    began = {row.cause: row for row in rows if row.rule == Happening.FAILING and row.fired_at >= since}
    return SeenAlarms(
        tuple(_failing(row) for row in holding if row.rule == Happening.FAILING),
        tuple(_disturbed(row) for row in holding if row.rule == Happening.DISTURBED),
        tuple(
            BeganFailing(_failing(row), row.get_absolute_url(), row.ended_at or row.gone_at)
            for row in reversed(began.values())
        ),
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
