"""The clock of retries and rotations, which tests can move. It is the database's: a courier or web process
with a wrong clock would delay deliveries."""

from __future__ import annotations

from datetime import datetime

from tuning.queue.clock import database_now


def now() -> datetime:
    return database_now()
