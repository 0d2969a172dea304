"""Rows with which every lookup begins (its key, its target and setting), read once in a look and not each
time.

Nothing is remembered beyond the look (:mod:`catalog.lookup.recalls`) in which it was read, so that whatever
is changed in them, whether or not a recall tells of it, is seen within half a second. Whatever is refused is
read each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from catalog.lookup.recalls import Recalls

ROWS = "opatlas.rows"
"""Where in a request's environ the front leaves the process's :class:`WarmRows`; no caller can name it."""

MOST = 10_000

Found = TypeVar("Found")


class _OfLook(NamedTuple):
    look: int
    rows: dict[Hashable, Any]


class WarmRows:
    """One process's. Rows are shared by requests: whoever is given one leaves it as it is."""

    def __init__(self, recalls: Recalls) -> None:
        self._recalls = recalls
        self._held = _OfLook(0, {})

    def found(self, what: Hashable, read: Callable[[], Found]) -> Found:
        """What was read in this look, or is read now; what ``read`` raises is raised and not remembered."""
        look = self._recalls.current()
        if look is None:  # the database does not answer: say so
            return read()
        held = self._held
        if held.look != look or len(held.rows) >= MOST:
            # What others still read goes into what they held, and is seen by nobody of another look.
            held = self._held = _OfLook(look, {})
        row: Found | None = held.rows.get(what)
        if row is None:
            row = held.rows[what] = read()
        return row
