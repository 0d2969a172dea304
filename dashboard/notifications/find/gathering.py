"""The courier's chore that finds what is to be told: new rows, matched with subscriptions."""

from __future__ import annotations

import logging
import time

from django.db import transaction

from dashboard.notifications.find import cursors
from dashboard.notifications.find.matching import Matcher
from dashboard.notifications.find.notify import notify
from dashboard.notifications.find.sources import SOURCES, EventSource

logger = logging.getLogger(__name__)

BUDGET_S = 5.0
"""What one round may take; the rest waits for the next one, so that other chores have their turns."""


EVENTS_AT_A_TIME = 1000
"""Bounds what one statement names."""


def gather(budget_s: float = BUDGET_S) -> int:
    """Tell everybody what has happened since the last time; gives how many notifications are new.

    Each step is one transaction: events read, notifications written, the cursor moved. It may be killed
    anywhere, run twice at the same time, and be repeated. A source that fails leaves the others alone.
    """
    until = time.monotonic() + budget_s
    told = 0
    for source in SOURCES:
        try:
            told += _drain(source, until)
        except Exception:
            logger.exception("Notifications of %s could not be gathered.", source.name)
    return told


def _drain(source: EventSource, until: float) -> int:
    told, more = 0, True
    matcher = Matcher(source.happening)
    while more:
        with transaction.atomic():
            cursor = cursors.locked(source.name)
            events, more = source.read(cursor)
            for start in range(0, len(events), EVENTS_AT_A_TIME):
                told += notify(matcher.pairs(events[start : start + EVENTS_AT_A_TIME]))
            cursor.save()
        more = more and time.monotonic() < until
    return told
