"""From samples to a ratio with its interval."""

from __future__ import annotations

import numpy as np
import pytest

from tuning.measure.outcome import Timing
from tuning.measure.timing.stats import bootstrap_ratio, half_iqr, per_call_us, pool, timing


def test_the_interval_holds_the_truth_about_95_times_of_100() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        default = 100 * np.exp(rng.normal(0, 0.05, 15))
        candidate = 80 * np.exp(rng.normal(0, 0.05, 15))
        _, low, high = bootstrap_ratio(default, candidate)
        held += low <= 1.25 <= high
    assert held >= 180


def test_what_disturbs_both_of_a_pair_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(4)
    host = np.exp(rng.normal(0, 0.5, 20))
    middle, low, high = bootstrap_ratio(100 * host, 50 * host)
    assert (middle, low, high) == pytest.approx((2.0, 2.0, 2.0))


def test_same_samples_give_the_same_interval() -> None:
    samples = [1.0, 1.1, 0.9, 1.05, 0.97]
    assert bootstrap_ratio(samples, samples[::-1]) == bootstrap_ratio(samples, samples[::-1])


def test_a_fixed_cost_is_taken_off_but_never_more_than_there_can_be() -> None:
    once, twice = [30_000.0 + 100_000.0] * 5, [30_000.0 + 200_000.0] * 5
    assert per_call_us(once, twice, 100, most_fixed_ns=50_000.0) == pytest.approx([1.0] * 5)
    # Three times the fixed cost that is possible: the rest is the candidate's own.
    assert per_call_us(once, twice, 100, most_fixed_ns=10_000.0)[0] > 1.1


def test_noise_never_makes_a_time_zero_or_negative() -> None:
    assert min(per_call_us([5000.0, 9000.0], [5000.0, 5000.0], 10, most_fixed_ns=1e9)) > 0.1


def test_spread_is_half_the_interquartile_range() -> None:
    assert half_iqr([1, 2, 3, 4, 5]) == 1.0
    assert timing([2.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]).spread_us == 1.0


def sitting(default_us: float, candidate_us: float) -> Timing:
    return timing([default_us * f for f in (0.99, 1.0, 1.01)], [candidate_us * f for f in (0.99, 1.0, 1.01)])


def test_a_lucky_process_of_the_default_moves_nobody() -> None:
    pooled = pool([sitting(100, 50), sitting(180, 50), sitting(102, 50)])
    assert pooled.default_us == pytest.approx(102)
    assert pooled.ratio_to_default == pytest.approx(2.04)
    assert pooled.ratio_high / pooled.ratio_low < 1.1


def test_a_candidate_whose_processes_differ_gets_a_wide_interval() -> None:
    pooled = pool([sitting(100, 50), sitting(100, 110), sitting(100, 52)])
    assert pooled.ratio_to_default == pytest.approx(100 / 52)
    assert pooled.ratio_low < 0.92 and pooled.ratio_high > 2.0
