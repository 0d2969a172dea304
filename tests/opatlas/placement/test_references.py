"""Reference times: those that are missing are estimated and say so, and reality is kept apart from them."""

from __future__ import annotations

import math

import pytest

from opatlas.placement.references import (
    ASSUMED_S,
    ENOUGH,
    LATEST,
    Corrections,
    ReferenceTime,
    ReferenceTimes,
)


def test_a_known_time_is_used_as_it_is() -> None:
    """Paragraphs 48 and 51: what an operator took where it was measured is its reference time."""
    times = ReferenceTimes([("Conv", "o1:a", 0.002), ("Conv", "o1:b", 0.004)])
    assert times.of("o1:a", "Conv") == ReferenceTime("o1:a", 0.002, estimated=False)


def test_a_missing_one_is_its_familys_median_and_says_so() -> None:
    times = ReferenceTimes([("Conv", "1", 1.0), ("Conv", "2", 3.0), ("Conv", "3", 50.0), ("Relu", "4", 0.1)])
    assert times.of("5", "Conv") == ReferenceTime("5", 3.0, estimated=True)
    assert times.of("5", "Softmax") == ReferenceTime("5", 2.0, estimated=True), "of all, where none is alike"


def test_before_anything_is_known_all_operators_count_alike() -> None:
    times = ReferenceTimes([])
    assert times.of("1", "Conv") == ReferenceTime("1", ASSUMED_S, estimated=True)
    assert times.of("2", "Relu").seconds == ASSUMED_S


@pytest.mark.parametrize("seconds", [0.0, -0.5, math.nan, math.inf])
def test_what_is_no_time_counts_as_missing(seconds: float) -> None:
    times = ReferenceTimes([("Conv", "bad", seconds), ("Conv", "good", 0.5)])
    assert times.of("bad", "Conv") == ReferenceTime("bad", 0.5, estimated=True)


def test_a_ratio_is_the_median_of_the_latest_runs() -> None:
    corrections, reference = Corrections(), ReferenceTime("conv", 2.0)
    for took_s in (20.0,) * (ENOUGH - 1):
        corrections.learn(reference, took_s)
    assert corrections.ratio("conv") == 1.0, "too few to doubt a reference time"
    corrections.learn(reference, 20.0)
    assert corrections.ratio("conv") == 10.0
    for _ in range(LATEST // 2 + 1):
        corrections.learn(reference, 2.0)
    assert corrections.ratio("conv") == 1.0, "what was long ago is forgotten"
    assert corrections.ratio("relu") == 1.0


@pytest.mark.parametrize("took_s", [0.0, -1.0, math.nan, math.inf])
def test_runs_that_took_no_time_teach_nothing(took_s: float) -> None:
    corrections = Corrections()
    for _ in range(LATEST):
        corrections.learn(ReferenceTime("conv", 2.0), took_s)
    assert corrections.ratio("conv") == 1.0
