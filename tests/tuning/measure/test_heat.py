"""Many candidates in one heat, on the real laboratory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tuning.measure.busy import decided
from tests.tuning.measure.kernels import REPEATED
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import BuiltArtifact

DROPPABLE = (Status.OK, Status.SLOWER)


@pytest.mark.timing
def test_who_has_no_chance_is_dropped_early_and_the_fastest_runs_on(
    relu_bench: Bench, kernel: Callable[..., BuiltArtifact]
) -> None:
    fast, slow = kernel("once", REPEATED % 2), kernel("sixfold", REPEATED % 12)
    entrants, outcomes = [slow, kernel("segfault"), fast, kernel("wrong")], []

    def attempt() -> Outcome:
        outcomes[:] = relu_bench.heat(entrants)
        return next((one for one in (outcomes[2], outcomes[0]) if one.status not in DROPPABLE), outcomes[2])

    decided(attempt, lambda outcome: outcome.status in DROPPABLE and bool(outcomes[0].facts.get("dropped")))
    slower, crashed, leader, wrong = outcomes
    assert (crashed.status, wrong.status) == (Status.CRASHED, Status.WRONG_RESULT)
    assert slower.facts["dropped"] and not leader.facts["dropped"]
    assert slower.facts["chance"] < 0.01 < leader.facts["chance"]
    assert slower.facts["rounds"] <= leader.facts["rounds"]
    assert slower.ratio < leader.ratio
