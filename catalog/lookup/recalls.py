"""What a process must no longer remember: rows that triggers write (:class:`catalog.models.Recall`), read
several times a second by the first request that finds the last look old.

A *look* has a number. Remembered data has the number of the last look before it was read. It is valid while
no later look has found anything about it. So a change committed while an answer is being remembered is not
missed: the next look finds it.

SQLite commits rows in the order of their ids. PostgreSQL may commit a lower id later, so looks go by
transactions: each reads all rows of transactions that had not ended at the look before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Max, Min

from catalog.models import Recall

FRESH_S = 0.25
"""An older look is followed by another one, for which others need not wait …"""

STALE_S = 0.4
"""… unless it is older than this. Outdated data is served for no longer than this and a look."""

MOST = 1000
"""Rows that one look reads; if there are more, everything is recalled."""

KEPT = 2 * MOST
_MOST_REMEMBERED = 100_000
_RETRY_S = 1.0
_AT_ONCE = 20_000

_SQLITE = "SELECT 0, id, kind, number, mark FROM catalog_recall WHERE id >= %s ORDER BY id LIMIT %s"
_POSTGRES = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, id, kind, number, mark "
    "FROM (SELECT 1) AS one LEFT JOIN catalog_recall ON xid >= %s OR id = %s LIMIT %s"
)
_NEWEST = "SELECT {}, id, kind, number, mark FROM catalog_recall ORDER BY id DESC LIMIT 1"
_XMIN = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


class _RecallRow(NamedTuple):
    xmin: int  # transactions below it had ended
    id: int
    kind: str
    number: int
    mark: int


class Recalls:
    """One process's recalls. Reading ``operators``, ``keys`` and ``everything`` needs no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self.forget()

    def forget(self) -> None:
        """As after a start: everything remembered before is invalid."""
        self.look = getattr(self, "look", 0) + 1
        self.everything = self.look
        """What was read before this look holds no more."""
        self.changed = self.look
        """The last look that found anything at all: what holds for it holds still."""
        self.operators: dict[int, int] = {}
        """Operator's id → the look that found its bests changed."""
        self.keys: dict[int, int] = {}
        self.served_until: Mapping[int, datetime] = {}
        """Target's id → until when a worker serves it, as :class:`catalog.models.Target` has it."""
        self.here: str | None = None
        """Key of the target whose worker was seen last; None: there never was one."""
        self._looked_at = self._failed_at = self._due_after = float("-inf")
        self._newest: _RecallRow | None = None
        self._told: frozenset[int] = frozenset()

    def current(self) -> int | None:
        """The number of a look that is fresh enough; None: the database does not answer."""
        age_s = self._clock() - self._looked_at
        if age_s < FRESH_S:
            return self.look
        if self._lock.acquire(blocking=age_s >= STALE_S):
            try:
                self._look_again()
            finally:
                self._lock.release()
        return self.look if self._clock() - self._looked_at < STALE_S else None

    def looked_at(self, look: int) -> float:
        """When that look was, for :meth:`are_fresh`; long ago, if there was another one since."""
        at = self._looked_at  # set after the look's number: it may be too old, and never too new
        return at if self.look == look else float("-inf")

    def are_fresh(self, looked_at: float) -> bool:
        """Whether a look of that time is fresh enough, for callers that do not look. False once when another
        one is due, so that this request goes where a look is made; others go on meanwhile."""
        age_s = self._clock() - looked_at
        if age_s < FRESH_S:
            return True
        if age_s >= STALE_S or self._due_after != looked_at:
            self._due_after = looked_at
            return False
        return True

    def _look_again(self) -> None:
        now = self._clock()
        if now - self._looked_at < FRESH_S or now - self._failed_at < _RETRY_S:
            return  # another thread has just looked, or has just found that nobody answers
        try:
            if not connection.in_atomic_block:  # as before a request of Django's
                connection.close_if_unusable_or_obsolete()
            rows, served = self._read(), _read_served()
        except (DatabaseError, InterfaceError):
            self._failed_at = self._clock()
            return
        self.served_until = {one.id: one.until for one in served}
        self.here = min(served, default=_NOBODY, key=_seen_last).key
        self._take(rows)
        self._looked_at = now

    def _read(self) -> list[_RecallRow]:
        postgres = connection.vendor == "postgresql"
        newest = self._newest
        with connection.cursor() as cursor:
            if newest is None:
                cursor.execute(_NEWEST.format(_XMIN if postgres else 0))
            elif postgres:
                cursor.execute(_POSTGRES, [newest.xmin, newest.id, MOST + 2])
            else:
                cursor.execute(_SQLITE, [newest.id, MOST + 2])
            return [_RecallRow(*row) for row in cursor.fetchall()]

    def _take(self, rows: list[_RecallRow]) -> None:
        before, look = self._newest, self.look + 1
        found = [row for row in rows if row.id is not None]
        # The row that was the newest must be there still: in another history (a restored backup) it is not.
        same = before is not None and any(row[1:] == before[1:] for row in found)
        new = [row for row in found if row.id not in self._told] if same else []
        if not same or len(rows) > MOST + 1 or any(row.kind == Recall.ALL for row in new):
            self._recall_everything(look)
        else:
            self.operators |= {row.number: look for row in new if row.kind == Recall.OPERATOR}
            self.keys |= {row.number: look for row in new if row.kind == Recall.KEY}
            self.changed = look if new else self.changed
            if len(self.operators) + len(self.keys) > _MOST_REMEMBERED:
                self._recall_everything(look)
        self._told = frozenset(row.id for row in found)
        self._newest = max(found, key=lambda row: row.id, default=None)
        self.look = look

    def _recall_everything(self, look: int) -> None:
        self.everything = self.changed = look
        self.operators, self.keys = {}, {}


class _Served(NamedTuple):
    id: int
    key: str | None
    until: datetime


_NOBODY = _Served(0, None, datetime.min.replace(tzinfo=UTC))


def _seen_last(one: _Served) -> tuple[float, int]:
    """Sorts as ``catalog.selectors.targets.target_here`` does."""
    return -one.until.timestamp(), one.id


def _read_served() -> list[_Served]:
    # By hand, since Django's query builder takes longer than the statement.
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, key, served_until FROM catalog_target WHERE served_until IS NOT NULL")
        # SQLite's times are UTC and do not say so.
        return [
            _Served(number, key, until if until.tzinfo else until.replace(tzinfo=UTC))
            for number, key, until in cursor.fetchall()
        ]


recalls = Recalls()


def forget_old_recalls() -> int:
    """The courier's chore, some at a time. A process whose last look is older than the deleted rows remembers
    nothing then."""
    ids = Recall.objects.aggregate(oldest=Min("pk"), newest=Max("pk"))
    if ids["newest"] is None:
        return 0
    last = min(ids["newest"] - KEPT, ids["oldest"] + _AT_ONCE)  # others write too
    return Recall.objects.filter(pk__lte=last).delete()[0]
