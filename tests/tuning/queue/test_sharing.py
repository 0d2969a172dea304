"""Whose turn it is: the rule, without a database."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuning.queue.sharing import (
    EXPECTED_S,
    Share,
    Work,
    WorkTurn,
    decayed,
    next_turn,
    others_before,
    portions,
)

A, B, C = 1, 2, 3


def turns(weights: dict[int, float], work: dict[int, Work], rounds: int, takes_s: float = 10.0) -> list[int]:
    """Whose turn it is, round after round, while all of these always have work that takes so long."""
    shares = {number: Share(0.0, weight) for number, weight in weights.items()}
    order = []
    for _ in range(rounds):
        turn = next_turn([WorkTurn(number, work[number]) for number in weights], shares)
        assert turn is not None
        order.append(turn.organisation)
        before = shares[turn.organisation]
        shares[turn.organisation] = Share(before.recent_s + takes_s, before.weight)
    return order


def test_nothing_waits_nobody_has_a_turn() -> None:
    assert next_turn([], {}) is None


def test_a_lone_organisation_has_every_turn() -> None:
    busy = {A: Share(1e6)}
    assert next_turn([WorkTurn(A, Work.TUNE)], busy) == WorkTurn(A, Work.TUNE)


def test_equals_take_turns() -> None:
    order = turns({A: 1, B: 1, C: 1}, dict.fromkeys((A, B, C), Work.CONTEST), 30)
    assert [order.count(number) for number in (A, B, C)] == [10, 10, 10]
    assert all(set(order[at : at + 3]) == {A, B, C} for at in range(0, 30, 3))


def test_weights_divide_the_turns() -> None:
    order = turns({A: 3, B: 1}, {A: Work.TUNE, B: Work.TUNE}, 40)
    assert order.count(A) == pytest.approx(30, abs=1)


def test_five_bombs_of_one_delay_anothers_first_result_by_the_one_that_runs() -> None:
    bombs = WorkTurn(A, Work.EVALUATION)
    assert next_turn([bombs], {}) == bombs
    after_one = {A: Share(60.0)}
    assert next_turn([bombs, WorkTurn(B, Work.FIRST)], after_one) == WorkTurn(B, Work.FIRST)


def test_who_was_idle_has_not_saved_turns_up() -> None:
    """What it would have had in an hour of silence is no more than what the others had lately."""
    assert decayed(600.0, 120.0, 120.0) == 300.0
    assert decayed(600.0, 3600.0, 120.0) < 1e-3
    assert decayed(600.0, -50.0, 120.0) == 600.0, "a clock that went back forgets nothing"


def test_ones_own_first_results_come_before_its_evaluations_and_those_before_contests() -> None:
    assert sorted(EXPECTED_S, key=EXPECTED_S.__getitem__) == [
        Work.FIRST, Work.UPLOAD, Work.RECHECK, Work.EVALUATION, Work.CONTEST, Work.TUNE,
    ]  # fmt: skip
    own = [WorkTurn(A, Work.TUNE), WorkTurn(A, Work.EVALUATION), WorkTurn(A, Work.FIRST)]
    assert next_turn(own, {A: Share(500.0)}) == WorkTurn(A, Work.FIRST)


def test_portions_are_of_what_all_had() -> None:
    assert portions({A: Share(30.0), B: Share(10.0)}) == {A: 0.75, B: 0.25}
    assert portions({A: Share()}) == {A: 0.0}


had = st.builds(Share, st.floats(0.0, 50.0), st.sampled_from([0.5, 1.0, 2.0]))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(0.0, 30.0),
    st.dictionaries(st.integers(1, 4), st.floats(0.0, 40.0)),
    st.dictionaries(st.integers(0, 4), had),
)
def test_what_others_have_before_one_is_what_turns_give_them(
    own_s: float, waiting: dict[int, float], shares: dict[int, Share]
) -> None:
    """Held against the rule itself, in small pieces of equal length."""
    piece = 0.1
    left, known = dict(waiting), {number: shares.get(number, Share()) for number in {0, *waiting}}
    mine = own_s
    while True:
        turn = min(
            (number for number in known if number == 0 or left[number] > 0),
            key=lambda number: (known[number].after(piece), number),
        )
        if turn == 0 and mine < piece / 2:
            break
        known[turn] = Share(known[turn].recent_s + piece, known[turn].weight)
        if turn == 0:
            mine -= piece
        else:
            left[turn] -= piece
    found = others_before(own_s, 0, waiting, shares)
    assert found.keys() == waiting.keys()
    for number, seconds in found.items():
        assert seconds == pytest.approx(waiting[number] - max(left[number], 0.0), abs=12 * piece)
