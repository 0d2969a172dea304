"""Times as pages write them."""

from __future__ import annotations

import pytest

from tuning.statistics.units import time_said


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (0.977, "0.977 µs"),
        (12.5, "12.5 µs"),
        (1150, "1.15 ms"),
        (999.6, "1 ms"),
        (950_000, "950 ms"),
        (2_464e6, "41.1 min"),
        (400e9, "111 h"),
    ],
)
def test_times_have_a_unit_that_suits_and_no_exponent(value_us: float, text: str) -> None:
    assert time_said(value_us) == text
