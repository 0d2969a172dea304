"""What templates say in the same words and marks everywhere: numbers, times, methods, states, icons."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import template
from django.http import QueryDict
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from catalog.default_names import default_name
from catalog.models import Setting
from dashboard.web import asked, wording
from dashboard.web.addresses import address
from dashboard.web.markup import escaped, filled
from dashboard.web.menu import section_of

register = template.Library()


def _or_nothing(function: Callable[..., str]) -> Callable[..., str]:
    # A look-up through None ("best.measurement.median_us") reaches a filter as an empty string.
    @functools.wraps(function)
    def say(value: Any, *rest: str) -> str:
        return wording.NOTHING if value in (None, "") else function(value, *rest)

    return say


register.filter("us", _or_nothing(wording.duration_us))
register.filter("seconds", _or_nothing(wording.duration_s))
for _name in ("ratio", "percent", "compact", "quantity", "significant", "scientific", "sandbox"):
    register.filter(_name, _or_nothing(getattr(wording, _name)))
register.filter("short_key", wording.short_key)
register.filter("default_name", default_name)
register.filter("on", Setting.on)


@register.simple_tag(takes_context=True)
def strange_names(context: template.Context) -> str:
    """What is said of what the address asks for, and the page does not know."""
    return asked.strange_names(context["request"])


_MARKS = {
    ("check", "good"): "hit explored done ok alive better approved delivered enabled credit fine resolved",
    ("pulse", "busy"): "exploring promoted running building",
    ("clock", "calm"): "queued waiting miss submitted pending",
    ("pause", "calm"): "postponed",
    ("pause", "warn"): "paused muted",
    ("slash", "calm"): "discarded unsupported stopped superseded",
    ("down", "calm"): "slower charge",
    ("down", "bad"): "worse",
    ("dash", "calm"): "same unknown noted adjustment note died unchecked not_reproduced",
    ("warn", "warn"): "noisy silent failing serious warning",
    ("user", "warn"): "awaiting",
    ("slash", "warn"): "revoked withdrawn",
    ("coin", "warn"): "withheld",
    ("warn", "bad"): "suspended grave firing fired critical error",
    ("user", "calm"): "acknowledged",
    ("bell", "calm"): "info unmuted",
    ("slash", "bad"): "disabled",
    ("arrow", "warn"): "refund",
}
"""(icon, tone) → states of operators, misses, explorations and trials: a word looks alike everywhere."""
_BADGES = {state: mark for mark, states in _MARKS.items() for state in states.split()}


@register.simple_tag
def money(millionths: int | None, currency: str = "", digits: int = 6) -> str:
    """An amount with its currency; ``digits`` after the point where fewer than there are say enough."""
    step = 10 ** (6 - digits)
    return wording.money(None if millionths is None else round(millionths / step) * step, currency or "")


# Marks of a few names stand hundreds of times on a page. By type: safe text is told from any other.
_MARKS_KEPT = 2048


@register.simple_tag
@functools.lru_cache(maxsize=_MARKS_KEPT, typed=True)
def icon(name: str) -> SafeString:
    """One icon of the sprite; decoration only, so hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("img/icons.svg"),
        name,
    )


register.filter("said", wording.state)


@register.simple_tag
@functools.lru_cache(maxsize=_MARKS_KEPT, typed=True)
def badge(state: str, text: str = "") -> SafeString:
    """A state as icon and word, so that colour is never all that tells it."""
    name, tone = _BADGES.get(state, ("cross", "bad"))
    text = text or wording.state(state)
    return format_html('<span class="badge badge-{}">{}{}</span>', tone, icon(name), text)


@register.simple_tag
@functools.lru_cache(maxsize=_MARKS_KEPT, typed=True)
def method(name: str, text: str = "") -> SafeString:
    """A method's mark (its own shape and colour) and a route's name or its own."""
    return format_html(
        '<span class="method" data-method="{}">'
        '<svg class="mark" aria-hidden="true"><use href="{}#{}"></use></svg>'
        '{}<span class="visually-hidden"> ({})</span></span>',
        name,
        static("img/icons.svg"),
        f"mark-{name}",
        text or name,
        name,
    )


@register.simple_tag
def ago(moment: datetime | None) -> SafeString | str:
    """A relative time with the exact one in its title."""
    if not moment:
        return wording.NOTHING
    here = moment.astimezone(timezone.get_current_timezone())
    exact = here.isoformat()
    # Hundreds on a page: its own text has all that strftime would put together anew.
    said = f"{exact[:10]} {exact[11:19]} {here.tzname()}"
    told = escaped(wording.relative(moment, timezone.now()))
    return SafeString(f'<time datetime="{exact}" title="{said}">{told}</time>')


@register.inclusion_tag("parts/_sort_header.html", takes_context=True)
def sort_header(context: template.Context, name: str, text: str, numeric: bool = False) -> dict[str, Any]:
    """A column's head as a link that sorts by it, and the other way when it is sorted by already."""
    current = context["filters"].sort
    descending, column = current.startswith("-"), current.removeprefix("-")
    # A first click shows the largest numbers, and words from a to z.
    wanted = ("" if descending else "-") + name if column == name else ("-" if numeric else "") + name
    query: QueryDict = context["request"].GET.copy()
    query["sort"] = wanted
    query.pop("page", None)
    return {
        "text": text,
        "numeric": numeric,
        "href": f"?{query.urlencode()}",
        "order": ("descending" if descending else "ascending") if column == name else "",
    }


register.simple_tag(address)


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    """``mapping[key]`` for keys that are variables."""
    return mapping.get(key)


@register.filter
def times_100(share: float | None) -> float:
    """A share as 0–100 with three decimals, for SVG and ``<meter>`` attributes."""
    return round((share or 0) * 100, 3)


@register.simple_tag(takes_context=True)
def nav_link(
    context: template.Context, url_name: str, symbol: str, text: str, waiting: int = 0, why: str = ""
) -> SafeString:
    """A section's link, marked where the page belongs to it; with how many of it wait for the reader, and
    why (for who listens)."""
    href = address(url_name)
    marked = current_mark(context["request"].path, url_name)
    counted = filled(_WAITING, waiting, why) if waiting else ""
    return filled('<li><a href="{}"{}>{}{}{}</a></li>', href, marked, icon(symbol), text, counted)


def current_mark(path: str, url_name: str) -> SafeString | str:
    """What says, in a link of the navigation, that its page is open or one of its section."""
    if section_of(path) != url_name:
        return ""
    return filled(' aria-current="{}"', "page" if path == address(url_name) else "true")


_WAITING = '<span class="unread"><span class="count">{}<span class="visually-hidden"> {}</span></span></span>'


@register.filter
def plain(value: float) -> str:
    """A number for SVG attributes."""
    return f"{value:.3f}"
