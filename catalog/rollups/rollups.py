"""Rollups: what pages read instead of counting millions of rows. Recomputed, never added up.

One process at a time makes them. Killed anywhere it leaves rows that are whole, and marks that say what is
still to be made; the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from catalog import models
from catalog.conf import conf
from catalog.file_lock import only_one
from catalog.rollups import standings, traffic_rollups

_TRAFFIC, _STANDINGS = "traffic", "standings"
_SHARE_OF_TIME = 20  # of the service's time at most a twentieth goes into either rollup
_STANDINGS_EVERY_S = 10.0
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
        if _is_due(_TRAFFIC, 0.0):
            _refresh_traffic()
        if _is_due(_STANDINGS, _STANDINGS_EVERY_S):
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
        _note(_TRAFFIC, began, reuse=traffic_rollups.reuse())


def _refresh_standings(anyway: bool = False) -> None:
    began = time.monotonic()
    known = models.Rollup.objects.filter(name=_STANDINGS).first()
    seen = standings.fingerprint()
    if anyway or known is None or known.facts.get("fingerprint") != seen:
        facts = standings.rebuild()
        _note(_STANDINGS, began, **facts, fingerprint=seen)


def _note(name: str, began: float, **facts: object) -> None:
    made = {"made_at": timezone.now(), "took_s": time.monotonic() - began, "facts": facts}
    models.Rollup.objects.update_or_create(name=name, defaults=made)


def _is_due(name: str, every_s: float) -> bool:
    row = models.Rollup.objects.filter(name=name).first()
    if row is None:
        return True
    return timezone.now() - row.made_at >= timedelta(seconds=max(every_s, _SHARE_OF_TIME * row.took_s))


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
