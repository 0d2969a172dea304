"""Kinds of values dealt to the rows of inputs: none is left out for long, nobody knows which comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from threading import Lock

import numpy as np

from tuning.measure.judging.drawing.kinds import KINDS, Rows, sizes_along

RUNS = (1, 1, 8)
"""So many rows beside each other are of one kind, where not all are: blocks see one or many."""
EARLY = frozenset({
    "behind a Relu", "behind a Sigmoid", "masked", "negative", "outliers", "pixels", "sizes of places",
    "sparse",
})  # fmt: skip
"""Of what is of one kind throughout, these come first: jobs have them most, or no row alone shows them."""


class Dealer:
    """Of one operator's sets, whoever draws them, in several threads or one."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._hands = 0
        self._left: dict[tuple[int, bool], list[str]] = {}
        self._lock = Lock()

    def hand(self, rng: np.random.Generator) -> Hand:
        """For the next set, whose values come from ``rng``."""
        with self._lock:
            self._hands += 1
            return Hand(self, rng, self._hands)

    def next(self, number: int, kinds: Sequence[str], rows: int, *, whole: bool) -> list[str]:
        """Kinds for so many rows of an input, or for the whole of it: those that were not dealt yet come
        first."""
        wanted = 1 if whole else min(rows, len(kinds))
        with self._lock:
            deck = self._left.setdefault((number, whole), [])
            while len(deck) < wanted:
                mixed = [kinds[place] for place in self._rng.permutation(len(kinds))]
                deck += sorted(mixed, key=lambda kind: whole and kind not in EARLY)
            dealt, deck[:wanted] = deck[:wanted], []
        return dealt


@dataclass(frozen=True)
class Hand:
    """One set's share; the sets are counted from 1. ``dealt``: of each input whose rows are drawn by kind,
    the axes along which they lie, and a number for the kind of each."""

    dealer: Dealer
    rng: np.random.Generator
    number: int
    dealt: dict[int, tuple[tuple[int, ...], np.ndarray]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether each input is of one kind, where others have rows of all."""
        return self.number % 2 == 0

    @property
    def third(self) -> bool:
        """Of the others each second one."""
        return self.number % 4 == 3

    def next(self, number: int, kinds: Sequence[str], rows: int, *, whole: bool) -> list[str]:
        return self.dealer.next(number, kinds, rows, whole=whole)


def spread_rows(
    shape: tuple[int, ...],
    apart: tuple[int, ...],
    kinds: Sequence[str],
    rng: np.random.Generator,
    *,
    wide: type[np.floating],
    reach: int,
    calm: bool,
    narrow: bool,
    sized: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """A tensor whose rows are of these kinds, in runs, in an order drawn by lot; and which kind each row is
    of. ``sized``: places of all rows differ alike by powers of two: none hides what another loses."""
    own = tuple(axis for axis in range(len(shape)) if axis not in apart)
    inner = tuple(shape[axis] for axis in own)
    outer = tuple(shape[axis] for axis in apart)
    count = prod(outer)
    made = np.empty((count, max(1, prod(inner))), wide)
    if not made.size:
        return made.reshape(shape), np.zeros(outer, np.int64)
    run = max(1, min(int(rng.choice(RUNS)), count // len(kinds)))  # each has one
    dealt: np.ndarray = np.repeat(np.arange(-(-count // run)) % len(kinds), run)[:count]
    if run == 1:
        rng.shuffle(dealt)
    for place, name in enumerate(kinds):
        mine = np.flatnonzero(dealt == place)
        if mine.size:
            rows = Rows(len(mine), inner, rng, wide, reach, calm, narrow)
            made[mine] = KINDS[name].make(rows)
    if sized:
        made *= sizes_along(Rows(1, inner, rng, wide, reach, calm, narrow))
    ordered = made.reshape(*outer, *inner)
    if apart:
        ordered = np.ascontiguousarray(ordered.transpose(np.argsort((*apart, *own))))
    return ordered, dealt.reshape(outer)
