"""Times of real kernels, on cores of their own: wide bounds, no absolute speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.choosing import beats_in_pairs
from opatlas.evidence import Ratios
from tests.tuning.measure.kernels import REPEATED
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Status
from tuning.routes.base import BuiltArtifact

pytestmark = pytest.mark.timing


def paired(bench: Bench, artifact: BuiltArtifact, incumbent: BuiltArtifact) -> Ratios:
    """The incumbent's time ÷ the artifact's, from three fresh processes of each. A process keeps its luck for
    life, on some machines a factor of two for a kernel of ten microseconds: only the interval knows of it."""
    outcome = bench.confirm(artifact, incumbent)
    for _ in range(4):
        if outcome.status is Status.NOISY:  # that is the machine's doing, and said so
            outcome = bench.confirm(artifact, incumbent)
    assert outcome.ok and outcome.against_incumbent, outcome
    return outcome.against_incumbent.ratios


def test_twice_the_work_takes_about_twice_the_time(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    ratios = paired(relu_bench, kernel("twice", REPEATED % 4), kernel("once", REPEATED % 2))
    assert ratios.low < 0.55 and ratios.high > 0.45


def test_a_kernel_against_itself_as_incumbent_is_a_draw(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    artifact = kernel("once", REPEATED % 2)
    draws = [paired(relu_bench, artifact, artifact) for _ in range(3)]
    assert all(draw.low <= draw.ratio <= draw.high for draw in draws)
    # Where luck is a factor of two, all three processes of one side had it in 1 of 55 draws.
    assert sum(draw.low <= 1.02 and draw.high >= 0.98 for draw in draws) >= 2


def test_who_ran_in_turns_with_the_incumbent_has_their_ratio(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    ratios = paired(relu_bench, kernel("once", REPEATED % 2), kernel("sixfold", REPEATED % 12))
    assert 1.0 < ratios.low <= ratios.ratio
    assert beats_in_pairs(ratios)


def test_an_incumbent_that_cannot_run_any_more_loses(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    outcome = relu_bench.confirm(kernel("honest"), kernel("segfault"))
    assert outcome.timing is not None
    assert outcome.incumbent is not None and outcome.incumbent.status is Status.CRASHED
