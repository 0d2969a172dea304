"""The months that PostgreSQL's table of usage consists of; elsewhere it is one table, and this does nothing.

A month's part has its name, ``catalog_usage_2026_11``. What lies in no month that has one (a clock that is
wrong, a database that was filled by hand) is in ``catalog_usage_other``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import OperationalError, connection, transaction

from catalog.models import Usage

logger = logging.getLogger(__name__)

AHEAD = 3
"""This month and the next ones have a part before anything is served in them."""
_PATIENCE = "2s"
"""For whoever uses the table just then; else the next round tries again, and nobody waited longer."""

TABLE = Usage._meta.db_table
OTHER = f"{TABLE}_other"
_NAME = re.compile(rf"{TABLE}_(\d{{4}})_(\d{{2}})")


def make_ahead(now: datetime) -> None:
    """Give this month and the next two a part each, where they have none."""
    if connection.vendor != "postgresql":
        return
    there = set(_parts())
    for number in range(AHEAD):
        month = month_after(now, number)
        if part_of(month) not in there:
            with _briefly(f"made a part for {month:%Y-%m}"):
                _make(month)


def drop_one(before: datetime) -> str:
    """Drop the oldest part that ends before that; gives its name, "" where none was or it was in use."""
    if connection.vendor != "postgresql":
        return ""
    closed = sorted(name for name in _parts() if _end_of(name) <= before)
    if not closed:
        return ""
    with _briefly(f"dropped {closed[0]}") as done, connection.cursor() as cursor:
        cursor.execute(f'ALTER TABLE "{TABLE}" DETACH PARTITION "{closed[0]}"')
        cursor.execute(f'DROP TABLE "{closed[0]}"')
        done.append(closed[0])
    return "".join(done)


def part_of(month: datetime) -> str:
    """The name of a month's part."""
    return f"{TABLE}_{month:%Y_%m}"


def month_after(now: datetime, months: int) -> datetime:
    """The first moment (UTC) of the month so many after that of ``now``; before it where negative."""
    now = now.astimezone(UTC)
    number = now.year * 12 + now.month - 1 + months
    return datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _parts() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = %s::regclass",
            [TABLE],
        )
        yield from (name for (name,) in cursor.fetchall() if _NAME.fullmatch(name))


def _end_of(part: str) -> datetime:
    found = _NAME.fullmatch(part)
    assert found is not None
    return month_after(datetime(int(found[1]), int(found[2]), 1, tzinfo=UTC), 1)


def _make(month: datetime) -> None:
    """Rows of it that lie among the others move there first: a part may not begin where rows stand."""
    part, end = part_of(month), month_after(month, 1)
    with connection.cursor() as cursor:
        cursor.execute(f'LOCK TABLE "{OTHER}" IN ACCESS EXCLUSIVE MODE')
        cursor.execute(f'CREATE TABLE "{part}" (LIKE "{TABLE}" INCLUDING DEFAULTS)')
        cursor.execute(
            f'WITH moved AS (DELETE FROM "{OTHER}" WHERE served_at >= %s AND served_at < %s RETURNING *) '
            f'INSERT INTO "{part}" SELECT * FROM moved',
            [month, end],
        )
        bounds = f"FROM ('{month.isoformat()}') TO ('{end.isoformat()}')"
        cursor.execute(f'ALTER TABLE "{TABLE}" ATTACH PARTITION "{part}" FOR VALUES {bounds}')


@contextmanager
def _briefly(what: str) -> Iterator[list[str]]:
    """A transaction that gives way instead of holding up everybody behind it; takes what was done."""
    done: list[str] = []
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # no table is altered before its checks
            yield done
    except OperationalError as error:  # LockNotAvailable is one
        done.clear()
        logger.info("usage: not %s now (%s); trying again", what, error)
    else:
        logger.info("usage: %s", what)
