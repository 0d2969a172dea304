"""Cells of tables, definitions of figures, addresses of exports and ranges."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from catalog.figures import FIGURES
from dashboard.templatetags.opatlas import ago, badge, method
from dashboard.web import paging, wording
from dashboard.web.tables import Column, Table, read

register = template.Library()


@register.simple_tag
def figure(name: str, text: str = "") -> SafeString:
    """A figure's title: its definition on hover, the page of definitions behind it. Unknown names fail."""
    known = FIGURES[name]
    return format_html(
        '<a class="defined" href="{}#{}" title="{} Counted as: {}.">{}</a>',
        reverse("definitions"),
        name,
        known.meaning,
        known.formula,
        text or known.title,
    )


@register.simple_tag
def cell_attributes(row: Any, column: Column) -> SafeString:
    """Classes, and what a telephone shows before the value."""
    classes = column.classes(row)
    said = {"class": classes, "data-label": column.said_label(classes)}
    return format_html_join("", ' {}="{}"', ((name, text) for name, text in said.items() if text))


@register.simple_tag
def row_attributes(row: Any, table: Table) -> SafeString:
    said = {
        "class": table.row_css(row) if table.row_css else "",
        "id": table.row_id(row) if table.row_id else "",
    }
    return format_html_join("", ' {}="{}"', ((name, text) for name, text in said.items() if text))


@register.simple_tag
def cell(row: Any, column: Column, table: Table) -> SafeString | str:
    """A value as people read it, a link where the column has one; under it what else stands in its cell."""
    shown, target = _shown(row, column), column.link(row) if column.link else None
    if target and column.kind == "name":
        text = '<a class="row-link clip-name" title="{}" href="{}">{}</a>'
        shown = format_html(text, column.of(row), target, shown)
    elif target:
        lead = mark_safe('class="row-link" ') if "lead" in column.classes(row) else ""
        shown = format_html('<a {}href="{}">{}</a>', lead, target, shown)
    lines = table.lines.get(column.key)
    return (
        format_html("{}{}", shown, mark_safe("".join(_line(row, one) for one in lines))) if lines else shown
    )


def _line(row: Any, column: Column) -> SafeString | str:
    said, css = _shown(row, column), column.css
    if said in (wording.NOTHING, _FAINT):
        return ""
    title = format_html(' title="{}"', column.of(row)) if "clip" in str(css) else ""
    return format_html('<span class="sub{}"{}>{}</span>', f" {css}" if css else "", title, said)


def _shown(row: Any, column: Column) -> SafeString | str:
    value = column.show(row) if column.show else column.of(row)
    if column.kind == "tick":
        return _tick(value, read(row, column.beside)) if value else ""
    if value is None or value == "":
        return _FAINT if column.show or column.kind in ("method", "speedup") else wording.NOTHING
    said = conditional_escape(value) if column.show else _said(value, row, column)
    return said if said == wording.NOTHING else format_html(column.say, said)


def _said(value: Any, row: Any, column: Column) -> SafeString | str:
    if column.kind == "when":
        return ago(value) if isinstance(value, datetime) else str(value)
    if column.kind == "badge":
        return badge(str(value))
    if column.kind == "method":
        return method(str(read(row, column.beside or "method") or "library"), str(value))
    if column.kind == "code":
        return format_html("<code>{}</code>", value)
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
    return format_html(box, value, name)


@register.simple_tag
def speedup(value: float | None, low: float | None = None, high: float | None = None) -> SafeString:
    """A ratio over the default, marked where it differs by more than noise; its bounds under it."""
    if not value:
        return _FAINT
    css = "faster" if value >= 1.03 else "slower" if value < 0.97 else ""
    bounds = (
        format_html('<span class="sub">{} – {}</span>', wording.ratio(low), wording.ratio(high))
        if low
        else ""
    )
    return format_html('<span class="{}">{}</span>{}', css, wording.ratio(value), bounds)


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
