"""Who may still win, from a few rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tuning.measure.timing.chances import lead


def test_who_is_far_behind_has_no_chance_after_three_rounds() -> None:
    assert lead([1.0, 1.01, 0.99], [1.2, 1.22, 1.19]).chance < 0.01


def test_who_is_as_fast_has_an_even_chance() -> None:
    assert lead([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]).chance == pytest.approx(0.5)


def test_two_processes_differ_however_many_rounds_there_are() -> None:
    found = lead([1.0] * 200, [1.02] * 200)
    assert 0.05 < found.chance < 0.2


def test_rounds_that_disagree_leave_everything_open() -> None:
    assert lead([1.0, 1.0, 1.0], [1.2, 0.7, 2.0]).chance > 0.1


def test_what_slows_a_whole_round_decides_nothing() -> None:
    slow = np.array([1.0, 3.0, 1.0, 9.0])
    assert lead(list(slow), list(1.3 * slow)).chance == lead([1.0] * 4, [1.3] * 4).chance


def test_hardly_ever_is_the_faster_one_dropped() -> None:
    rng = np.random.default_rng(8)
    lost = 0
    for _ in range(500):
        luck = np.exp(rng.normal(0, 0.01, 2))
        rounds = np.exp(rng.normal(0, 0.03, (2, 3)))
        # In truth 2 % faster, whatever these few rounds say.
        lost += lead(list(luck[0] * rounds[0]), list(0.98 * luck[1] * rounds[1])).chance < 0.01
    assert lost < 5
