"""Where events are found: rows that others write for their own reasons. Each source moves its cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Max, Min, QuerySet

from catalog.models import Best, BestChange, Implementation, Usage
from catalog.steps import each
from dashboard.notifications.alerts import telling
from dashboard.notifications.events import Event, stamp
from dashboard.notifications.find import cursors
from dashboard.notifications.models import AlertDeed, Cursor, Deed, Happening, Subscription
from dashboard.notifications.write import bests
from tuning.models import Exploration
from tuning.queue.clock import database_now

Row = TypeVar("Row")

CHUNK = 2000
"""Rows of one transaction."""

Step = tuple[list[Event], bool]
"""Events of one step, and whether there may be more at once."""


@dataclass(frozen=True)
class EventSource:
    """``read(cursor)`` gives the next events and moves the cursor (unsaved). ``happening``: of all of them;
    None: they are of alerts, and each says which."""

    name: str
    happening: Happening | None
    read: Callable[[Cursor], Step]


def best_changes(cursor: Cursor) -> Step:
    """A winner changed: numbered rows, only ever added to."""
    if cursor.position < 0:
        cursor.position = _beginning(BestChange.objects.all(), "created_at", Subscription.objects.all())
    rows = cursors.take(cursor, BestChange.objects.select_related("before", "after").defer(*_HEAVY), CHUNK)
    known = bests.ratios({pk for row in rows for pk in (row.before_id, row.after_id) if pk})
    against = bests.defaults({row.after_id for row in rows if row.after_id})
    return _events(rows, lambda row: _change(row, known, against)), len(rows) >= CHUNK


_HEAVY = tuple(
    f"{side}__{name}" for side in ("before", "after") for name in ("source", "schedule", "candidate")
)


def _events(rows: Iterable[Row], event_of: Callable[[Row], Event]) -> list[Event]:
    """Without those of rows that cannot be told of: the cursor goes past them."""
    return each("making an event of a row", rows, event_of, aside=lambda row, reason: None)


def _change(row: BestChange, known: dict[int, float], against: dict[int, str]) -> Event:
    ratio, before = known.get(row.after_id or 0), known.get(row.before_id or 0)
    facts = {
        "route": row.after.route if row.after else "",
        "before": row.before.route if row.before else "",
        "ratio": ratio,
        "default": against.get(row.after_id or 0, ""),
        "gain": ratio / before if ratio and before else None,
    }
    key, method = f"change:{row.pk}", row.after.method if row.after else ""
    return Event(Happening.BEST_CHANGED, key, row.created_at, *_place(row), method=method, facts=facts)


def _place(row: Any) -> bests.PlaceKey:
    return row.operator_id, row.target_id, row.setting_id, row.scope


def hits(cursor: Cursor) -> Step:
    """Hits served: numbered rows, very many. Nobody wants to know: the cursor moves to their end."""
    if cursor.position < 0:
        wanting = Subscription.objects.filter(on_hit=True)
        cursor.position = _beginning(Usage.objects.all(), "served_at", wanting)
    # The end first: whoever subscribes after this statement is told of what comes after it.
    end = Usage.objects.aggregate(end=Max("pk"))["end"] or 0
    if not Subscription.objects.filter(on_hit=True).exists():
        cursor.position, cursor.gaps = max(end, cursor.position), []
        return [], False
    rows = cursors.take(cursor, Usage.objects.all(), CHUNK)
    return _grouped(rows), len(rows) >= CHUNK


def _grouped(rows: Sequence[Usage]) -> list[Event]:
    """One event for each (organisation, job, operator), with how many hits it stands for."""
    groups: dict[tuple[int, int | None, int], list[Usage]] = {}
    for row in rows:
        groups.setdefault((row.organisation_id, row.job_id, row.operator_id), []).append(row)
    last = {key: max(group, key=lambda row: row.served_at) for key, group in groups.items()}
    served = {row.implementation_id for row in last.values() if row.implementation_id}
    places, against = bests.places_of(served), bests.defaults(served)

    def event_of(key: tuple[int, int | None, int]) -> Event:
        organisation, job, operator = key
        row = last[key]
        place = places.get(row.implementation_id or 0)
        return Event(
            Happening.HIT,
            f"hit:{operator}:{job}" if job else f"hit:{operator}:org:{organisation}",
            row.served_at,
            operator,
            place[1] if place else None,
            place[2] if place else None,
            organisation_id=organisation,
            job_id=job,
            method=row.method,
            facts={
                "route": row.route,
                "ratio": row.default_us / row.median_us if row.median_us else None,
                "default": against.get(row.implementation_id or 0, ""),
            },
            count=len(groups[key]),
        )

    return _events(groups, event_of)


def first_results(cursor: Cursor) -> Step:
    """Explorations that have something to serve."""
    return _timed(cursor, Exploration.objects.all(), "first_result_at", _first_results)


def ended(cursor: Cursor) -> Step:
    """Explorations that have ended, however."""
    return _timed(cursor, Exploration.objects.all(), "finished_at", _ended)


def revoked(cursor: Cursor) -> Step:
    """Implementations that somebody withdrew."""
    return _timed(cursor, _implementations(), "revoked_at", lambda rows: _withdrawn(rows, "revoked"))


def failed(cursor: Cursor) -> Step:
    """Implementations that were found wrong after they had been published."""
    return _timed(cursor, _implementations(), "failed_at", lambda rows: _withdrawn(rows, "failed"))


def _implementations() -> QuerySet[Implementation]:
    return Implementation.objects.defer("source", "schedule", "candidate")


def _timed(
    cursor: Cursor, rows: QuerySet[Any], column: str, events_of: Callable[[Sequence[Any]], list[Event]]
) -> Step:
    """Rows by when something happened to them. A part is read again each time, for what was committed late:
    the events' keys tell what is known already."""
    if cursor.at is None:
        oldest = Subscription.objects.aggregate(oldest=Min("created_at"))["oldest"]
        cursor.at = oldest or database_now()
    # All of them, however many: an end within the window would hide what lies behind it for ever.
    found = list(rows.filter(**{f"{column}__gt": cursor.at - cursors.WINDOW}).order_by(column, "pk"))
    if found:
        cursor.at = max(cursor.at, getattr(found[-1], column))
    return events_of(found), False


def _first_results(rows: Sequence[Exploration]) -> list[Event]:
    now = bests.winners({row.operator_id for row in rows})

    def event_of(row: Exploration) -> Event:
        assert row.first_result_at is not None
        after_s = (row.first_result_at - row.asked_at).total_seconds()
        return _explored(row, row.first_result_at, "first", now, {"after_s": round(after_s, 1)})

    return _events(rows, event_of)


def _ended(rows: Sequence[Exploration]) -> list[Event]:
    now = bests.winners({row.operator_id for row in rows})

    def event_of(row: Exploration) -> Event:
        assert row.finished_at is not None
        reason = "" if row.state == "done" else row.reason or row.error.strip().split("\n")[-1]
        return _explored(row, row.finished_at, "ended", now, {"state": row.state, "reason": reason[:200]})

    return _events(rows, event_of)


def _explored(
    row: Exploration, at: datetime, what: str, now: dict[bests.PlaceKey, Best], more: dict[str, Any]
) -> Event:
    best = now.get(_place(row))
    facts = {
        "exploration": row.pk,
        "route": best.route if best else "",
        **_over_default(best),
        **more,
    }
    key = f"{what}:{row.pk}:{stamp(at)}"
    return Event(Happening.EXPLORED, key, at, *_place(row), method=best.method if best else "", facts=facts)


def _over_default(best: Best | None) -> dict[str, Any]:
    """How fast what serves is, and beside which route that was timed."""
    if best is None:
        return {"ratio": None}
    return {"ratio": best.ratio_to_default, "default": best.measurement.default_route}


def _withdrawn(rows: Sequence[Implementation], how: str) -> list[Event]:
    now = bests.winners({row.operator_id for row in rows})

    def event_of(row: Implementation) -> Event:
        at = getattr(row, f"{how}_at")
        best = now.get(_place(row))
        facts = {
            "route": row.route,
            "failed": how == "failed",
            "reason": getattr(row, f"{how}_reason")[:200],
            "now": best.route if best else "",
            **_over_default(best),
        }
        key = f"{how}:{row.pk}:{stamp(at)}"
        return Event(Happening.WITHDRAWN, key, at, *_place(row), method=row.method, facts=facts)

    return _events(rows, event_of)


def alerts(cursor: Cursor) -> Step:
    """What happened to alerts: that they fired, and that they are over. Numbered rows, only ever added to."""
    if cursor.position < 0:
        cursor.position = _beginning(AlertDeed.objects.all(), "at", Subscription.objects.all())
    rows = cursors.take(cursor, AlertDeed.objects.select_related("alert"), CHUNK)
    return _events((row for row in rows if row.told and row.what in _TOLD), _alert), len(rows) >= CHUNK


_TOLD = (Deed.FIRED, Deed.RESOLVED)


def _alert(row: AlertDeed) -> Event:
    alert = row.alert
    return Event(
        Happening(alert.rule),
        telling.key_of(alert.pk, row.what),
        row.at,
        None,
        organisation_id=alert.organisation_id,
        facts=telling.facts_of(alert, row.what),
    )


def _beginning(rows: QuerySet[Any], column: str, wanting: QuerySet[Subscription]) -> int:
    """Where a source is read from at first: what is older than every subscription interests nobody."""
    oldest = wanting.aggregate(oldest=Min("created_at"))["oldest"]
    if oldest is not None:
        first = rows.filter(**{f"{column}__gte": oldest}).aggregate(first=Min("pk"))["first"]
        if first is not None:
            return int(first) - 1
    return int(rows.aggregate(end=Max("pk"))["end"] or 0)


SOURCES = (
    EventSource("best_changes", Happening.BEST_CHANGED, best_changes),
    EventSource("first_results", Happening.EXPLORED, first_results),
    EventSource("explorations_ended", Happening.EXPLORED, ended),
    EventSource("revoked", Happening.WITHDRAWN, revoked),
    EventSource("failed", Happening.WITHDRAWN, failed),
    EventSource("alerts", None, alerts),
    EventSource("hits", Happening.HIT, hits),
)
