"""From samples to a ratio with its interval."""

from __future__ import annotations

import numpy as np
import pytest

from opatlas.evidence import Evidence
from tests import by_day
from tuning.measure.timing.stats import (
    ProcessSpread,
    bootstrap_ratio,
    half_iqr,
    per_call_us,
    pool,
    pool_pairs,
    timing,
    usual_variance,
)


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


def sitting(default_us: float, candidate_us: float) -> Evidence:
    return timing([default_us * f for f in (0.99, 1.0, 1.01)], [candidate_us * f for f in (0.99, 1.0, 1.01)])


def pooled_alone(sittings: list[Evidence]) -> Evidence:
    return pool(sittings, usual_variance([[one.ratios for one in sittings]]))


def test_a_lucky_process_of_the_default_moves_nobody() -> None:
    pooled = pooled_alone([sitting(100, 50), sitting(180, 50), sitting(102, 50)])
    assert pooled.default_us == pytest.approx(102)
    assert pooled.ratio_to_default == pytest.approx(2.04)
    # Whoever measures again may draw such a process too.
    assert pooled.ratio_high > 1.3 * pooled.ratio_to_default


def test_a_candidate_whose_processes_differ_gets_a_wide_interval() -> None:
    pooled = pooled_alone([sitting(100, 50), sitting(100, 110), sitting(100, 52)])
    assert pooled.ratio_to_default == pytest.approx(100 / 52)
    assert pooled.ratio_low < 1.0 and pooled.ratio_high > 2.0


def test_evidence_is_the_samples_and_what_was_counted_from_them() -> None:
    found = timing([3.00004, 3.0, 2.99996], [2.00004, 2.0, 1.99996])
    assert (found.median_us, found.default_us, found.ratio_to_default) == (2.0, 3.0, 1.5)
    assert found.samples_us == (2.0, 2.0, 2.0)
    steady = timing([3.12344, 3.12344], [1.12344, 1.12344])
    assert steady.samples_us == (1.1234, 1.1234)
    assert steady.ratio_low == pytest.approx(steady.ratio_to_default / 1.0198, rel=1e-4)
    assert steady.ratio_high == pytest.approx(steady.ratio_to_default * 1.0198, rel=1e-4)


def test_every_sample_can_widen_the_interval() -> None:
    for outlier in range(3):
        samples = [1.0, 1.0, 1.0]
        samples[outlier] = 10.0
        assert bootstrap_ratio(samples, [1.0] * 3) == (1.0, 1.0, 10.0)


@pytest.mark.parametrize(
    ("once_ns", "twice_ns", "most_fixed_ns", "fixed_ns"),
    [
        (1000.0, 1900.0, 1e9, 100.0),
        (1000.0, 1900.0, 40.0, 40.0),
        (1000.0, 1200.0, 1e9, 500.0),  # never more than half of a batch
        (1000.0, 2500.0, 1e9, 0.0),  # and never less than nothing
    ],
)
def test_what_a_batch_costs_once_is_within_bounds(
    once_ns: float, twice_ns: float, most_fixed_ns: float, fixed_ns: float
) -> None:
    (found,) = per_call_us([once_ns], [twice_ns], 10, most_fixed_ns)
    assert found == pytest.approx((once_ns + twice_ns - 2 * fixed_ns) / 30 / 1e3)


def test_sittings_are_pooled_by_their_medians() -> None:
    # median, spread, default, ratio with its bounds, samples
    sittings = [
        Evidence(50.0, 3.0, 100.0, 2.0, 1.5, 2.5, (1.0,)),
        Evidence(40.0, 1.0, 120.0, 3.0, 2.4, 3.3, (2.0,)),
        Evidence(60.0, 2.0, 90.0, 1.5, 1.2, 1.8, (3.0,)),
    ]
    pooled = pooled_alone(sittings)
    assert (pooled.median_us, pooled.spread_us, pooled.default_us) == (50, 2, 100)
    assert pooled.ratio_to_default == pytest.approx(2.0)
    assert pooled.samples_us == (1.0, 2.0, 3.0)
    assert pooled.ratio_low < 1.5 and pooled.ratio_high > 3.0


@pytest.mark.parametrize("deviation", by_day.only([0.016], [0.01, 0.016, 0.04, 0.08]))
def test_an_interval_holds_what_as_many_further_sittings_find(deviation: float) -> None:
    """As often as it says, whatever processes of a machine differ by: the four of a final tell it."""
    rng = np.random.default_rng(5)

    def found() -> Evidence:
        default = rng.normal(0, deviation / 2**0.5, 3)  # each sitting's process of the default is everybody's
        runners = [
            [sitting(100 * luck, 50) for luck in np.exp(occasion + default + own)]
            for occasion, own in zip(
                rng.normal(0, deviation * 0.5**0.5, 4), rng.normal(0, deviation / 2**0.5, (4, 3)), strict=True
            )
        ]
        return pool(runners[0], usual_variance([[one.ratios for one in sittings] for sittings in runners]))

    pairs = [(found(), found()) for _ in range(400)]
    held = sum(one.ratio_low <= again.ratio_to_default <= one.ratio_high for one, again in pairs)
    assert held >= 0.92 * 400
    half = np.median([(one.ratio_high / one.ratio_low - 1) / 2 for one, _ in pairs])
    assert half < 4 * deviation, "and says something"


@pytest.mark.parametrize("deviation", by_day.only([0.04], [0.01, 0.04, 0.08]))
def test_one_sitting_holds_as_often_once_finals_have_told_what_processes_differ_by(deviation: float) -> None:
    rng, spread = np.random.default_rng(7), ProcessSpread()

    def sittings(count: int) -> list[Evidence]:
        occasion = rng.normal(0, deviation * 0.5**0.5)
        return [sitting(100 * luck, 50) for luck in np.exp(occasion + rng.normal(0, deviation, count))]

    for _ in range(30):
        spread.learn([[one.ratios for one in sittings(3)] for _ in range(4)])
    assert 0.5 * deviation < spread.variance**0.5 < 1.6 * deviation
    held = 0
    for _ in range(400):
        [alone], again = sittings(1), sittings(3)
        found = pool([alone], usual_variance([[alone.ratios]], spread.variance))
        held += found.ratio_low <= np.median([one.ratio_to_default for one in again]) <= found.ratio_high
    assert held >= 0.92 * 400


def test_a_first_result_alone_teaches_nothing() -> None:
    spread = ProcessSpread()
    before = spread.variance
    spread.learn([[sitting(100, 50).ratios], [sitting(100, 60).ratios]])
    spread.learn([])
    assert spread.variance == before


def test_who_differs_wildly_from_itself_widens_nobody_elses_interval() -> None:
    steady = [[sitting(100 * luck, 50).ratios for luck in (0.99, 1.0, 1.01)] for _ in range(3)]
    wild = [sitting(100 * luck, 50).ratios for luck in (0.5, 1.0, 2.0)]
    assert usual_variance([*steady, wild]) < 2 * usual_variance(steady)
    assert usual_variance([wild]) > 100 * usual_variance(steady)
    once = [[sitting(100, 50).ratios]] * 5
    assert usual_variance([wild, *once]) > 50 * usual_variance(steady), "who sat once says nothing of it"


def test_more_sittings_of_a_pair_tell_it_better() -> None:
    pairs = [sitting(100, 97).ratios, sitting(101, 97).ratios, sitting(100, 98).ratios]
    usual = usual_variance([pairs])
    few, many = pool_pairs(pairs, usual), pool_pairs(pairs * 2, usual)
    assert few.ratio == pytest.approx(many.ratio)
    assert few.low < many.low < many.ratio < many.high < few.high
    assert few.low < 1.02 < many.high
