"""Which of a plan's questions are asked: not those whose like has hardly ever paid, and how often that was
wrong."""

from __future__ import annotations

from tests.catalog.making import relu
from tuning.plan_odds import (
    CHANNELS_LAST,
    FUSED,
    MOST_LEARNT,
    AnsweredQuestion,
    HopelessQuestions,
    QuestionOdds,
)


def answered(*ratios: float | None) -> list[AnsweredQuestion]:
    return [AnsweredQuestion(relu(64 + at), FUSED, ratio) for at, ratio in enumerate(ratios)]


def left_out(odds: QuestionOdds, way: str = FUSED) -> int:
    """Of eighty operators of the kind."""
    return sum(odds.is_hopeless(relu(200 + at), way) for at in range(80))


def test_what_has_never_paid_is_left_out_but_for_one_in_eight() -> None:
    odds = QuestionOdds(answered(*[0.4] * 60))
    assert 60 <= left_out(odds) <= 78
    assert left_out(QuestionOdds(answered(*[None] * 120))) == left_out(odds)  # nobody in a plan had it
    assert not left_out(odds, CHANNELS_LAST)  # of which nothing is known


def test_a_few_answers_and_ones_that_paid_leave_all_open() -> None:
    assert not left_out(QuestionOdds([]))
    assert not left_out(QuestionOdds(answered(*[0.4] * 6)))
    assert not left_out(QuestionOdds(answered(*[0.4, 0.4, 1.3] * 10)))


def test_it_says_how_often_it_would_have_been_wrong() -> None:
    assert QuestionOdds(answered(*[0.4] * 60)).in_hindsight == HopelessQuestions(0, 60, 0)
    assert QuestionOdds(answered(*[0.4] * 60, 1.5)).in_hindsight == HopelessQuestions(0, 61, 1)
    assert QuestionOdds(answered(*[1.5] * 30)).in_hindsight == HopelessQuestions()
    assert QuestionOdds(answered(*[0.4] * 600)).in_hindsight.known == MOST_LEARNT
