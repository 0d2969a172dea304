"""Trials by route, from any rows; and the sandbox's cost for real, with hardly any budget."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench import sandbox, trials
from bench.trials import TrialRow
from tuning.measure.sandbox.tiers import best_tier


def test_trials_are_counted_by_route_and_divided_by_time_and_cores() -> None:
    rows = [
        TrialRow("eager", "ok", 0.5),
        TrialRow("eager", "slower", 0.25),
        TrialRow("tvm", "build_failed", 2.0),
    ]
    found = trials.summary(rows, cores=2)
    assert found["eager"] == {"trials": 2, "measured": 2, "seconds": 0.75, "per_minute_per_core": 80.0}
    assert found["tvm"] == {"trials": 1, "measured": 0, "seconds": 2.0, "per_minute_per_core": 15.0}


def test_no_time_at_all_is_no_division_by_zero() -> None:
    assert trials.summary([TrialRow("eager", "ok", 0.0)], cores=2)["eager"]["per_minute_per_core"] is None


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.alone
def test_the_sandbox_is_compared_with_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configure: Any
) -> None:
    tier = best_tier().name
    if tier == "T0":
        pytest.skip("there is no sandbox here to compare")
    configure(lock=tmp_path / "lock")
    one = dict(list(sandbox.OPERATORS.items())[:1])
    monkeypatch.setattr(sandbox, "OPERATORS", one)
    rows = sandbox.measure(tier, time.monotonic() + 1, sittings=2)
    (row,) = rows.values()
    assert row["sittings"] == 2
    assert row["median_us"] > 0
    # Wide: only that both sides were measured for what they are, whoever else is on this machine.
    assert -0.9 < row["overhead"] < 9
