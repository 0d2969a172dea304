"""Millions of rows into an empty-ish database, by column, past Django's objects and past its indexes.

For invented data sets only: nobody else may use the database meanwhile. PostgreSQL takes the rows by
``COPY``, SQLite by ``executemany`` without a journal; indexes and foreign keys that are not part of a table
are taken away first and made again at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any

from django.core.management.color import no_style
from django.db import connection, transaction
from django.db import models as db

Columns = Mapping[str, Any]
"""Column name → one value for all rows, or a sequence with each row's. Texts hold no backslash, tab or line
break; moments are UTC texts ``2026-11-21 09:00:00``, which both databases read."""

_BLOCK = 20_000


def first_free(model: type[db.Model]) -> int:
    """The number that the next row of a table may have."""
    return int(model._default_manager.aggregate(last=db.Max("pk"))["last"] or 0) + 1


def insert(model: type[db.Model], columns: Columns, first: int | None = None) -> range:
    """Insert rows, numbered from ``first`` on (the first free number); gives their numbers. What is left out
    has the model's default."""
    columns = {**_defaults(model), **columns}
    varied = {name: value for name, value in columns.items() if _is_varied(value)}
    fixed = {name: value for name, value in columns.items() if name not in varied}
    count = len(next(iter(varied.values())))
    start = first_free(model) if first is None else first
    numbers = range(start, start + count)
    rows = zip(numbers, *(_plain(value) for value in varied.values()), strict=True)
    quote = connection.ops.quote_name
    names = ", ".join(quote(name) for name in ("id", *varied, *fixed))
    into = f"{quote(model._meta.db_table)} ({names})"
    (_copy if connection.vendor == "postgresql" else _execute_many)(into, len(varied) + 1, fixed, rows)
    return numbers


def _defaults(model: type[db.Model]) -> Columns:
    """Of columns that need a value and have one; the database's own defaults are left to it."""
    found = dict[str, Any]()
    for field in model._meta.concrete_fields:
        left = field.null or field.primary_key or field.db_default is not db.NOT_PROVIDED
        if not left and (value := field.get_default()) is not None:
            found[field.column] = json.dumps(value) if isinstance(value, dict | list) else value
    return found


def _is_varied(value: Any) -> bool:
    return hasattr(value, "tolist") or (isinstance(value, Sequence) and not isinstance(value, str))


def _plain(values: Any) -> Sequence[Any]:
    """Python's own numbers: drivers take no NumPy ones."""
    return values.tolist() if hasattr(values, "tolist") else values


def _copy(into: str, varied: int, fixed: Columns, rows: Iterator[tuple[Any, ...]]) -> None:
    said = [_copied(value).replace("%", "%%") for value in fixed.values()]
    line = "\t".join(["%s"] * varied + said) + "\n"
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN") as copy:
        while block := list(islice(rows, _BLOCK)):
            copy.write("".join([line % row for row in block]).replace("\tNone", "\t\\N"))


def _copied(value: Any) -> str:
    if value is None:
        return "\\N"
    return str(value).replace("\\", "\\\\")


def _execute_many(into: str, varied: int, fixed: Columns, rows: Iterator[tuple[Any, ...]]) -> None:
    said = ["NULL" if value is None else _literal(value) for value in fixed.values()]
    places = ", ".join(["?"] * varied + said)
    connection.ensure_connection()
    # Django's cursor would look at every row's values; the driver's own takes them as they come.
    cursor = connection.connection.cursor()
    cursor.executemany(f"INSERT INTO {into} VALUES ({places})", rows)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    return "'" + str(value).replace("'", "''") + "'"


def number_on(tables: Sequence[type[db.Model]]) -> None:
    """Let the database's own numbering go on after the numbers given here."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(tables)):
            cursor.execute(statement)


@contextmanager
def loading(tables: Sequence[type[db.Model]]) -> Iterator[None]:
    """Within: no index, no foreign key, and on SQLite one transaction without a journal. After a failure the
    database is not to be used: on SQLite nothing can be taken back."""
    with nullcontext() if connection.vendor == "postgresql" else _without_journal(), transaction.atomic():
        again = _take_away(tables)
        yield
        with connection.cursor() as cursor:
            for statement in again:
                cursor.execute(statement)
        number_on(tables)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


@contextmanager
def _without_journal() -> Iterator[None]:
    """SQLite's settings for a load; PRAGMAs do nothing within a transaction."""
    with connection.cursor() as cursor:
        for pragma in (
            "wal_checkpoint(TRUNCATE)", "journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF",
            "cache_size=-1000000", "temp_store=MEMORY", "threads=2", "locking_mode=EXCLUSIVE",
        ):  # fmt: skip
            cursor.execute(f"PRAGMA {pragma}")
            cursor.fetchall()
        yield
        for pragma in ("locking_mode=NORMAL", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
            cursor.fetchall()


def _take_away(tables: Sequence[type[db.Model]]) -> list[str]:
    """Drop what can be dropped; gives the statements that make it again."""
    names = [model._meta.db_table for model in tables]
    return _bare_postgres(names) if connection.vendor == "postgresql" else _bare_sqlite(names)


def _bare_sqlite(names: Sequence[str]) -> list[str]:
    with connection.cursor() as cursor:
        places = ", ".join(["%s"] * len(names))
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            f" AND tbl_name IN ({places})",
            list(names),
        )
        found = cursor.fetchall()
        for name, _ in found:
            cursor.execute(f'DROP INDEX "{name}"')
    return [statement for _, statement in found]


def _bare_postgres(names: Sequence[str]) -> list[str]:
    again: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL maintenance_work_mem = '512MB'")
        cursor.execute(
            "SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid), contype"
            " FROM pg_constraint WHERE contype IN ('f', 'u') AND conrelid::regclass::text = ANY(%s)"
            " ORDER BY contype",  # foreign keys first: they may point at what a unique one keeps
            [list(names)],
        )
        for table, name, definition, kind in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            statement = f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"
            again.insert(0 if kind == "u" else len(again), statement)
        cursor.execute(
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE NOT indisprimary AND indrelid::regclass::text = ANY(%s)",
            [list(names)],
        )
        for name, definition in cursor.fetchall():
            cursor.execute(f"DROP INDEX {name}")
            # Of a table of parts it names that table ONLY, and would leave its parts without.
            again.insert(0, definition.replace(" ON ONLY ", " ON "))
    return again
