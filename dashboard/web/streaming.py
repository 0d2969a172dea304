"""Exports too long to be made whole: sent row by row, as CSV or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from dashboard.web.tables import Table, asked_export, no_export, sent_as


def streamed(
    request: HttpRequest, table: Table, rows: Callable[[], Iterable[Any]]
) -> HttpResponseBase | None:
    """The export that the URL asks for (``?export=csv``), of all ``rows``; None where it asks for none."""
    form, asked = asked_export(request, table)
    if not form:
        return None
    if asked is None:
        return no_export(table)
    made = map(table.exported_row, rows())
    lines = table.csv_lines(made) if form == "csv" else _json(table, made)
    return StreamingHttpResponse(lines, **sent_as(table, form))


def _json(table: Table, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    encode = DjangoJSONEncoder().encode
    yield f'{{"table": {encode(table.name)}, "title": {encode(table.title)}, "rows": ['
    for number, row in enumerate(rows):
        yield ("," if number else "") + encode(row)
    yield "]}"
