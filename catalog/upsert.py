"""Insert-or-add in one statement, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connection, models

_BATCH_PARAMETERS = 900
"""Old SQLite builds take 999 parameters in a statement."""


def add_up(
    model: type[models.Model],
    keys: Sequence[str],
    summed: Sequence[str],
    counted: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]],
) -> set[tuple[Any, ...]]:
    """Add counts to rows, made if needed; returns which rows these are. ``counted``: values of the columns
    ``keys``, and the counts. Columns in ``summed`` are added up; any other (a moment) takes the last
    value."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key, counts in counted:
        row = rows.setdefault(key, dict.fromkeys(summed, 0))
        for name, value in counts.items():
            row[name] = row[name] + value if name in summed else value
    names = next(iter(rows.values()), {})
    insert_or(
        model,
        [{**dict(zip(keys, key, strict=True)), **rows[key]} for key in sorted(rows)],
        unique=keys,
        updates={name: f"old.{name} + new.{name}" if name in summed else f"new.{name}" for name in names},
    )
    return set(rows)


def insert_or(
    model: type[models.Model],
    rows: Sequence[Mapping[str, Any]],
    unique: Sequence[str],
    updates: Mapping[str, str],
) -> None:
    """``INSERT … ON CONFLICT (unique) DO UPDATE``: safe when many ask for the same row at once.

    ``rows`` map field names (all rows the same ones) to values, foreign keys by ``…_id``. ``updates`` maps a
    column to an SQL expression over ``old`` (the row there is) and ``new`` (the row that was given); it is
    written in the code, never by a caller. Rows must differ in ``unique``, and must be sorted by it where two
    transactions could meet on several rows.
    """
    if not rows:
        return
    meta, quote = model._meta, connection.ops.quote_name
    names = list(rows[0])
    fields: list[Any] = [meta.get_field(name.removesuffix("_id")) for name in names]
    columns = ", ".join(quote(field.column) for field in fields)
    assignments = ", ".join(
        f"{quote(column)} = {expression.replace('new.', 'excluded.')}"
        for column, expression in updates.items()
    )
    one = f"({', '.join(['%s'] * len(names))})"
    step = max(1, _BATCH_PARAMETERS // len(names))
    with connection.cursor() as cursor:
        for start in range(0, len(rows), step):
            batch = rows[start : start + step]
            sql = (
                f"INSERT INTO {quote(meta.db_table)} AS old ({columns}) "
                f"VALUES {', '.join([one] * len(batch))} "
                f"ON CONFLICT ({', '.join(quote(column) for column in unique)}) DO UPDATE SET {assignments}"
            )
            parameters = [
                field.get_db_prep_save(row[name], connection)
                for row in batch
                for name, field in zip(names, fields, strict=True)
            ]
            cursor.execute(sql, parameters)
