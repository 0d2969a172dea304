"""Query parameters of the lists, checked: what is not understood is refused, never ignored."""

from __future__ import annotations

from collections.abc import Collection

from rest_framework.request import Request

from catalog.errors import RequestError


def choices(request: Request, name: str, allowed: Collection[str]) -> list[str]:
    """``?state=queued,running`` as a list; empty where it was not given."""
    given = [part for part in request.query_params.get(name, "").split(",") if part]
    for part in given:
        if part not in allowed:
            raise RequestError(
                f"{name} is a list of some of {', '.join(allowed)}; not {part[:40]!r}.", where=name
            )
    return given


def key(request: Request, name: str) -> str:
    """``?operator=o1:…``; empty where it was not given."""
    text = request.query_params.get(name, "")
    if len(text) > 80 or not text.isascii() or not text.isprintable():
        raise RequestError(f"{name} is a key such as o1:5f…, of at most 80 characters.", where=name)
    return text


def number(request: Request, name: str) -> int | None:
    """``?exploration=7``; None where it was not given."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RequestError(f"{name} must be a whole number.", where=name)
    return int(text)
