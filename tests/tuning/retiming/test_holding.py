"""Whether published intervals hold, as shares."""

from __future__ import annotations

import pytest

from tuning.retiming.holding import Retimed, summarize_retimed


def again(ratio: float, low: float = 0.0, high: float = 0.0, **values: object) -> Retimed:
    """Of a best that was published as 2.00× (1.90–2.10)."""
    known = {"key": "op:a", "operator": "Relu", "route": "tvm", "label": "tiles", "age_s": 1800.0}
    figures = {"ratio": 2.0, "low": 1.9, "high": 2.1, "again": ratio, "again_low": low, "again_high": high}
    return Retimed(**(known | figures | values))  # type: ignore[arg-type]


HOLDS, NEAR, FAR = again(2.09, 2.0, 2.2), again(1.85, 1.8, 1.92), again(1.5, 1.4, 1.6, age_s=3600.0)
NOT_TIMED = again(0.0, reason="crashed: signal 11")


def test_a_published_interval_holds_where_the_later_ratio_lies_inside() -> None:
    assert [row.holds for row in (HOLDS, NEAR, FAR, NOT_TIMED)] == [True, False, False, False]
    assert [row.overlaps for row in (HOLDS, NEAR, FAR, NOT_TIMED)] == [True, True, False, False]


def test_what_could_not_be_timed_is_counted_and_in_no_share() -> None:
    found = summarize_retimed([HOLDS, NEAR, FAR, NOT_TIMED])
    assert (found["bests"], found["retimed"]) == (4, 3)
    assert found["reproduced"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["overlapping"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["slower_than_published"] == 2 and found["faster_than_published"] == 0
    assert found["median_half_width"] == pytest.approx(0.05)
    assert (found["youngest_s"], found["oldest_s"]) == (1800.0, 3600.0)
    assert "crashed" in str(NOT_TIMED) and "does not hold" in str(FAR)


def test_nothing_that_was_timed_has_no_share() -> None:
    found = summarize_retimed([NOT_TIMED])
    assert (found["retimed"], found["reproduced"], found["median_half_width"]) == (0, None, None)
