"""What a list's address asks for: one of what there is, or said to be none of it. Links live long, so nothing
of them is refused; but nobody takes the whole list for the part that was meant."""

from __future__ import annotations

from collections.abc import Collection

from django.contrib import messages

from dashboard.web.requests import ViewerRequest
from dashboard.web.wording import shortened

EVERYWHERE = frozenset({"page", "export", "table", "seen", "range", "since", "until", "org", "before"})
"""What lists are asked beside their filters."""

_MOST_NAMED = 12


def one_of(request: ViewerRequest, name: str, known: Collection[str], otherwise: str = "") -> str:
    """The filter's value; where there is no such value the page says so, and shows ``otherwise``."""
    value = request.GET.get(name, "")
    if not value or value in known:
        return value or otherwise
    _say(request, f"There is no {name} “{shortened(value, 40)}”: it is one of {_named(known)}.")
    return otherwise


def sort_of(request: ViewerRequest, known: Collection[str], otherwise: str) -> str:
    """The column to sort by, a minus before it for downwards."""
    value = request.GET.get("sort", "")
    if not value or value.removeprefix("-") in known:
        return value or otherwise
    _say(request, f"Nothing is sorted by “{shortened(value, 40)}”: sort is one of {_named(known)}.")
    return otherwise


def check_names(request: ViewerRequest, *known: str) -> None:
    """Say which of the address's names this page does not know."""
    strange = sorted(set(request.GET) - set(known) - EVERYWHERE)
    if strange:
        named = ", ".join(f"“{shortened(name, 40)}”" for name in strange[:3])
        _say(request, f"This list has no filter {named}: it has {_named(known)}.")


def _say(request: ViewerRequest, sentence: str) -> None:
    # A part of a page, or a file, has no place for it; the next page would say it out of place.
    if not request.htmx and "export" not in request.GET and "seen" not in request.GET:
        messages.warning(request, f"{sentence} The rest of what was asked for is shown.")


def _named(known: Collection[str]) -> str:
    shown = list(known)[:_MOST_NAMED]
    return ", ".join(shown) + (", …" if len(known) > len(shown) else "")
