"""Cells of tables, definitions of figures, addresses of exports and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from catalog.figures import FIGURES
from dashboard.templatetags.opatlas import ago, badge, method
from dashboard.web import wording
from dashboard.web.tables import Column

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
def cell(row: Mapping[str, Any], column: Column) -> SafeString | str:
    """A value as people read it; a link where the column names one and the row has it."""
    value = row.get(column.key)
    shown = _shown(value, column, row)
    target = row.get(column.link) if column.link else None
    return format_html('<a href="{}">{}</a>', target, shown) if target else shown


def _shown(value: Any, column: Column, row: Mapping[str, Any]) -> SafeString | str:
    if value is None or value == "":
        return wording.NOTHING
    if column.kind == "when":
        return ago(value) if isinstance(value, datetime) else str(value)
    if column.kind == "badge":
        return badge(str(value))
    if column.kind == "method":
        return method(str(row.get("method", "library")), str(value))
    if column.kind == "code":
        return format_html("<code>{}</code>", value)
    if column.kind == "money":
        return wording.money(value, str(row.get("currency", "")))
    if column.kind == "bytes":
        return wording.quantity(value, "B")
    say = _NUMBERS.get(column.kind)
    return say(value) if say else str(value)


_NUMBERS = {
    "count": wording.compact,
    "quantity": wording.significant,
    "us": wording.duration_us,
    "seconds": wording.duration_s,
    "ratio": wording.ratio,
    "percent": wording.percent,
}


@register.simple_tag(takes_context=True)
def export_url(context: template.Context, table: str, form: str) -> str:
    """The same page and filters, as CSV or JSON."""
    return _with(context, export=form, table=table)


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """This page's address with some of its query changed; None or "" takes a part away, and with it the page
    of a list."""
    return _with(context, page=None, **changes)


def _with(context: template.Context, **changes: Any) -> str:
    query = context["request"].GET.copy()
    for name, value in {"seen": None, **changes}.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = value
    return f"{context['request'].path}?{query.urlencode()}"
