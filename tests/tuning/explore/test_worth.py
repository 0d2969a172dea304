"""What the next slice of tuning is expected to bring, and what that saves."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tuning.explore import worth
from tuning.explore.worth import DoneSlice, Estimator, Expectation, SliceTraits


def past(gained: float, number: int = 0, *, op: str = "Conv", of: int = 1, route: str = "tvm") -> DoneSlice:
    return DoneSlice(SliceTraits(of, route, op, f"{op}, medium", number), gained)


def about(op: str = "Conv", number: int = 0, of: int = 99, room: float = 1.0) -> SliceTraits:
    return SliceTraits(of, "tvm", op, f"{op}, medium", number, room)


def test_without_a_history_the_prior_rules_and_says_so() -> None:
    expected = Estimator([]).expect(about())
    assert expected.gain == pytest.approx(worth.PRIOR_GAIN)
    assert "nothing" in expected.why


def test_few_slices_of_a_kind_lean_on_all_many_rule() -> None:
    rest = [past(0.02, of=n, op="Relu") for n in range(40)]
    few = Estimator([*rest, past(0.4)]).expect(about()).gain
    many = Estimator([*rest, *(past(0.4, of=100 + n) for n in range(40))]).expect(about()).gain
    relu = Estimator(rest).expect(about("Relu")).gain
    assert relu < few < many
    assert many == pytest.approx(0.4, abs=0.06)
    assert relu == pytest.approx(0.02, abs=0.02)


def test_later_slices_are_expected_to_bring_less_as_fast_as_they_did() -> None:
    quickly = [past(0.3 * 0.35**number, number, of=n) for n in range(12) for number in range(4)]
    slowly = [past(0.3 * 0.9**number, number, of=n) for n in range(12) for number in range(4)]
    for history, decay in ((quickly, 0.35), (slowly, 0.9)):
        estimator = Estimator(history)
        assert estimator.decay == pytest.approx(decay, abs=0.1)
        gains = [estimator.expect(about(number=number)).gain for number in range(4)]
        assert gains == sorted(gains, reverse=True)


def test_an_operators_own_slices_count_most() -> None:
    kind = [past(0.2, of=n) for n in range(20)]
    lucky = Estimator([*kind, past(0.5, of=7)]).expect(about(number=1, of=7)).gain
    idle = Estimator([*kind, past(0.0, of=7)]).expect(about(number=1, of=7)).gain
    stranger = Estimator(kind).expect(about(number=1)).gain
    assert idle < stranger < lucky


def test_little_room_above_the_machines_limits_means_little_gain() -> None:
    estimator = Estimator([past(0.3, of=n) for n in range(10)])
    assert estimator.expect(about(room=0.1)).gain < 0.2 * estimator.expect(about()).gain
    assert worth.room_of(1e6, flops=1e6, bytes_moved=1e3, threads=2) > 0.99
    assert worth.room_of(20.0, flops=8e6, bytes_moved=1e3, threads=2) < 0.1 + 1e-9
    assert worth.room_of(1e-9, flops=1e9, bytes_moved=1e9, threads=2) == pytest.approx(0.1)


def test_more_threads_reach_further_so_that_more_room_is_left() -> None:
    one, four = (worth.room_of(40.0, flops=8e5, bytes_moved=1e3, threads=threads) for threads in (1, 4))
    assert 0.1 < one < four < 1
    assert 1 - four == pytest.approx((1 - one) / 4)
    assert worth.room_of(40.0, 8e5, 1e3, threads=0) == one


def test_what_is_not_worth_its_seconds_says_why() -> None:
    assert worth.not_worth(10, 5000, Expectation(0.1, "learnt"), 15) == ""
    reason = worth.not_worth(1, 12, Expectation(0.003, "learnt from 9 slices of Relu"), 15)
    assert "0.3 %" in reason and "9 slices of Relu" in reason and "15 s" in reason
    assert worth.not_worth(0.01, 12, Expectation(0.1, ""), 15), "a tenth of next to nothing"


def test_a_few_hopeless_operators_are_tried_all_the_same() -> None:
    keys = [f"o1:{number:064x}" for number in range(800)]
    tried = [key for key in keys if worth.hopeless_but_tried(0, key)]
    assert len(tried) == 100
    assert not any(worth.hopeless_but_tried(1, key) for key in keys)


def test_accuracy_is_counted() -> None:
    found = worth.accuracy([(0.1, 0.0), (0.2, 0.1), (0.3, 0.5)])
    assert (found.count, found.mean_expected, found.mean_gained) == (
        3,
        pytest.approx(0.2),
        pytest.approx(0.2),
    )
    assert found.mean_absolute_error == pytest.approx(0.4 / 3)
    assert found.rank_correlation == pytest.approx(1.0)
    assert worth.accuracy([(0.1, 0.3)]).rank_correlation is None


def test_rank_correlation_agrees_with_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    made = random.Random(3)
    one = [made.randrange(8) for _ in range(60)]
    other = [value + made.randrange(6) for value in one]
    assert worth.spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert worth.spearman([1, 1], [2, 3]) is None
    assert worth.spearman([], []) is None


@pytest.mark.parametrize("seed", range(5))
def test_spending_by_worth_saves_more_than_taking_turns(seed: int) -> None:
    """The same operators and the same luck; what differs is who gets the next slice."""
    by_worth, in_turns = _saved(seed, _most_worth), _saved(seed, _in_turns)
    assert by_worth > 1.15 * in_turns


_KINDS = {"Conv": 0.35, "MatMul": 0.15, "Softmax": 0.03, "Relu": 0.0}
_Choice = Callable[[Estimator, list[SliceTraits], list[float]], int]


def _saved(seed: int, choose: _Choice, operators: int = 60, slices: int = 90) -> float:
    """µs saved per run of the workload by so many slices over operators with hidden gains."""
    made = random.Random(seed)
    kinds = [made.choice(list(_KINDS)) for _ in range(operators)]
    weights = [10 ** made.uniform(1, 4) * made.choice((1, 1, 2, 8)) for _ in range(operators)]
    hidden = [_KINDS[kind] * made.uniform(0.3, 1.7) for kind in kinds]
    luck = [[made.uniform(0.2, 1.0) for _ in range(slices)] for _ in range(operators)]
    left, done, history = list(weights), [0] * operators, list[DoneSlice]()
    for _ in range(slices):
        asks = [
            SliceTraits(n, "tvm", kind, f"{kind}, medium", done[n]) for n, kind in enumerate(kinds)
        ]  # fmt: skip
        chosen = choose(Estimator(history), asks, left)
        gain = hidden[chosen] * 0.5 ** done[chosen] * luck[chosen][done[chosen]]
        history.append(DoneSlice(asks[chosen], gain))
        left[chosen] *= 1 - gain
        done[chosen] += 1
    return sum(weights) - sum(left)


def _most_worth(estimator: Estimator, asks: list[SliceTraits], left: list[float]) -> int:
    values = [worth.worth_of_slice_us(1, left[n], estimator.expect(ask).gain) for n, ask in enumerate(asks)]
    return max(range(len(asks)), key=lambda n: values[n])


def _in_turns(estimator: Estimator, asks: list[SliceTraits], left: list[float]) -> int:
    return min(range(len(asks)), key=lambda n: (asks[n].number, n))
