"""Reads a page's address: one of the existing values, or a message that there is no such value. Links live
long, so nothing in them is an error; but nobody is shown the whole list in place of a part."""

from __future__ import annotations

from collections.abc import Collection

from django.contrib import messages
from django.http import HttpRequest

from catalog.search import Words
from dashboard.web.requests import ViewerRequest
from dashboard.web.wording import shortened

EVERYWHERE = frozenset({"page", "export", "table", "seen", "range", "since", "until", "org", "before"})
"""Parameters of lists beside their filters."""

_MOST_NAMED = 12


def text_of(request: ViewerRequest, name: str = "q", most: int = 200) -> str:
    """The text that was typed, without characters that no database row can hold."""
    return request.GET.get(name, "").replace("\0", "").strip()[:most]


def words_of(request: ViewerRequest) -> str:
    """The words for finding operators (``catalog.search``), with a message for those that can find none."""
    text = text_of(request)
    for sentence in Words.of(text).in_vain():
        say(request, sentence, rest=False)
    return text


def one_of(
    request: ViewerRequest, name: str, known: Collection[str], otherwise: str = "", what: str = ""
) -> str:
    """The filter's value; if there is no such value the page says so, and shows ``otherwise``. ``what``: its
    description, if not its name."""
    value = request.GET.get(name, "")
    if not value or value in known:
        return value or otherwise
    say(request, f"There is no {what or name} “{shortened(value, 40)}”: it is one of {_named(known)}.")
    return otherwise


def sort_of(request: ViewerRequest, known: Collection[str], otherwise: str) -> str:
    """The column to sort by, a minus before it for downwards."""
    value = request.GET.get("sort", "")
    if not value or value.removeprefix("-") in known:
        return value or otherwise
    say(request, f"Nothing is sorted by “{shortened(value, 40)}”: sort is one of {_named(known)}.")
    return otherwise


def takes(request: ViewerRequest, *names: str) -> None:
    """The parameters of this page's address, beside every page's. The page's frame reports others."""
    request.takes = names


def strange_names(request: HttpRequest) -> str:
    """What is said of the names in the address that this page does not know; "" where it knows them all."""
    known: tuple[str, ...] = getattr(request, "takes", ())
    strange = sorted(set(request.GET) - set(known) - EVERYWHERE)
    if not strange:
        return ""
    named = ", ".join(f"“{shortened(name, 40)}”" for name in strange[:3])
    return f"This page has no filter {named}: it has {_named(known) or 'none'}."


def say_unknown(request: ViewerRequest, name: str, where: str = "", what: str = "") -> None:
    """Say that there is none such, where the address names one. ``what`` it is, if not what its name says."""
    if value := request.GET.get(name, ""):
        say(request, f"There is no {what or name} “{shortened(value, 40)}”{where}.")


def say(request: ViewerRequest, sentence: str, rest: bool = True) -> None:
    """Show a message on the page, with what it shows instead: the ``rest`` of what was asked for."""
    # A part of a page, or a file, has no place for it; the next page would say it out of place.
    if not request.htmx and "export" not in request.GET and "seen" not in request.GET:
        shown = " The rest of what was asked for is shown." if rest else ""
        messages.warning(request, f"{sentence}{shown}")


def _named(known: Collection[str]) -> str:
    shown = list(known)[:_MOST_NAMED]
    return ", ".join(shown) + (", …" if len(known) > len(shown) else "")
