"""Times of real kernels, on cores of their own: wide bounds, no absolute speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.choosing import beats_in_pairs
from opatlas.evidence import Ratios
from tests.tuning.measure.busy import decided
from tests.tuning.measure.kernels import REPEATED
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import LineUp, Outcome
from tuning.routes.base import BuiltArtifact

pytestmark = pytest.mark.timing


def paired(bench: Bench, artifact: BuiltArtifact, rival: BuiltArtifact) -> Ratios:
    """The rival's time ÷ the artifact's, from three fresh processes of each. A process keeps its luck for
    life, on some machines a factor of two for a kernel of ten microseconds: only the interval knows of it."""
    found: list[LineUp] = []

    def attempt() -> Outcome:
        found[:] = [bench.line_up([artifact, rival])]
        return next((one for one in found[0].outcomes if not one.ok), found[0].outcomes[0])

    outcome = decided(attempt, lambda outcome: outcome.ok)
    assert outcome.ok, outcome
    return found[0].pairs[1, 0]


def test_twice_the_work_takes_about_twice_the_time(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    ratios = paired(relu_bench, kernel("twice", REPEATED % 4), kernel("once", REPEATED % 2))
    assert ratios.low < 0.55 and ratios.high > 0.45


def test_a_kernel_against_itself_is_a_draw(relu_bench: Bench, kernel: Callable[..., BuiltArtifact]) -> None:
    artifact = kernel("once", REPEATED % 2)
    draws = [paired(relu_bench, artifact, artifact) for _ in range(3)]
    assert all(draw.low <= draw.ratio <= draw.high for draw in draws)
    # Where luck is a factor of two, all three processes of one side had it in 1 of 55 draws.
    assert sum(draw.low <= 1.02 and draw.high >= 0.98 for draw in draws) >= 2


def test_who_ran_in_turns_has_their_ratio(relu_bench: Bench, kernel: Callable[..., BuiltArtifact]) -> None:
    ratios = paired(relu_bench, kernel("once", REPEATED % 2), kernel("sixfold", REPEATED % 12))
    assert 1.0 < ratios.low <= ratios.ratio
    assert beats_in_pairs(ratios)
