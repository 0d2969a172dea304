"""Which of a plan's questions have a chance, learnt from those that are answered: what several nodes take as
one beside the sum of them, and a unit channels-last beside itself in row-major."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from opatlas.identity import Operator
from opatlas.identity.cost import describe
from opatlas.noise import MARGIN
from tuning.explore.odds import BOUND, DoneTry, Odds, TryTraits, family_of_try

FUSED, CHANNELS_LAST = "fused", "channels-last"
DEVIATION = 0.5
"""Of ln ratio, before anything is known: less than a candidate's, since fusing, or another layout, seldom
makes nodes more than three times as fast or as slow."""
ONE_IN = 8
"""Of those without a chance so many are asked for all the same, lest what is believed of their kind could
never turn out wrong; which ones is in their keys, so it is the same in every plan."""
MOST_LEARNT = 512
"""Answered questions that are learnt from."""
PARTS = 8
"""Of what is learnt from, each held against the others."""


@dataclass(frozen=True)
class AnsweredQuestion:
    """``ratio``: what the operator's nodes take as they were ÷ what it takes; None where nobody who runs in a
    plan has it. ``way``: fused or channels-last."""

    operator: Operator
    way: str
    ratio: float | None


@dataclass(frozen=True)
class HopelessQuestions:
    """How many unknown operators are not asked for since they have no chance; and, in hindsight, how many
    ``known`` ones would not have been by what the others of them teach, and ``wrong``: how many of these take
    less than their parts all the same."""

    count: int = 0
    known: int = 0
    wrong: int = 0


class QuestionOdds:
    """Chances by the kind of operator and its size, as contests have them for candidates."""

    def __init__(self, answered: Sequence[AnsweredQuestion]) -> None:
        self._tries = [_try(one) for one in answered[:MOST_LEARNT]]
        self._odds = Odds(self._tries, deviation=DEVIATION)

    def is_hopeless(self, operator: Operator, way: str) -> bool:
        """Whether it is not worth asking for."""
        is_tried_anyway = int(operator.key[-8:], 16) % ONE_IN == 0
        return not is_tried_anyway and _is_hopeless(self._odds, _about(operator, way))

    @cached_property
    def in_hindsight(self) -> HopelessQuestions:
        called = list[DoneTry]()
        for part in range(PARTS):
            others = [one for at, one in enumerate(self._tries) if at % PARTS != part]
            odds = Odds(others, deviation=DEVIATION)
            called += [one for one in self._tries[part::PARTS] if _is_hopeless(odds, one.about)]
        wrong = [one for one in called if one.log_ratio is not None and one.log_ratio > math.log(1 + MARGIN)]
        return HopelessQuestions(0, len(called), len(wrong))


def _is_hopeless(odds: Odds, about: TryTraits) -> bool:
    return odds.chance(about, 1.0) < BOUND


def _try(one: AnsweredQuestion) -> DoneTry:
    return DoneTry(_about(one.operator, one.way), None if one.ratio is None else math.log(one.ratio), 0.0)


def _about(operator: Operator, way: str) -> TryTraits:
    known = describe(operator)
    family = family_of_try(known.op_type, known.flops, known.bytes_moved)
    return TryTraits("plan", way, known.op_type, family, known.dtype)
