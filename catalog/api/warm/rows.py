"""Rows with which every lookup begins (key, target and setting), read once in a look instead of each time.

They are remembered only within the look (:mod:`catalog.lookup.recalls`) in which they were read. So every
change is seen within half a second, with or without a recall. Refusals are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from catalog.lookup.recalls import Recalls

ROWS = "opatlas.rows"
"""The key in a request's environ for the process's :class:`WarmRows`; no caller can set it."""

MOST = 10_000

Found = TypeVar("Found")


class _OfLook(NamedTuple):
    look: int
    rows: dict[Hashable, Any]


class WarmRows:
    """One process's rows. Requests share them and must not change them."""

    def __init__(self, recalls: Recalls) -> None:
        self._recalls = recalls
        self._held = _OfLook(0, {})

    def found(self, what: Hashable, read: Callable[[], Found]) -> Found:
        """The row from this look, or read now; errors of ``read`` are raised and not remembered."""
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
