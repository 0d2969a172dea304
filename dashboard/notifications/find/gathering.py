"""The courier's chore that finds what is to be told: new rows, matched with subscriptions."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from django.db import transaction

from catalog.steps import PASSING, each, step
from dashboard.notifications.events import Event
from dashboard.notifications.find import cursors
from dashboard.notifications.find.matching import Matcher
from dashboard.notifications.find.notify import notify
from dashboard.notifications.find.sources import SOURCES, EventSource

logger = logging.getLogger(__name__)

BUDGET_S = 5.0
"""The time of one round; the rest waits for the next one, so that other chores get their turns."""


EVENTS_AT_A_TIME = 1000
"""The most in one statement."""


def gather(budget_s: float = BUDGET_S) -> int:
    """Tell everybody what has happened since the last time; returns how many notifications are new. Each step
    is one transaction: events read, notifications written, the cursor moved. It may be killed anywhere, run
    in parallel, and be repeated. A failing source does not stop the others."""
    until = time.monotonic() + budget_s
    told = 0
    for source in SOURCES:
        with step(f"gathering notifications of {source.name.replace('_', ' ')}"):
            told += _drain(source, until)
    return told


def _notify(matcher: Matcher, events: Sequence[Event]) -> int:
    """All together; if that fails, one by one, without those that cannot be written."""
    try:
        with transaction.atomic():
            return notify(matcher.pairs(events))
    except Exception as error:
        if isinstance(error, PASSING):
            raise
        logger.warning("Notifications could not be written together (%s): one by one.", error)

    def tell(event: Event) -> int:
        return notify(matcher.pairs([event]))

    return sum(each("telling of an event", events, tell, lambda event, reason: None, raises=PASSING))


def _drain(source: EventSource, until: float) -> int:
    told, more = 0, True
    matcher = Matcher(source.happening)
    while more:
        with transaction.atomic():
            cursor = cursors.locked(source.name)
            events, more = source.read(cursor)
            for start in range(0, len(events), EVENTS_AT_A_TIME):
                told += _notify(matcher, events[start : start + EVENTS_AT_A_TIME])
            cursor.save()
        more = more and time.monotonic() < until
    return told
