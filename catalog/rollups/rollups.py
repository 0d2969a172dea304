"""Rollups: what pages read instead of counting millions of rows. Recomputed, never added up.

One process at a time makes them. Killed anywhere it leaves rows that are whole, and marks that say what is
still to be made; the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import connection

from catalog.conf import conf
from catalog.file_lock import only_one
from catalog.models import STANDINGS, TRAFFIC, Rollup
from catalog.rollups import standings, traffic_rollups
from catalog.steps import step

STANDINGS_EVERY_S = 10.0
_LOCK = 0x0A7_1A5  # PostgreSQL's advisory locks are numbers
_WAIT_S = 60.0


def refresh_rollups() -> bool:
    """Make again what lookups and results have made stale, now; False where another process did not finish
    within a minute."""
    with _only_one(_WAIT_S) as alone:
        if alone:
            _refresh_traffic()
            _refresh_standings()
        return alone


def keep_rollups_fresh() -> None:
    """The courier's chore: what is stale, unless it was made so lately that it would cost too much."""
    with _only_one() as alone:
        if not alone:
            return
        with step("rolling up traffic"):
            if Rollup.is_due(TRAFFIC, 0.0):
                _refresh_traffic()
        with step("rolling up standings"):
            if Rollup.is_due(STANDINGS, STANDINGS_EVERY_S):
                _refresh_standings()


def rebuild_rollups() -> None:
    """Make everything afresh from the rows. Pages go on with the old ones meanwhile."""
    with _only_one(_WAIT_S) as alone:
        if not alone:
            raise TimeoutError("Another process makes the rollups; try again in a minute.")
        traffic_rollups.mark_everything()
        traffic_rollups.drop_what_has_no_source()
        _refresh_traffic(anyway=True)
        _refresh_standings(anyway=True)


def _refresh_traffic(anyway: bool = False) -> None:
    began = time.monotonic()
    if traffic_rollups.refresh() or anyway:
        Rollup.note(TRAFFIC, began, reuse=traffic_rollups.reuse())


def _refresh_standings(anyway: bool = False) -> None:
    began = time.monotonic()
    seen = standings.fingerprint()
    if anyway or Rollup.facts_of(STANDINGS).get("fingerprint") != seen:
        Rollup.note(STANDINGS, began, **standings.rebuild(), fingerprint=seen)


@contextmanager
def _only_one(wait_s: float = 0.0) -> Iterator[bool]:
    """Whether this process makes the rollups; the hold ends with the block, or with the process."""
    until = time.monotonic() + wait_s
    while True:
        with _taken() as alone:
            if alone or time.monotonic() >= until:
                yield alone
                return
        time.sleep(0.1)


def _taken() -> AbstractContextManager[bool]:
    if connection.vendor == "postgresql":
        return _advisory_lock()
    return only_one(conf().home / "rollups.lock")  # SQLite: every process is on this machine


@contextmanager
def _advisory_lock() -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        alone = bool(cursor.fetchone()[0])
    try:
        yield alone
    finally:
        if alone and connection.connection is not None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
