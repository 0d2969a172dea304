"""Values that live at the same time never share a byte, and those that do not share what they can."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opatlas.plan.arena import ALIGNMENT, Lifetime, place, place_apart

lifetimes = st.builds(
    lambda first, length, size: Lifetime(first, first + length, size),
    st.integers(-1, 20), st.integers(0, 8), st.integers(0, 2000),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lifetimes, max_size=40))
def test_no_two_that_live_together_overlap(lives: list[Lifetime]) -> None:
    offsets, total = place(dict(enumerate(lives)))
    for number, life in enumerate(lives):
        assert offsets[number] % ALIGNMENT == 0 and offsets[number] + life.size <= total
    for one, other in combinations(range(len(lives)), 2):
        a, b = lives[one], lives[other]
        if a.first <= b.last and b.first <= a.last and a.size and b.size:
            apart = offsets[one] + a.size <= offsets[other] or offsets[other] + b.size <= offsets[one]
            assert apart
    load = np.zeros(40)
    for life in lives:
        load[life.first + 1 : life.last + 2] += -(-life.size // ALIGNMENT) * ALIGNMENT
    assert load.max(initial=0) <= total <= sum(-(-life.size // ALIGNMENT) * ALIGNMENT for life in lives)


def test_parts_lie_apart_each_as_small_as_alone() -> None:
    lives = {number: Lifetime(number, number, 100) for number in range(6)}  # all could share one place
    offsets, total = place_apart(lives, {0: 1, 1: 1, 2: 2, 3: 2})
    assert total == 3 * 2 * ALIGNMENT
    places = [{offsets[one] for one in part} for part in ((0, 1), (2, 3), (4, 5))]
    assert [len(one) for one in places] == [1, 1, 1] and len(set().union(*places)) == 3
    assert place_apart(lives, {}) == place(lives)
