"""Tables as data: what stands under every chart, and what is exported as CSV or JSON.

A page makes its :class:`Table` objects from selectors, gives them to ``_table.html``, and begins with
``if (answer := exported(request, *tables)) is not None: return answer``: ``?export=csv&table=<name>`` then
answers with all of a table's rows as they are (units in the column's key, no rounding).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse

Kind = Literal[
    "text",
    "code",
    "when",
    "count",
    "quantity",
    "us",
    "seconds",
    "ratio",
    "percent",
    "bytes",
    "money",
    "badge",
    "method",
]
NUMBERS = frozenset({"count", "quantity", "us", "seconds", "ratio", "percent", "bytes", "money"})


@dataclass(frozen=True)
class Column:
    """One column. ``key`` names the value in a row, with its unit (``median_us``).

    ``figure`` is the name of a definition (``catalog.figures``); ``link`` the row's key that has the address
    a cell leads to; ``sort`` what ``?sort=`` takes where the page can sort by it. Money is in millionths of
    the currency (``currency`` in the row).
    """

    key: str
    title: str
    kind: Kind = "text"
    figure: str = ""
    link: str = ""
    sort: str = ""

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS


@dataclass(frozen=True)
class Table:
    """Rows with their columns. ``every`` gives all rows for an export where the page shows only some."""

    name: str  # in URLs and file names
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    empty: str = "Nothing here yet."
    every: Iterable[Mapping[str, Any]] | None = field(default=None, repr=False)

    @property
    def keys(self) -> list[str]:
        return [column.key for column in self.columns]

    def exported_rows(self) -> list[dict[str, Any]]:
        return [
            {key: row.get(key) for key in self.keys}
            for row in (self.rows if self.every is None else self.every)
        ]

    def as_csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(self.keys)
        writer.writerows([[cell_text(row[key]) for key in self.keys] for row in self.exported_rows()])
        return out.getvalue()


def asked_export(request: HttpRequest, *tables: Table) -> tuple[str, Table | None]:
    """The form (csv, json) and the table that the URL asks for: "" where it asks for none. No table: there is
    none of that name, or the form is unknown."""
    form = request.GET.get("export", "")
    name = request.GET.get("table", tables[0].name)
    known = (one for one in tables if one.name == name and form in ("csv", "json"))
    return form, next(known, None)


def no_export(*tables: Table) -> HttpResponse:
    """404, with what there is."""
    names = ", ".join(one.name for one in tables)
    text = f"Export is csv or json of one of: {names}."
    return HttpResponse(text, status=404, content_type="text/plain")


def sent_as(table: Table, form: str) -> dict[str, Any]:
    """How Django's responses are made a file, which browsers save under the table's name."""
    return {
        "content_type": "text/csv; charset=utf-8" if form == "csv" else "application/json",
        "headers": {"Content-Disposition": f'attachment; filename="opatlas-{table.name}.{form}"'},
    }


def exported(request: HttpRequest, *tables: Table) -> HttpResponse | None:
    """The export that the URL asks for; None where it asks for none. An unknown table or form is a 404."""
    form, table = asked_export(request, *tables)
    if not form:
        return None
    if table is None:
        return no_export(*tables)
    if form == "csv":
        return HttpResponse(table.as_csv(), **sent_as(table, form))
    whole = {"table": table.name, "title": table.title, "rows": table.exported_rows()}
    return JsonResponse(whole, **sent_as(table, form))


def cell_text(value: Any) -> Any:
    """A spreadsheet takes a text that begins like a formula for one: a quote in front keeps it a text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
