"""A catalogue made once serves the tests that follow within a minute, in all processes of a run: its rows are
put in again."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.db import connection, transaction
from django.utils import timezone

from tests.databases import MIGRATED

T = TypeVar("T")
Row = tuple[Any, ...]

FRESH = timedelta(minutes=1)
"""What is said to be seconds old shall not be minutes old."""
UNREAD = {*MIGRATED, "django_session"}
"""Making a catalogue reads no session; what triggers write to recalls, they write once more."""


@dataclass(frozen=True)
class Kept:
    rows: dict[str, list[Row]]
    what: bytes  # pickled: each test has its own


_kept: dict[Hashable, tuple[datetime, Kept]] = {}


def kept(name: Hashable, make: Callable[[], T], aged: Callable[[timedelta], object]) -> T:
    """What ``make`` gives, its rows being in the database; made anew where what lay there before differs, and
    in another hour. ``aged`` is told the age of rows that were put in."""
    if connection.vendor != "sqlite":
        return make()
    with transaction.atomic():  # of a test that commits: once, and not for each row
        return _kept_or_made(name, make, aged)


def _kept_or_made(name: Hashable, make: Callable[[], T], aged: Callable[[timedelta], object]) -> T:
    before, now = _rows(), timezone.now()
    key = (name, now.replace(minute=0, second=0, microsecond=0), _keys(before))
    for stale in [one for one, (at, _) in _kept.items() if now - at > FRESH]:
        del _kept[stale]
    if key not in _kept and (others := _of_another_process(key, now)):
        _kept[key] = others
    if key in _kept:
        made_at, found = _kept[key]
        _put_in(found.rows)
        aged(now - made_at)
        return pickle.loads(found.what)
    what = make()
    after = _rows()
    if all(after.get(table, [])[: len(rows)] == rows for table, rows in before.items()):
        new = {table: rows[len(before.get(table, [])) :] for table, rows in after.items()}
        _kept[key] = now, Kept(new, pickle.dumps(what))
        _tell(key, _kept[key])
    return what


def _of_another_process(key: Hashable, now: datetime) -> tuple[datetime, Kept] | None:
    place = _place(key)
    if place is None or not place.exists():
        return None
    found: tuple[datetime, Kept] = pickle.loads(place.read_bytes())
    return found if now - found[0] <= FRESH else None


def _tell(key: Hashable, found: tuple[datetime, Kept]) -> None:
    if (place := _place(key)) is None:
        return
    place.parent.mkdir(exist_ok=True)
    new = place.with_suffix(f".{os.getpid()}")
    new.write_bytes(pickle.dumps(found))
    new.replace(place)


def _place(key: Hashable) -> Path | None:
    """In the folder that a test run's processes have in common; screenshots have none."""
    if (settings := sys.modules.get("dashboard.settings_test")) is None:
        return None
    return Path(settings._home.name) / "catalogues" / hashlib.sha256(repr(key).encode()).hexdigest()


def _rows() -> dict[str, list[Row]]:
    """All rows of tables that have some, oldest first."""
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    tables = sorted(set(names) - UNREAD)
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"SELECT '{one}' WHERE EXISTS (SELECT 1 FROM {one})" for one in tables)
        )
        filled = [name for (name,) in cursor.fetchall()]
        rows = {}
        for name in filled:
            cursor.execute(f"SELECT * FROM {name} ORDER BY rowid")
            rows[name] = cursor.fetchall()
    return rows


def _keys(rows: dict[str, list[Row]]) -> Hashable:
    """Which rows there are, by their first columns: a user's password, say, is salted anew in each test."""
    return tuple((table, tuple(row[0] for row in found)) for table, found in rows.items())


def _put_in(rows: dict[str, list[Row]]) -> None:
    with connection.cursor() as cursor:
        for table, new in rows.items():
            if new:
                cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(new[0]))})", new)
