"""The result of sending one message, and when to try again. PURE."""

from __future__ import annotations

from dataclasses import dataclass

RETRY_S = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
"""How long to wait after each failure; after the last one a message is given up."""


@dataclass(frozen=True)
class SendResult:
    """``final``: trying again would not help. ``untried``: there was no time for it in this round.
    ``reached``: devices that have it, ``gone``: devices that are no more (rows' numbers)."""

    ok: bool = False
    error: str = ""
    final: bool = False
    untried: bool = False
    dropped: bool = False
    reached: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()


def retry_in(tries: int) -> int | None:
    """Seconds until the next try after so many; None: it is given up."""
    return RETRY_S[tries - 1] if 0 < tries <= len(RETRY_S) else None
