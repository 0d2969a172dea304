"""One row by a unique column, for the hot path.

Django composes the same SQL anew for every query, which takes ten times as long as running it. Here it is
composed once for each model; the rows are ordinary model instances.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from django.db import connection, models

Row = TypeVar("Row", bound=models.Model)
_Converter = Callable[[Any, Any, Any], Any]


class _ModelColumns(NamedTuple):
    """The columns of one model in a result."""

    model: type[models.Model]
    attributes: list[str]
    converters: list[tuple[int, Any, list[_Converter]]]  # (place, column, what Django would apply)


def row_by(model: type[Row], column: str, value: Any, related: str = "") -> Row | None:
    """The row whose ``column`` is ``value``, or None; with the row that its foreign key ``related`` names."""
    sql, parts = _plan(model, column, related, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(sql, [value])
        found = cursor.fetchone()
    if found is None:
        return None
    row: Any = _instance(parts[0], found)
    if related:
        setattr(row, related, _instance(parts[1], found[len(parts[0].attributes) :]))
    return row  # type: ignore[no-any-return]


@cache
def _plan(
    model: type[models.Model], column: str, related: str, vendor: str
) -> tuple[str, list[_ModelColumns]]:
    """The statement and how to read its rows; ``vendor`` keeps two databases' plans apart."""
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    parts, join = [_part(model)], ""
    if related:
        key: Any = model._meta.get_field(related)
        other = quote(key.related_model._meta.db_table)
        join = f" JOIN {other} ON {other}.{quote('id')} = {table}.{quote(key.column)}"
        parts.append(_part(key.related_model))
    columns = ", ".join(
        f"{quote(part.model._meta.db_table)}.{quote(str(field.column))}"
        for part in parts
        for field in part.model._meta.concrete_fields
    )
    wanted: Any = model._meta.get_field(column)
    return f"SELECT {columns} FROM {table}{join} WHERE {table}.{quote(wanted.column)} = %s", parts


def _part(model: type[models.Model]) -> _ModelColumns:
    converters = []
    for place, field in enumerate(model._meta.concrete_fields):
        column: Any = field.cached_col
        apply = connection.ops.get_db_converters(column) + column.get_db_converters(connection)
        if apply:
            converters.append((place, column, apply))
    return _ModelColumns(model, [str(field.attname) for field in model._meta.concrete_fields], converters)


def _instance(part: _ModelColumns, values: Any) -> models.Model:
    values = list(values[: len(part.attributes)])
    for place, column, apply in part.converters:
        for converter in apply:
            values[place] = converter(values[place], column, connection)
    return part.model.from_db(connection.alias, part.attributes, values)
