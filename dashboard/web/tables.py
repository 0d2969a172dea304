"""Tables as data: a column is declared once, and its page, its CSV and its JSON follow from that.

A page makes its :class:`Table` objects from selectors' rows, gives them to ``_table.html``, and begins with
``if (answer := exported(request, *tables)) is not None: return answer``: ``?export=csv&table=<name>`` then
answers with all of a table's rows as they are (units in the column's key, no rounding).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse

from catalog.default_names import default_name
from dashboard.web import wording
from dashboard.web.addresses import address

Number = Literal[
    "count", "quantity", "us", "seconds", "ratio", "speedup", "percent", "scientific", "bytes", "money"
]
Mark = Literal["text", "code", "name", "when", "badge", "method", "head", "actions", "tick"]
Kind = Number | Mark
FEW_COLUMNS = 4
"""As many as a telephone has the width for."""

_ROOM_PX: Mapping[str, int] = {
    "name": 285, "when": 90, "badge": 110, "method": 122, "code": 90, "head": 96, "money": 110,
    "speedup": 101, "us": 70, "actions": 84, "tick": 39,
}  # fmt: skip
_ROOM_OF_CLASS_PX = {
    "wide-text": 230,
    "reason": 220,
    "routes": 260,
    "progress-cell": 190,
    "wrap-wide": 150,
    "variant": 122,
}
"""What a column takes with its spaces beside it, as measured in a browser: by its kind, and by the class that
gives its cells a least width."""
_CUT_OFF_PX = 136
"""What a line takes that is cut off."""
ROOM_STEP_PX, LEAST_ROOM, MOST_ROOM = 40, 7, 30
"""Rooms are counted in steps, which components.css has a class for each."""

NUMBERS = frozenset(get_args(Number))
Of = Callable[[Any], Any]
"""What a row has for a column."""


@dataclass(frozen=True)
class Column:
    """One column: what a row has for it, and how that is shown. The one place that declares it.

    ``key`` names it in exports, with its unit (``median_us``). ``figure`` is the name of a definition
    (``catalog.figures``); ``sort`` what ``?sort=`` takes where the page can sort by it. Money is in
    millionths of the currency.
    """

    key: str
    title: str = ""
    kind: Kind = "text"
    value: Of | str = ""  # a function of the row or a path in it ("job.name"); "": the path is ``key``
    figure: str = ""
    link: Of | None = None  # where the cell leads to
    sort: str = ""
    beside: Of | str = ""
    """What its kind needs beside the value: a method's mark ("": the row's ``method``), money's currency
    ("": the row's ``currency``), the path of a speed-up's bounds up to ``_low`` and ``_high`` ("": none)."""
    say: str = "{}"  # what the page says around the value: "± {}"
    show: Of | None = None  # how the page says it, where its kind does not; "": there is nothing to say
    part: str = ""  # a template that shows the cell, from ``row``
    under: str = ""  # key of the column in whose cell it stands as a second line
    only: Literal["", "page", "export"] = ""
    css: str | Of = ""
    spare: bool = False  # no cell on a telephone where there is no value
    label: str | None = None  # before the value on a telephone; None: the title, where it is needed
    room_px: int = 0  # what its widest cell takes, where neither its kind nor its title says so

    @cached_property
    def reads(self) -> Of:
        """A row → the value in it: what is exported."""
        return reader(self.value or self.key)

    def of(self, row: Any) -> Any:
        return self.reads(row)

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS or (isinstance(self.css, str) and "number" in self.css.split())

    @property
    def needs_px(self) -> int:
        """How wide it is beside other columns, about: the widest of what stands in it and of its title, of
        which numbers break between words."""
        classes = self.css.split() if isinstance(self.css, str) else []
        inside = [_ROOM_PX.get(self.kind, 56 if self.is_number else 76)]
        inside += [_ROOM_OF_CLASS_PX[one] for one in classes if one in _ROOM_OF_CLASS_PX]
        hidden = self.kind in ("actions", "tick")
        words = self.title.split() if self.is_number else [self.title]
        title = 0 if hidden else max(map(len, words), default=0) * 6.5 + 20 + (14 if self.sort else 0)
        return self.room_px or round(max(*inside, title))

    def classes(self, row: Any) -> str:
        """Of a cell."""
        css = self._classes_of(self.css(row)) if callable(self.css) else self._own_classes
        return f"{css} spare".lstrip() if self.spare and self.of(row) in (None, "") else css

    @cached_property
    def _own_classes(self) -> str:
        return self._classes_of(str(self.css))

    def _classes_of(self, css: str) -> str:
        kind = "number" if self.kind in NUMBERS else "wide-text lead" if self.kind == "name" else ""
        return f"{kind} {css}".strip()

    def said_label(self, classes: str) -> str:
        """What a telephone shows before the value: nothing where the cell speaks for itself."""
        if self.label is not None:
            return self.label
        silent = self.kind in ("actions", "tick", "badge", "method") or {"lead", "spare"} & {*classes.split()}
        return "" if silent else self.title


def page(name: str, of: str = "pk") -> Of:
    """A link to the page of that name, with what the row has at the path ``of``."""
    number = reader(of)
    return lambda row: address(name, number(row))


def operator_column(key: str, kind: Kind = "text", of: str = "operator", sort: str = "") -> Column:
    """The operator that a row is about, found by the path ``of``; it leads to its page."""
    leads = page("operator", f"{of}.key")
    return Column(key, "Operator", kind, f"{of}.summary", link=leads, sort=sort, css="lead")


def default_time(of: str, value: Of | str = "", route: Of | str = "") -> tuple[Column, ...]:
    """What the default took, beside what it was timed in turns with; the export says which route it is.

    ``of``: the path to a row with ``default_us``; ``route``: what has its route, by default what is at
    ``of`` calls ``default_route``.
    """
    time, which = value or f"{of}.default_us", route or f"{of}.default_route"

    def show(row: Any) -> str:
        took, route = read(row, time), read(row, which)
        name = default_name(route) if route else "default"  # the long name would make its column the widest
        return "" if took is None else f"{name} {wording.duration_us(took)}"

    return (
        Column("default_us", "Default", "us", time, show=show, under="median_us"),
        Column("default_route", value=which, only="export"),
    )


def of_neighbours(under: str) -> Column:
    """Of a row's hits, those that were measured on another target: nothing where there are none."""
    key = "neighbour_hits"
    shown = "{} measured on a neighbour"
    return Column(key, show=lambda row: read(row, key) or None, under=under, say=shown)


def exports(*keys: str, of: str = "", **values: Of | str) -> tuple[Column, ...]:
    """Columns that no page shows; ``of``: the path to what has these values, "" for the row itself;
    ``values``: those that it calls otherwise."""
    named = {key: f"{of}.{key}" if of else key for key in keys} | values
    return tuple(Column(key, value=value, only="export") for key, value in named.items())


def read(row: Any, of: Of | str) -> Any:
    """What a function says of a row, or where a path in it leads: through attributes, entries and places
    ("leader.0"), None where there is nothing on the way."""
    return reader(of)(row)


def reader(of: Of | str) -> Of:
    """The same, to be asked of many rows."""
    return _by_path(of) if isinstance(of, str) else of


@lru_cache(maxsize=1024)
def _by_path(path: str) -> Of:
    steps = [int(name) if name.isdecimal() else name for name in path.split(".")]

    def found(row: Any) -> Any:
        for step in steps:
            if row is None:
                return None
            if isinstance(step, int):
                row = row[step]
            else:
                row = row.get(step) if isinstance(row, dict) else getattr(row, step)
        return row

    return found


@dataclass(frozen=True)
class Table:
    """Rows with their columns. ``every`` gives all rows for an export where the page shows only some."""

    name: str  # in URLs and file names
    title: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    empty: str = "Nothing here yet."
    every: Iterable[Any] | None = field(default=None, repr=False)
    css: str = ""
    box_css: str = ""
    row_css: Of | None = None
    row_id: Of | None = None

    @cached_property
    def shown(self) -> list[Column]:
        """Columns of the page."""
        return [column for column in self.columns if column.only != "export" and not column.under]

    @property
    def classes(self) -> str:
        """Of the table: one of many columns becomes a card a row where there is no width for them."""
        stacks = "" if "stacks" in self.css or len(self.shown) <= FEW_COLUMNS else "stacks"
        return f"{self.css} {stacks}".strip()

    @property
    def room(self) -> int:
        """Steps of width that all columns need beside each other: with less they move together, then each
        row becomes a card."""
        needs_px = sum(max(one.needs_px, self._lines_px(one)) for one in self.shown)
        return min(max(-(-needs_px // ROOM_STEP_PX) + 1, LEAST_ROOM), MOST_ROOM)

    def _lines_px(self, column: Column) -> int:
        """What the lines under a column's value take: they break between words, unless they are cut off."""
        return _CUT_OFF_PX if any(one.css == "clip" for one in self.lines.get(column.key, ())) else 0

    @cached_property
    def lines(self) -> dict[str, list[Column]]:
        """Columns that stand in another's cell, by that one's key."""
        found: dict[str, list[Column]] = {}
        for column in self.columns:
            if column.under and column.only != "export":
                found.setdefault(column.under, []).append(column)
        return found

    @cached_property
    def exported(self) -> list[Column]:
        return [column for column in self.columns if column.only != "page"]

    @property
    def keys(self) -> list[str]:
        return [column.key for column in self.exported]

    def exported_row(self, row: Any) -> dict[str, Any]:
        return {column.key: column.of(row) for column in self.exported}

    def exported_rows(self) -> list[dict[str, Any]]:
        return [self.exported_row(row) for row in (self.rows if self.every is None else self.every)]

    def as_csv(self) -> str:
        return "".join(self.csv_lines(self.exported_rows()))

    def csv_lines(self, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
        """A line for the keys, and one for each exported row."""
        write = csv.writer(_Line()).writerow
        yield write(self.keys)
        for row in rows:
            yield write(map(cell_text, row.values()))


class _Line:
    """A file for :mod:`csv` that gives back what is written."""

    def write(self, text: str) -> str:
        return text


def exported(request: HttpRequest, *tables: Table) -> HttpResponse | None:
    """The export that the URL asks for; None where it asks for none. An unknown table or form is a 404."""
    form, table = _asked(request, tables)
    if not form:
        return None
    if table is None:
        return _no_export(tables)
    if form == "csv":
        return HttpResponse(table.as_csv(), **_sent_as(table, form))
    whole = {"table": table.name, "title": table.title, "rows": table.exported_rows()}
    return JsonResponse(whole, **_sent_as(table, form))


def streamed(
    request: HttpRequest, table: Table, rows: Callable[[], Iterable[Any]]
) -> HttpResponseBase | None:
    """The same of all ``rows``, where they are too many to be made whole: sent row by row."""
    form, asked = _asked(request, [table])
    if not form:
        return None
    if asked is None:
        return _no_export([table])
    made = map(table.exported_row, rows())
    lines = table.csv_lines(made) if form == "csv" else _json_lines(table, made)
    return StreamingHttpResponse(lines, **_sent_as(table, form))


def _asked(request: HttpRequest, tables: Sequence[Table]) -> tuple[str, Table | None]:
    """The form (csv, json) and the table that the URL asks for: "" where it asks for none. No table: there is
    none of that name, or the form is unknown."""
    form = request.GET.get("export", "")
    name = request.GET.get("table", tables[0].name)
    known = (one for one in tables if one.name == name and form in ("csv", "json"))
    return form, next(known, None)


def _no_export(tables: Sequence[Table]) -> HttpResponse:
    text = f"Export is csv or json of one of: {', '.join(one.name for one in tables)}."
    return HttpResponse(text, status=404, content_type="text/plain")


def _sent_as(table: Table, form: str) -> dict[str, Any]:
    """How Django's responses are made a file, which browsers save under the table's name."""
    return {
        "content_type": "text/csv; charset=utf-8" if form == "csv" else "application/json",
        "headers": {"Content-Disposition": f'attachment; filename="opatlas-{table.name}.{form}"'},
    }


def _json_lines(table: Table, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    encode = DjangoJSONEncoder().encode
    yield f'{{"table": {encode(table.name)}, "title": {encode(table.title)}, "rows": ['
    for number, row in enumerate(rows):
        yield ("," if number else "") + encode(row)
    yield "]}"


def cell_text(value: Any) -> Any:
    """A spreadsheet takes a text that begins like a formula for one: a quote in front keeps it a text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
