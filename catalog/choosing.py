"""Which implementation is the best: decisions over measured ratios, on which services act. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
    """The same for a newcomer that ran in turns with the incumbent. ``paired``: the incumbent's time ÷ the
    newcomer's, with its interval, which is free of the default's error."""
    return paired.low > 1.0 and paired.ratio > 1.0 + margin


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate in the deciding race: its ratio to the default, and its loading cost."""

    ratios: Ratios
    load_us: float = 0.0


@dataclass(frozen=True, slots=True)
class RaceDecision:
    """The winner, and those not told apart from it."""

    winner: str
    equal: frozenset[str] = frozenset()


def decide(
    finalists: Mapping[str, Contender],
    pairs: Mapping[tuple[str, str], Ratios],
    incumbent: str | None,
    margin: float = MARGIN,
) -> RaceDecision:
    """The winner by one race alone. ``pairs``: the first's time ÷ the second's with its interval, in the same
    rounds. An incumbent that is not told apart from the fastest stays. In a first decision the cheapest to
    load wins among those that are nearly as fast. A candidate confirmed slower than the default wins only if
    all are."""
    order = sorted(finalists, key=lambda name: (*_worst_last(finalists[name].ratios), name))
    fastest = order[0]

    def level(name: str) -> bool:
        pair = pairs.get((name, fastest))
        slower = finalists[name].ratios.confirmed_slower and not finalists[fastest].ratios.confirmed_slower
        return pair is not None and not slower and not beats_in_pairs(pair, margin)

    near = [name for name in order if name == fastest or level(name)]
    if incumbent is not None:
        winner = incumbent if incumbent in near else fastest
    else:
        close = [name for name in near if name == fastest or pairs[name, fastest].ratio <= 1.0 + margin]
        winner = min(close, key=lambda name: (finalists[name].load_us, order.index(name)))
    return RaceDecision(winner, frozenset(name for name in near if name != winner))


def _worst_last(ratios: Ratios) -> tuple[bool, float]:
    return ratios.confirmed_slower, -ratios.ratio


def rank(
    entries: Mapping[str, Ratios], incumbent: str | None, margin: float = MARGIN, winner: str | None = None
) -> list[str]:
    """Routes, the winner first. ``winner``: the winner of a race. Without one, by evidence of different
    races, the incumbent stays first unless another beats it, or it is confirmed slower than the default and
    another is not. The others follow by ratio, those confirmed slower last."""
    order = sorted(entries, key=lambda name: (*_worst_last(entries[name]), name))
    if winner not in entries:
        if incumbent is None or incumbent not in entries:
            return order
        held = entries[incumbent]
        winner = next((name for name in order if _replaces(entries[name], held, margin)), incumbent)
    first = str(winner)
    return [first, *(name for name in order if name != first)]


def _replaces(challenger: Ratios, held: Ratios, margin: float) -> bool:
    if held.confirmed_slower and not challenger.confirmed_slower:
        return True
    return beats(challenger, held, margin)


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))
