"""Times of real kernels, on cores of their own: wide bounds, no absolute speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tuning.measure.kernels import REPEATED
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome
from tuning.routes.base import Artifact

pytestmark = pytest.mark.timing


def ratio(outcome: Outcome) -> float:
    assert outcome.timing is not None, outcome
    return outcome.timing.ratio_to_default


def test_twice_the_work_takes_about_twice_the_time(
    relu_bench: Bench, kernel: Callable[..., Artifact]
) -> None:
    once = relu_bench.confirm(kernel("once", REPEATED % 2), None)
    twice = relu_bench.confirm(kernel("twice", REPEATED % 4), None)
    assert 1.4 < ratio(once) / ratio(twice) < 2.8


def test_a_kernel_against_itself_as_incumbent_is_a_draw(
    relu_bench: Bench, kernel: Callable[..., Artifact]
) -> None:
    artifact = kernel("once", REPEATED % 2)
    outcome = relu_bench.confirm(artifact, artifact)
    incumbent = outcome.facts["incumbent"]
    assert 0.8 < ratio(outcome) / incumbent["ratio_to_default"] < 1.25
    paired, low, high = outcome.facts["paired"]
    assert low <= paired <= high
    assert 0.8 < paired < 1.25


def test_who_ran_in_turns_with_the_incumbent_has_their_ratio(
    relu_bench: Bench, kernel: Callable[..., Artifact]
) -> None:
    outcome = relu_bench.confirm(kernel("once", REPEATED % 2), kernel("sixfold", REPEATED % 12))
    paired, low, _ = outcome.facts["paired"]
    assert 1.0 < low <= paired


def test_an_incumbent_that_cannot_run_any_more_loses(
    relu_bench: Bench, kernel: Callable[..., Artifact]
) -> None:
    outcome = relu_bench.confirm(kernel("honest"), kernel("segfault"))
    assert outcome.timing is not None
    assert outcome.facts["incumbent"]["status"] == "crashed"
