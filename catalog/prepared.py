"""Statements that PostgreSQL plans once for a connection: planning takes longer than reading a row by key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db import NotSupportedError, connection
from django.db.backends.utils import CursorWrapper


def fetch_planned(sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows of one statement, of which there are few: each has a plan of its own in each connection.
    Within a transaction it is planned each time: after a migration changes its columns, the first try is
    refused, and a refusal would end the transaction."""
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        try:
            with _planning_cursor() as cursor:
                return _fetched(cursor, sql, parameters)
        except NotSupportedError:  # "cached plan must not change result type"
            pass
    with connection.cursor() as cursor:
        return _fetched(cursor, sql, parameters)


def _fetched(cursor: CursorWrapper, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    cursor.execute(sql, parameters)
    return cursor.fetchall()


def _planning_cursor() -> CursorWrapper:
    """Django's own cursors put parameters into the text, which is another one each time."""
    connection.ensure_connection()
    database: Any = connection.connection
    if database.prepare_threshold is None:  # Django's: never, even where a cursor asks for it
        database.prepare_threshold = 0
    cursor = _cursor_class()(database)
    made = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    return made(cursor)


@cache
def _cursor_class() -> Any:
    from psycopg import Cursor  # not where SQLite is the database

    class PlanningCursor(Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
            return super().execute(query, params, prepare=True, **more)

    return PlanningCursor
