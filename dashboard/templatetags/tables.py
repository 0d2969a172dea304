"""Cells of tables, definitions of figures, addresses of exports and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from catalog.figures import FIGURES
from dashboard.templatetags.opatlas import ago, badge, method
from dashboard.web import paging, wording
from dashboard.web.addresses import address
from dashboard.web.markup import escaped, filled
from dashboard.web.tables import Column, Table, read

register = template.Library()


@register.simple_tag
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


class _Shown:
    """A table's rows on one page; what many cells share is found once."""

    def __init__(self, context: template.Context, table: Table) -> None:
        self._context, self._table = context, table
        engine = context.template.engine  # type: ignore[union-attr]  # bound: it is being rendered
        self._parts = {one.part: engine.get_template(one.part) for one in table.shown if one.part}
        self._attributes: dict[tuple[str, str], str] = {}  # by the column's key and the cell's classes

    def row(self, row: Any) -> str:
        cells = "".join(self._cell(row, column) for column in self._table.shown)
        return f"<tr{_row_attributes(row, self._table)}>\n        {cells}</tr>\n      "

    def _cell(self, row: Any, column: Column) -> str:
        classes = column.classes(row)
        attributes = self._attributes.get((column.key, classes))
        if attributes is None:
            # Classes, and what a telephone shows before the value.
            attributes = _said_attributes({"class": classes, "data-label": column.said_label(classes)})
            self._attributes[column.key, classes] = attributes
        said = self._part(row, column) if column.part else _cell(row, column, self._table, classes)
        if column.kind == "head":
            return f'<th scope="row"\n          {attributes}>{said}</th>\n        '
        return f"<td{attributes}>{said}</td>\n        "

    def _part(self, row: Any, column: Column) -> str:
        with self._context.push(row=row, column=column, table=self._table):
            return str(self._parts[column.part].render(self._context))


def _row_attributes(row: Any, table: Table) -> str:
    return _said_attributes(
        {
            "class": table.row_css(row) if table.row_css else "",
            "id": table.row_id(row) if table.row_id else "",
        }
    )


def _said_attributes(said: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escaped(text)}"' for name, text in said.items() if text)


def _cell(row: Any, column: Column, table: Table, classes: str) -> str:
    """A value as people read it, a link where the column has one; under it what else stands in its cell."""
    shown, target = _shown(row, column), column.link(row) if column.link else None
    if target and column.kind == "name":
        text = '<a class="row-link clip-name" title="{}" href="{}">{}</a>'
        shown = filled(text, column.of(row), target, shown)
    elif target:
        lead = 'class="row-link" ' if "lead" in classes else ""
        shown = f'<a {lead}href="{escaped(target)}">{escaped(shown)}</a>'
    else:
        shown = escaped(shown)
    lines = table.lines.get(column.key)
    return shown + "".join(_line(row, one) for one in lines) if lines else shown


def _line(row: Any, column: Column) -> SafeString | str:
    said, css = _shown(row, column), column.css
    if said in (wording.NOTHING, _FAINT):
        return ""
    title = filled(' title="{}"', column.of(row)) if "clip" in str(css) else ""
    return filled('<span class="sub{}"{}>{}</span>', f" {css}" if css else "", title, said)


def _shown(row: Any, column: Column) -> SafeString | str:
    value = column.show(row) if column.show else column.of(row)
    if column.kind == "tick":
        return _tick(value, read(row, column.beside)) if value else ""
    if value is None or value == "":
        return _FAINT if column.show or column.kind in ("method", "speedup") else wording.NOTHING
    said = escaped(value) if column.show else _said(value, row, column)
    if said == wording.NOTHING or column.say == "{}":
        return said
    return filled(column.say, said)


def _said(value: Any, row: Any, column: Column) -> SafeString | str:
    if column.kind == "when":
        return ago(value) if isinstance(value, datetime) else str(value)
    if column.kind == "badge":
        return badge(str(value))
    if column.kind == "method":
        return method(str(read(row, column.beside or "method") or "library"), str(value))
    if column.kind == "code":
        return filled("<code>{}</code>", value)
    if column.kind == "money":
        return wording.money(value, str(read(row, column.beside or "currency") or ""))
    if column.kind == "speedup":
        bounds = [f"{column.beside}_low", f"{column.beside}_high"] if column.beside else []
        return speedup(value, *(read(row, path) for path in bounds))
    if column.kind == "bytes":
        return wording.quantity(value, "B")
    say = _NUMBERS.get(column.kind)
    return say(value) if say else str(value)


def _tick(value: Any, name: Any) -> SafeString:
    box = '<input type="checkbox" name="id" value="{}" form="bulk" aria-label="Choose {}">'
    return filled(box, value, name)


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
