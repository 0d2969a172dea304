"""Several artifacts in one race, on the real laboratory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tuning.measure.busy import decided
from tests.tuning.measure.kernels import REPEATED
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.timing.timer import Effort
from tuning.routes.base import BuiltArtifact

SHORT = Effort(seconds=0.1, rounds=5, stop_losers=False)


@pytest.mark.timing
def test_who_breaks_or_is_wrong_is_out_and_the_others_are_timed(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    fast, slow = kernel("once", REPEATED % 2), kernel("sixfold", REPEATED % 12)
    lined_up, outcomes = [slow, kernel("segfault"), fast, kernel("wrong")], []

    def attempt() -> Outcome:
        outcomes[:] = relu_bench.line_up(lined_up, SHORT).outcomes
        return next((outcomes[at] for at in (2, 0) if not outcomes[at].ok), outcomes[0])

    decided(attempt, lambda outcome: outcome.ok)
    assert [outcome.ok for outcome in outcomes] == [True, False, True, False], outcomes
    assert outcomes[1].status == Status.CRASHED
    assert outcomes[3].status == Status.WRONG_RESULT
    slow_timing, fast_timing = outcomes[0].timing, outcomes[2].timing
    assert slow_timing is not None and fast_timing is not None
    assert fast_timing.ratio_to_default > 1.5 * slow_timing.ratio_to_default


def test_nobody_left_is_an_outcome_too(relu_bench: Bench, kernel: Callable[..., BuiltArtifact]) -> None:
    (outcome,) = relu_bench.line_up([kernel("segfault")], SHORT).outcomes
    assert outcome.status == Status.CRASHED
