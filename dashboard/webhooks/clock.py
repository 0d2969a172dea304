"""The clock of retries and rotations, in a place where tests can move it: the database's, since a courier or
a web process whose own is wrong would leave deliveries that are due in a day."""

from __future__ import annotations

from datetime import datetime

from tuning.queue.clock import database_now


def now() -> datetime:
    return database_now()
