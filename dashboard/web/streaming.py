"""Exports too long to be made whole: sent row by row, as CSV or JSON."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from dashboard.web.tables import Table, asked_export, cell_text, no_export, sent_as


class _Line:
    """A file for :mod:`csv` that gives back what is written."""

    def write(self, text: str) -> str:
        return text


def streamed(
    request: HttpRequest, table: Table, rows: Callable[[], Iterable[Any]]
) -> HttpResponseBase | None:
    """The export that the URL asks for (``?export=csv``), of all ``rows``; None where it asks for none."""
    form, asked = asked_export(request, table)
    if not form:
        return None
    if asked is None:
        return no_export(table)
    lines = _csv(table, rows()) if form == "csv" else _json(table, rows())
    return StreamingHttpResponse(lines, **sent_as(table, form))


def _csv(table: Table, rows: Iterable[Any]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(table.keys)
    for row in rows:
        yield writer.writerow(map(cell_text, table.exported_row(row).values()))


def _json(table: Table, rows: Iterable[Any]) -> Iterator[str]:
    encode = DjangoJSONEncoder().encode
    yield f'{{"table": {encode(table.name)}, "title": {encode(table.title)}, "rows": ['
    for number, row in enumerate(rows):
        yield ("," if number else "") + encode(table.exported_row(row))
    yield "]}"
