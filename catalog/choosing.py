"""Who is the best: decisions over measured ratios. Services act on them. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping

from opatlas.evidence import Ratios
from opatlas.noise import MARGIN


def beats(newcomer: Ratios, incumbent: Ratios, margin: float = MARGIN) -> bool:
    """Whether the newcomer is faster beyond the noise; a tie keeps the incumbent.

    Both ratios carry an error of their own: the difference of their logarithms must exceed both half-widths
    taken together (as independent errors add), and the margin. What is confirmed slower than the default
    never beats anything that is not.
    """
    if newcomer.confirmed_slower and not incumbent.confirmed_slower:
        return False
    difference = _log(newcomer.ratio) - _log(incumbent.ratio)
    below = max(_log(newcomer.ratio) - _log(newcomer.low), 0.0)
    above = max(_log(incumbent.high) - _log(incumbent.ratio), 0.0)
    return difference > max(math.hypot(below, above), math.log1p(margin))


def beats_in_pairs(paired: Ratios, margin: float = MARGIN) -> bool:
    """The same for a newcomer that ran in turns with the incumbent: ``paired`` is the incumbent's time ÷ the
    newcomer's, with its interval. What the default's error adds to two ratios is not in it."""
    return paired.low > 1.0 and paired.ratio > 1.0 + margin


def rank(
    entries: Mapping[str, Ratios],
    incumbent: str | None,
    margin: float = MARGIN,
    paired: Mapping[str, Ratios] | None = None,
) -> list[str]:
    """Routes, the winner first.

    The incumbent stays first unless another beats it, or it is confirmed slower than the default while
    another is not. ``paired`` holds incumbent ÷ route of those that ran in turns with the incumbent: they are
    judged by it. The others follow by ratio, those confirmed slower last.
    """
    order = sorted(entries, key=lambda name: (entries[name].confirmed_slower, -entries[name].ratio, name))
    if incumbent is None or incumbent not in entries:
        return order
    held, pairs = entries[incumbent], paired or {}
    winner = next(
        (name for name in order if _replaces(entries[name], held, margin, pairs.get(name))), incumbent
    )
    return [winner, *(name for name in order if name != winner)]


def _replaces(challenger: Ratios, held: Ratios, margin: float, paired: Ratios | None = None) -> bool:
    if held.confirmed_slower and not challenger.confirmed_slower:
        return True
    if paired is None:
        return beats(challenger, held, margin)
    may_lead = held.confirmed_slower or not challenger.confirmed_slower
    return may_lead and beats_in_pairs(paired, margin)


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))
