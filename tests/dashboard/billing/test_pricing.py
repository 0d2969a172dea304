"""Prices are a pure function: exact, bounded, and independent of order where they should be."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.billing.pricing import (
    MOST_MICROS,
    Price,
    PriceTier,
    Quote,
    SoFar,
    UsesQuote,
    list_price,
    quote,
    quote_uses,
    total,
)

micros = st.integers(0, 10**9)
calls = st.floats(0.001, 1e9, allow_nan=False)
times = st.floats(0.01, 1e6, allow_nan=False)
hits = st.lists(st.tuples(st.integers(1, 4), calls, times, times), max_size=40)
caps = st.none() | st.integers(0, 10**9)


@st.composite
def tiered(draw, falling=False):
    """Tiers by rising ``from_hit``, the first from 1."""
    starts = sorted(draw(st.sets(st.integers(2, 30), max_size=4)))
    prices = [(draw(micros), draw(st.integers(0, 10**6))) for _ in range(len(starts) + 1)]
    if falling:
        firsts = sorted((one for one, _ in prices), reverse=True)
        seconds = sorted((one for _, one in prices), reverse=True)
        prices = list(zip(firsts, seconds, strict=True))
    return tuple(PriceTier(start, *pair) for start, pair in zip([1, *starts], prices, strict=True))


@pytest.mark.parametrize(
    ("per_hit", "per_second", "seconds", "expected"),
    [
        (10_000, 0, 5.0, 10_000),
        (0, 2_000_000, 0.5, 1_000_000),
        (10, 3, 0.5, 12),  # 1.5 millionths are two: half is rounded up
        (10, 1, 0.49, 10),
        (7, 2_000_000, -1.0, 7),  # what saves nothing costs no time
    ],
)
def test_examples(per_hit, per_second, seconds, expected):
    assert list_price(PriceTier(1, per_hit, per_second), 1.0, 2e6 + seconds * 1e6, 2e6) == expected


@given(
    tier=st.builds(PriceTier, st.just(1), micros, st.integers(0, 10**9)),
    calls=calls,
    default=times,
    served=times,
)
def test_rounding_is_to_the_nearest_and_halves_up(tier, calls, default, served):
    exact = Fraction(calls) * (Fraction(default) - Fraction(served)) * tier.per_saved_second_micros / 10**6
    price = list_price(tier, calls, default, served) - tier.per_hit_micros
    if exact <= 0:
        assert price == 0
    elif tier.per_hit_micros + exact < MOST_MICROS - 1:
        assert -Fraction(1, 2) <= exact - price < Fraction(1, 2)


@given(tier=st.builds(PriceTier, st.just(1), st.integers(0, MOST_MICROS), st.integers(0, MOST_MICROS)),
       calls=st.floats(0, 1e15), default=st.floats(0, 1e12), served=st.floats(0, 1e12))  # fmt: skip
def test_no_hit_costs_more_than_the_most_whatever_is_claimed(tier, calls, default, served):
    assert 0 <= list_price(tier, calls, default, served) <= MOST_MICROS


TIERS = (PriceTier(1, 10, 2_000_000), PriceTier(3, 4), PriceTier(5, 1))
SECOND = (1e6, 0.5, 0.0)
"""Calls, default and served microseconds of a hit that saves half a second: a million in the first tier."""


@pytest.mark.parametrize(
    ("before", "listed"), [(0, 1_000_010), (1, 1_000_010), (2, 4), (3, 4), (4, 1), (400, 1)]
)
def test_the_price_of_the_next_hit_is_that_of_its_tier(before, listed):
    assert quote(Price(TIERS), SoFar(before), *SECOND) == Quote(listed, listed)


@pytest.mark.parametrize(
    ("month", "operator", "before", "charged"),
    [
        (None, None, SoFar(0, 99, 99), 10),
        (100, None, SoFar(0, 90, 99), 10),
        (100, None, SoFar(0, 91, 99), 9),
        (100, None, SoFar(0, 100, 0), 0),
        (100, None, SoFar(0, 130, 0), 0),
        (0, None, SoFar(), 0),
        (None, 50, SoFar(0, 99, 40), 10),
        (None, 50, SoFar(0, 99, 43), 7),
        (None, 50, SoFar(0, 99, 60), 0),
        (100, 50, SoFar(0, 93, 45), 5),
        (100, 50, SoFar(0, 97, 45), 3),
    ],
)
def test_a_cap_leaves_of_a_price_what_is_left_of_it(month, operator, before, charged):
    price = Price((PriceTier(1, 10),), month, operator)
    assert quote(price, before, 1.0, 1.0, 1.0) == Quote(10, charged)


def test_a_month_is_charged_hit_by_hit():
    free = (1.0, 5.0, 5.0)
    assert total(Price(TIERS), []) == 0
    assert total(Price(TIERS), [(1, *free)] * 6) == 10 + 10 + 4 + 4 + 1 + 1
    assert total(Price(TIERS), [(1, *SECOND), (2, *free)]) == 1_000_010 + 10
    assert total(Price(TIERS, 23), [(1, *free)] * 6) == 23
    capped = Price((PriceTier(1, 10),), None, 15)
    assert total(capped, [(1, *free), (2, *free), (1, *free), (1, *free), (2, *free)]) == 15 + 15


def test_no_price_passes_the_most():
    assert list_price(PriceTier(1, MOST_MICROS + 1), 1.0, 1.0, 1.0) == MOST_MICROS
    assert list_price(PriceTier(1, MOST_MICROS - 1, 1), 1e9, 1e3, 0.0) == MOST_MICROS
    assert list_price(PriceTier(1, 5, 1), 1e6, 1.0, 3.0) == 5


@given(tiers=tiered(), month=caps, operator=caps, hits=hits)
def test_caps_are_never_exceeded_and_totals_never_fall(tiers, month, operator, hits):
    price = Price(tiers, month, operator)
    totals = [total(price, hits[:n]) for n in range(len(hits) + 1)]
    assert totals == sorted(totals)
    if month is not None:
        assert totals[-1] <= month
    if operator is not None:
        for number in range(1, 5):
            mine = [hit for hit in hits if hit[0] == number]
            assert total(price, mine) <= operator
    assert totals[-1] <= total(Price(tiers), hits)


@given(tiers=tiered(falling=True), calls=calls, default=times, served=times, before=st.integers(0, 60))
def test_falling_tiers_never_make_a_later_hit_dearer(tiers, calls, default, served, before):
    price = Price(tiers)
    earlier = quote(price, SoFar(before), calls, default, served).micros
    later = quote(price, SoFar(before + 1), calls, default, served).micros
    assert later <= earlier


@given(tiers=tiered(), number=st.integers(1, 100))
def test_the_tier_is_the_last_that_has_begun(tiers, number):
    tier = Price(tiers).tier(number)
    assert tier.from_hit <= number
    assert all(one.from_hit > number for one in tiers if one.from_hit > tier.from_hit)


@given(first=micros, second=st.integers(0, 10**6), month=caps, operator=caps, hits=hits, data=st.data())
def test_without_tiers_the_total_does_not_depend_on_the_order(first, second, month, operator, hits, data):
    price = Price((PriceTier(1, first, second),), month, operator)
    assert total(price, data.draw(st.permutations(hits))) == total(price, hits)


@given(tiers=tiered(), month=caps, hits=hits, data=st.data())
def test_with_tiers_by_hit_alone_neither(tiers, month, hits, data):
    flat = tuple(PriceTier(one.from_hit, one.per_hit_micros) for one in tiers)
    price = Price(flat, month)
    assert total(price, data.draw(st.permutations(hits))) == total(price, hits)


@settings(max_examples=50)
@given(tiers=tiered(), month=caps, operator=caps, hits=hits, cut=st.integers(0, 40))
def test_a_month_may_be_cut_into_lookups_anywhere(tiers, month, operator, hits, cut):
    """What a lookup costs depends on what came before it, not on how hits were put together."""
    price = Price(tiers, month, operator)
    by_operator: dict[int, int] = {}
    count = spent = 0
    for part in (hits[:cut], hits[cut:]):
        for number, *figures in part:
            one = quote(price, SoFar(count, spent, by_operator.get(number, 0)), *figures)
            count, spent = count + 1, spent + one.micros
            by_operator[number] = by_operator.get(number, 0) + one.micros
    assert spent == total(price, hits)


def test_many_uses_cost_what_each_costs_after_the_other():
    chance = random.Random(7)
    for _ in range(300):
        starts = sorted(chance.sample(range(2, 40), chance.randint(0, 3)))
        cap = [None, None, chance.randint(0, 200)]
        tiers = tuple(
            PriceTier(start, chance.randint(0, 9), chance.choice([0, 0, 7])) for start in [1, *starts]
        )
        price = Price(tiers, chance.choice(cap), chance.choice(cap))
        before = SoFar(chance.randint(0, 30), spent := chance.randint(0, 90), chance.randint(0, spent))
        uses, room, hit = chance.randint(1, 60), chance.randint(0, 150), (2e5, 9.0, 4.0)
        one_by_one, so_far = UsesQuote(), before
        for _ in range(uses):
            one = quote(price, so_far, *hit)
            if one_by_one.micros + one.micros > room:
                break
            one_by_one = UsesQuote(
                one_by_one.uses + 1,
                one_by_one.list_micros + one.list_micros,
                one_by_one.micros + one.micros,
            )
            so_far = SoFar(so_far.hits + 1, so_far.micros + one.micros, so_far.operator_micros + one.micros)
        assert quote_uses(price, before, uses, room, *hit) == one_by_one
