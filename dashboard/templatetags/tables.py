"""Cells of tables, definitions of figures, addresses of exports and ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from catalog.figures import FIGURES
from dashboard.templatetags.opatlas import ago, badge, method
from dashboard.web import paging, wording
from dashboard.web.addresses import address
from dashboard.web.markup import escaped, filled
from dashboard.web.tables import Column, Table, reader

register = template.Library()


@register.simple_tag
@lru_cache(maxsize=512)
def figure(name: str, text: str = "") -> SafeString:
    """A figure's title: its definition on hover, the page of definitions behind it. Unknown names fail."""
    known = FIGURES[name]
    return filled(
        '<a class="defined" href="{}#{}" title="{} Counted as: {}.">{}</a>',
        address("definitions"),
        name,
        known.meaning,
        known.formula,
        text or known.title,
    )


@register.simple_tag(takes_context=True)
def table_body(context: template.Context, table: Table) -> SafeString:
    """The rows of a table's body. Made here and not by a template, whose loop and conditions around each cell
    take longer than the cell itself; pages have up to thousands of cells."""
    shown = _Shown(context, table)
    return mark_safe("".join(map(shown.row, table.rows)))


Said = Callable[[Any], SafeString | str]
"""A row → what a cell, or a part of one, says of it."""


class _Shown:
    """A table's rows on one page. What a column says is put together once, as a function of the row."""

    def __init__(self, context: template.Context, table: Table) -> None:
        self._context, self._table = context, table
        self._cells = [self._cell(column) for column in table.shown]

    def row(self, row: Any) -> str:
        cells = "".join([cell(row) for cell in self._cells])
        return f"<tr{_row_attributes(row, self._table)}>\n        {cells}</tr>\n      "

    def _cell(self, column: Column) -> Said:
        said = self._part(column) if column.part else _said_of(column, self._table)
        head = column.kind == "head"
        opens, closes = ('<th scope="row"\n          ', "</th>") if head else ("<td", "</td>")
        before: dict[str, str] = {}  # by the cell's classes

        def cell(row: Any) -> str:
            classes = column.classes(row)
            start = before.get(classes)
            if start is None:
                # Classes, and what a telephone shows before the value.
                said_first = {"class": classes, "data-label": column.said_label(classes)}
                start = before[classes] = f"{opens}{_said_attributes(said_first)}>"
            return f"{start}{said(row)}{closes}\n        "

        return cell

    def _part(self, column: Column) -> Said:
        part = self._context.template.engine.get_template(column.part)  # type: ignore[union-attr]  # bound

        def said(row: Any) -> str:
            with self._context.push(row=row, column=column, table=self._table):
                return str(part.render(self._context))

        return said


def _row_attributes(row: Any, table: Table) -> str:
    return _said_attributes(
        {
            "class": table.row_css(row) if table.row_css else "",
            "id": table.row_id(row) if table.row_id else "",
        }
    )


def _said_attributes(said: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escaped(text)}"' for name, text in said.items() if text)


def _said_of(column: Column, table: Table) -> Said:
    """A value as people read it, a link where the column has one; under it what else stands in its cell."""
    value = _with_link(column) if column.link else _shown_of(column)
    lines = [_line_of(one) for one in table.lines.get(column.key, ())]
    if not lines:
        return lambda row: escaped(value(row))
    return lambda row: escaped(value(row)) + "".join([line(row) for line in lines])


def _with_link(column: Column) -> Said:
    shown, of, link = _shown_of(column), column.reads, column.link
    assert link is not None

    def said(row: Any) -> SafeString | str:
        target = link(row)
        if not target:
            return shown(row)
        if column.kind == "name":
            text = '<a class="row-link clip-name" title="{}" href="{}">{}</a>'
            return filled(text, of(row), target, shown(row))
        lead = 'class="row-link" ' if "lead" in column.classes(row) else ""
        return SafeString(f'<a {lead}href="{escaped(target)}">{escaped(shown(row))}</a>')

    return said


def _line_of(column: Column) -> Said:
    shown, css, of = _shown_of(column), column.css, column.reads
    classes = SafeString(escaped(f"sub {css}")) if css else "sub"
    clipped = "clip" in str(css)

    def said(row: Any) -> SafeString | str:
        text = shown(row)
        if text in (wording.NOTHING, _FAINT):
            return ""
        title = filled(' title="{}"', of(row)) if clipped else ""
        return f'<span class="{classes}"{title}>{escaped(text)}</span>'

    return said


def _shown_of(column: Column) -> Said:
    value_of, say = column.show or column.reads, column.say
    if column.kind == "tick":
        return _tick(column)
    nothing = _FAINT if column.show or column.kind in ("method", "speedup") else wording.NOTHING
    said_of = _escaped if column.show else _said_by_kind(column)

    def shown(row: Any) -> SafeString | str:
        value = value_of(row)
        if value is None or value == "":
            return nothing
        said = said_of(value, row)
        return said if say == "{}" or said == wording.NOTHING else filled(say, said)

    return shown


def _escaped(value: Any, row: Any) -> SafeString:
    return escaped(value)


def _said_by_kind(column: Column) -> Callable[[Any, Any], SafeString | str]:
    """(value, row) → the value in the form of the column's kind."""
    kind, beside = column.kind, column.beside
    if kind == "when":
        return lambda value, row: ago(value) if isinstance(value, datetime) else str(value)
    if kind == "badge":
        return lambda value, row: badge(str(value))
    if kind == "method":
        made_by = reader(beside or "method")
        return lambda value, row: method(str(made_by(row) or "library"), str(value))
    if kind == "code":
        return lambda value, row: filled("<code>{}</code>", value)
    if kind == "money":
        currency = reader(beside or "currency")
        return lambda value, row: wording.money(value, str(currency(row) or ""))
    if kind == "speedup":
        bounds = [reader(f"{beside}_low"), reader(f"{beside}_high")] if beside else []
        return lambda value, row: speedup(value, *(bound(row) for bound in bounds))
    if kind == "bytes":
        return lambda value, row: wording.quantity(value, "B")
    say: Callable[[Any], str] = _NUMBERS.get(kind, str)
    return lambda value, row: say(value)


def _tick(column: Column) -> Said:
    box = '<input type="checkbox" name="id" value="{}" form="bulk" aria-label="Choose {}">'
    value_of, name = column.show or column.reads, reader(column.beside)

    def shown(row: Any) -> SafeString | str:
        value = value_of(row)
        return filled(box, value, name(row)) if value else ""

    return shown


@register.simple_tag
def speedup(value: float | None, low: float | None = None, high: float | None = None) -> SafeString:
    """A ratio over the default, marked where it differs by more than noise; its bounds under it."""
    if not value:
        return _FAINT
    css = "faster" if value >= 1.03 else "slower" if value < 0.97 else ""
    bounds = (
        filled('<span class="sub">{} – {}</span>', wording.ratio(low), wording.ratio(high)) if low else ""
    )
    return filled('<span class="{}">{}</span>{}', css, wording.ratio(value), bounds)


_FAINT = mark_safe(f'<span class="faint">{wording.NOTHING}</span>')
_NUMBERS = {
    "count": wording.compact,
    "quantity": wording.significant,
    "us": wording.duration_us,
    "seconds": wording.duration_s,
    "ratio": wording.ratio,
    "percent": wording.percent,
    "scientific": wording.scientific,
}


@register.simple_tag(takes_context=True)
def export_url(context: template.Context, table: str, form: str) -> str:
    """The same page and filters, as CSV or JSON."""
    return paging.with_query(context["request"], export=form, table=table)


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """This page's address with some of its query changed; None or "" takes a part away, and with it the page
    of a list."""
    return paging.with_query(context["request"], page=None, **changes)
