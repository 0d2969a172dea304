"""What a profile says of branches and loops, formula by formula; numbers in brackets are the paragraphs of
the source document (docs/plans.md)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opatlas.graph.linked import NodePath
from opatlas.graph.profile import InvalidProfile, ModelProfile, NodeProfile
from tests import by_day
from tuning.graph.layout.counts import (
    ControlFlow,
    branch_probabilities,
    expected_counts,
    iterations,
)

BRANCH = ControlFlow((2,), "If", (((2, 0, 0), (2, 0, 1)), ((2, 1, 0),)))
LOOP = ControlFlow((3,), "Loop", (((3, 0, 0), (3, 0, 1)),))
INNER = ControlFlow((3, 0, 1), "If", (((3, 0, 1, 0, 0),), ((3, 0, 1, 1, 0),)))


def profile(counts: Mapping[NodePath, int], runs: int = 1) -> ModelProfile:
    return ModelProfile("m1:x", "", "test", runs, {at: NodeProfile(n, 1.0, 1.0) for at, n in counts.items()})


def test_a_branch_is_known_by_three_unique_names() -> None:
    """[0081]–[0082]"""
    assert BRANCH.triple == ("2", "2/0/0", "2/1/0")
    assert ControlFlow((2,), "If", ((), ((2, 1, 0),))).triple == ("2", "", "2/1/0")


def test_a_branchs_probability_is_its_runs_by_those_of_the_condition() -> None:
    """[0085], [0086]"""
    seen = profile({(2,): 80, (2, 0, 0): 60, (2, 1, 0): 20})
    assert branch_probabilities(seen, BRANCH) == (0.75, 0.25)


def test_a_branch_whose_first_operator_was_fused_away_is_counted_by_its_next() -> None:
    seen = profile({(2,): 80, (2, 0, 1): 60, (2, 1, 0): 20})
    assert branch_probabilities(seen, BRANCH) == (0.75, 0.25)


def test_branches_that_ran_more_often_than_their_if_are_refused() -> None:
    with pytest.raises(InvalidProfile, match=r"ran 60 and 30 times, itself 80\."):
        branch_probabilities(profile({(2,): 80, (2, 0, 0): 60, (2, 1, 0): 30}), BRANCH)


def test_iterations_are_the_documents_for_one_entry_and_right_for_several() -> None:
    """[0105], [0106]: (next + 1) ÷ enter, which is exact for one entry."""
    once = profile({(3,): 1, (3, 0, 0): 10})
    enter, following = 1, 9
    assert iterations(once, LOOP) == 10 == (following + 1) / enter
    often = profile({(3,): 4, (3, 0, 0): 40})
    enter, following = 4, 36
    assert iterations(often, LOOP) == 10 == (following + enter) / enter != (following + 1) / enter


def test_an_entry_without_an_iteration_counts_as_one() -> None:
    assert iterations(profile({(3,): 4, (3, 0, 0): 2}), LOOP) == 0.5


def test_zero_runs_are_unknown_and_no_division() -> None:
    nothing = profile({})
    assert branch_probabilities(nothing, BRANCH) == (None, None)
    assert iterations(nothing, LOOP) is None
    assert iterations(profile({(3,): 4}), LOOP) is None
    assert branch_probabilities(profile({(2,): 80, (2, 0, 0): 80}), BRANCH) == (1.0, None)
    assert expected_counts([BRANCH, LOOP], nothing) == expected_counts([BRANCH, LOOP], None)


def test_an_unknown_branch_has_what_the_other_leaves_and_never_nothing() -> None:
    def of(counts: Mapping[NodePath, int]) -> tuple[float, float]:
        found = expected_counts([BRANCH], profile(counts))
        return found[2, 0], found[2, 1]

    assert of({(2,): 80, (2, 0, 0): 60}) == (0.75, 0.25)  # all of the other was fused away
    assert of({(2,): 80, (2, 0, 0): 80}) == (1.0, 1 / 80)  # it did not run in so many: less than once in them
    assert of({(2,): 1, (2, 1, 0): 1}) == (1.0, 1.0)  # one run says nothing of the other
    assert of({(2,): 80}) == (1.0, 1.0)


def test_without_a_profile_everything_runs_once() -> None:
    """[0056], [0098]"""
    once = dict.fromkeys([(), (2, 0), (2, 1), (3, 0), (3, 0, 1, 0), (3, 0, 1, 1)], 1.0)
    assert expected_counts([BRANCH, LOOP, INNER], None) == once


def test_nested_counts_multiply() -> None:
    """[0101]: what is in a loop counts as often as it goes round, in it as its own branch says."""
    seen = profile({(3,): 2, (3, 0, 0): 20, (3, 0, 1): 20, (3, 0, 1, 0, 0): 5, (3, 0, 1, 1, 0): 15}, runs=2)
    found = expected_counts([LOOP, INNER], seen)
    assert found == {(): 1.0, (3, 0): 10.0, (3, 0, 1, 0): 2.5, (3, 0, 1, 1): 7.5}


@settings(max_examples=by_day.draws(100), derandomize=True)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 9), st.integers(1, 9))
def test_a_body_is_expected_as_often_as_it_ran_in_a_run(runs: int, more: int, then: int, other: int) -> None:
    """A condition in a loop, entered once a run: whatever the counts are, factors give back what was seen."""
    rounds = (then + other) * more
    seen = profile(
        {
            (3,): runs,
            (3, 0, 0): rounds,
            (3, 0, 1): rounds,
            (3, 0, 1, 0, 0): then * more,
            (3, 0, 1, 1, 0): other * more,
        },
        runs=runs,
    )
    found = expected_counts([LOOP, INNER], seen)
    assert found[3, 0] == pytest.approx(rounds / runs)
    assert found[3, 0, 1, 0] == pytest.approx(then * more / runs)
    assert found[3, 0, 1, 1] == pytest.approx(other * more / runs)


def test_a_run_costs_its_total_by_its_count_and_self_time_is_apart() -> None:
    """[0072], [0073], [0075], [0078]"""
    seen = NodeProfile(count=80, total_us=89_282.0, self_us=40_000.0)
    assert seen.total_per_run_us == 89_282.0 / 80 and seen.self_per_run_us == 500.0
    assert NodeProfile().total_per_run_us is None
    assert NodeProfile(3, None, None).total_per_run_us is None
