"""Placement by expected waiting time: the document's examples (docs/g4.md), its invariants, and bad input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opatlas.placement.queues import (
    POLICIES,
    BadReferenceTime,
    NoEngine,
    Placed,
    Placement,
    expected_wait,
    level_s,
)
from opatlas.placement.references import ENOUGH, ReferenceTime

MS = 1e-3


def conv(ms: float, kind: str = "conv") -> ReferenceTime:
    return ReferenceTime(kind, ms * MS)


def waits_ms(placement: Placement, now: float = 0.0) -> list[float]:
    return [pytest.approx(placement.wait_s(name, now) / MS) for name in placement.queues]


# ---- the document's examples ------------------------------------------------------------------------------


def test_of_queues_at_70_80_and_100_ms_the_one_at_70_is_chosen() -> None:
    """Paragraph 60: queues a, b and c at 70, 80 and 100 ms, so the operator is added to a."""
    for names in (("a", "b", "c"), ("c", "b", "a")):
        starts = {"a": 70 * MS, "b": 80 * MS, "c": 100 * MS}
        placement = Placement({name: starts[name] for name in names})
        assert placement.place(conv(25), 0.0).engine == "a"


def test_an_operator_of_10_ms_raises_a_queue_of_50_to_60() -> None:
    """Paragraph 69."""
    placement = Placement({"a": 50 * MS})
    placement.place(conv(10), 0.0)
    assert placement.queues["a"].expected_s == 0.060


def test_an_operator_of_10_ms_that_is_done_lowers_a_queue_of_50_to_40() -> None:
    """Paragraph 70."""
    placement = Placement({"a": 0.0})
    first = placement.place(conv(10), 0.0)
    placement.place(conv(40), 0.0)
    assert placement.queues["a"].expected_s == 0.050
    placement.take("a", 0.0)
    placement.done(first, 0.010)
    assert placement.queues["a"].expected_s == 0.040


def test_a_queue_waits_its_start_value_and_what_waits_in_it() -> None:
    """Paragraphs 54 and 55: start values may differ, and each operator's expected time is added to them."""
    placement = Placement({"a": 5 * MS, "b": 0.0})
    for ms in (3, 4, 8):
        placement.place(conv(ms), 0.0)
    # 3 → b (0 before 5), 4 → b (3 before 5), 8 → a (5 before 7).
    assert waits_ms(placement) == [13, 7]


def test_one_operator_at_a_time_and_all_queues_are_looked_at_again_after_each() -> None:
    """Paragraphs 61 to 66: until every operator has its queue; short ones go where the long one is not."""
    placement = Placement({"a": 0.0, "b": 0.0})
    chosen = [placement.place(conv(ms), 0.0).engine for ms in (100, 10, 10, 10, 10)]
    assert chosen == ["a", "b", "b", "b", "b"]
    assert waits_ms(placement) == [100, 40]


def test_by_the_number_of_operators_short_ones_wait_behind_a_long_one() -> None:
    """Paragraph 2: what is wrong with counting, which is the policy ``shortest_queue``."""
    by = {}
    for name in ("expected_wait", "shortest_queue", "round_robin"):
        placement = Placement({"a": 0.0, "b": 0.0}, POLICIES[name])
        by[name] = [placement.place(conv(ms), 0.0).engine for ms in (100, 10, 10, 10)]
    assert by["expected_wait"] == ["a", "b", "b", "b"]
    assert by["shortest_queue"] == by["round_robin"] == ["a", "b", "a", "b"]


def test_when_all_are_placed_new_ones_are_waited_for() -> None:
    """Paragraph 71: nothing ends, and what ran meanwhile is off the book when the next model comes."""
    placement = Placement({"a": 0.0, "b": 0.0})
    for _ in range(4):
        placement.place(conv(10), 0.0)
    assert run_dry(placement, {}, 0.0) == 4
    assert waits_ms(placement) == [0, 0]
    assert placement.place(conv(10), 9.0).expected_s == 0.0


# ---- invariants -------------------------------------------------------------------------------------------

moves = st.lists(
    st.tuples(
        st.sampled_from(["place", "take", "done", "drop", "remove"]),
        st.integers(0, 5),
        st.floats(1e-3, 10.0),
        st.sampled_from(["conv", "matmul", "relu"]),
    ),
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(moves, st.lists(st.floats(0.0, 5.0), min_size=1, max_size=4))
def test_a_queue_is_always_its_start_and_what_is_not_done_and_never_negative(
    made: Sequence[tuple[str, int, float, str]], starts: Sequence[float]
) -> None:
    """To the nanosecond, whatever happens in which order; and each choice is the best of all single ones."""
    placement = Placement({str(number): start for number, start in enumerate(starts)})
    there: dict[str, list[Placed]] = {name: [] for name in placement.queues}
    runs: dict[str, tuple[Placed, float]] = {}  # what runs, and since when
    now = 0.0
    for move, which, seconds, kind in made:
        now += seconds / 3
        engine = list(placement.queues)[which % len(placement.queues)]
        if move == "place":
            waits = {name: by_hand(placement, there, runs, name, now) for name in placement.queues}
            placed = placement.place(ReferenceTime(kind, seconds), now)
            assert waits[placed.engine] == pytest.approx(min(waits.values()), abs=1e-6)
            assert placed.expected_s == pytest.approx(waits[placed.engine], abs=1e-6)
            there[placed.engine].append(placed)
        elif move == "take":
            taken = placement.take(engine, now)
            assert (taken is None) == (engine in runs or not there[engine])
            if taken:
                runs[engine] = taken, now
        elif move == "done" and engine in runs:
            ran, _ = runs.pop(engine)
            there[engine].remove(ran)
            placement.done(ran, now)
        elif move == "drop":
            for one in [one for one in there[engine] if one not in runs.get(engine, ())][:1]:
                there[engine].remove(one)
                placement.done(one, now)
        elif move == "remove" and len(placement.queues) > 1:
            assert set(placement.remove(engine)) == set(there.pop(engine))
            runs.pop(engine, None)
        for name, queue in placement.queues.items():
            added = sum(one.added_ns for one in there[name])
            assert queue.expected_s == (round(float(starts[int(name)]) * 1e9) + added) / 1e9
            assert len(queue) == len(there[name]) and set(queue) == set(there[name])
            assert placement.wait_s(name, now) >= 0.0


def by_hand(
    placement: Placement,
    there: dict[str, list[Placed]],
    runs: dict[str, tuple[Placed, float]],
    name: str,
    now: float,
) -> float:
    """What a newcomer would wait, counted one by one."""
    waits = placement.queues[name].expected_s - sum(one.added_ns for one in there[name]) / 1e9
    running, began_at = runs.get(name, (None, 0.0))
    for one in there[name]:
        takes = one.added_ns / 1e9 * placement.corrections.ratio(one.reference.kind)
        waits += abs(takes - (now - began_at)) if one == running else takes
    return waits


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8), st.floats(0.0, 1000.0))
def test_the_level_is_what_adding_the_work_in_pieces_comes_to(busy: list[float], work: float) -> None:
    """One queue that all pull from is the document's loop, with very small operators."""
    pieces = 2000
    waits = list(busy)
    for _ in range(pieces):
        waits[waits.index(min(waits))] += work / pieces
    assert level_s(busy, work) == pytest.approx(min(waits), abs=work / pieces + 1e-9)


def test_the_level_of_nobody_is_an_error() -> None:
    with pytest.raises(NoEngine):
        level_s([], 1.0)


# ---- reality ----------------------------------------------------------------------------------------------


def test_what_took_longer_corrects_the_next_of_its_kind_and_leaves_the_book_alone() -> None:
    """A reference time that is wrong by ten times: after three runs its queue waits what it will wait."""
    placement = Placement({"a": 0.0, "b": 0.0})
    run_dry(placement, {"conv": 10.0}, 0.0, [conv(10)] * ENOUGH)
    assert placement.corrections.ratio("conv") == pytest.approx(10.0)
    placement.place(conv(10), 9.0)
    assert placement.queues["a"].expected_s == 0.010, "exactly what was added"
    assert placement.wait_s("a", 9.0) == pytest.approx(0.100)
    assert [placement.place(conv(10, "relu"), 9.0).engine for _ in range(10)] == ["b"] * 10
    assert placement.wait_s("b", 9.0) == pytest.approx(0.100), "another kind is believed as before"


def test_one_disturbed_run_corrects_nothing() -> None:
    placement = Placement({"a": 0.0})
    run_dry(placement, {}, 0.0, [conv(10)] * 6)
    run_dry(placement, {"conv": 500.0}, 1.0, [conv(10)])
    assert placement.corrections.ratio("conv") == pytest.approx(1.0)


def test_what_runs_counts_for_what_is_left_of_it() -> None:
    placement = Placement({"a": 0.0})
    placement.place(conv(100), 0.0)
    placement.take("a", 0.0)
    assert placement.wait_s("a", 0.030) == pytest.approx(0.070)
    assert placement.queues["a"].expected_s == 0.100


def test_an_engine_that_stalls_is_expected_to_stall_on() -> None:
    """Late by so much, it is expected to need as much again: newcomers go elsewhere, and nothing hangs."""
    placement = Placement({"a": 0.0, "b": 0.0})
    placement.place(conv(10), 0.0)
    placement.take("a", 0.0)
    assert placement.wait_s("a", 5.0) == pytest.approx(4.990)
    chosen = {placement.place(conv(10), 5.0).engine for _ in range(400)}
    assert chosen == {"b"}


def test_an_engine_that_is_silent_is_passed_over_until_it_is_heard() -> None:
    placement = Placement({"a": 0.0, "b": 50 * MS}, silent_s=1.0)
    for name in ("a", "b"):
        placement.heard(name, 0.0)
    assert placement.place(conv(1), 0.5).engine == "a"
    placement.heard("b", 2.0)
    assert placement.place(conv(1), 2.0).engine == "b"
    placement.heard("a", 3.0)
    assert placement.place(conv(1), 3.0).engine == "a"
    with pytest.raises(NoEngine, match="None of 2 engines"):
        placement.place(conv(1), 9.0)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_an_engine_that_disappears_gives_back_what_it_had(policy: object) -> None:
    placement = Placement({"a": 0.0, "b": 0.0}, policy)  # type: ignore[arg-type]
    for ms in range(1, 9):
        placement.place(conv(ms), 0.0)
    ran = placement.take("a", 0.0)
    assert ran is not None
    lost = placement.remove("a")
    assert lost[0] == ran
    for one in lost:
        assert placement.place(one.reference, 1.0).engine == "b"
    assert placement.queues["b"].expected_s == pytest.approx(36 * MS)
    with pytest.raises(KeyError):
        placement.done(ran, 2.0)
    placement.add_engine("a")
    with pytest.raises(KeyError):
        placement.done(ran, 2.0)
    assert placement.queues["a"].expected_s == 0.0


def test_without_any_engine_nothing_is_placed() -> None:
    with pytest.raises(NoEngine):
        Placement({}).place(conv(1), 0.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_reference_time_that_is_none_is_refused(seconds: float) -> None:
    placement = Placement({"a": 0.0})
    with pytest.raises(BadReferenceTime):
        placement.place(ReferenceTime("conv", seconds), 0.0)
    assert len(placement.queues["a"]) == 0


@pytest.mark.parametrize("start_s", [-1.0, math.nan, math.inf])
def test_a_start_value_that_is_none_is_refused(start_s: float) -> None:
    with pytest.raises(BadReferenceTime):
        Placement({"a": start_s})


def test_a_priority_is_a_head_start_and_starves_nobody() -> None:
    """Urgent operators without end: what waits is overtaken by those of the next 100 ms, and then runs."""
    placement = Placement({"a": 0.0}, most_head_start_s=0.1)
    patient = placement.place(conv(10), 0.0)
    order = []
    for number in count():
        now = number * 0.010
        placement.place(conv(10, "urgent"), now, head_start_s=math.inf)
        taken = placement.take("a", now)
        assert taken is not None
        order.append(taken)
        placement.done(taken, now + 0.010)
        if taken == patient:
            break
        assert number < 20, "it starves"
    assert len(order) == 11 and {one.reference.kind for one in order[:-1]} == {"urgent"}


def test_of_equals_the_engine_that_made_the_inputs_is_taken_and_handing_over_has_to_gain() -> None:
    placement = Placement({"a": 0.0, "b": 0.0}, away_s=5 * MS)
    assert placement.place(conv(4), 0.0, near="b").engine == "b"
    assert placement.place(conv(4), 0.0, near="b").engine == "b", "4 ms there, 5 for handing over"
    assert placement.place(conv(4), 0.0, near="b").engine == "a"
    assert placement.place(conv(4), 0.0, only=["b"]).engine == "b"
    with pytest.raises(NoEngine):
        placement.place(conv(4), 0.0, only=["c"])


@pytest.mark.parametrize("head_start_s", [math.nan, -5.0, 0.0])
def test_a_head_start_that_is_none_changes_no_order(head_start_s: float) -> None:
    placement = Placement({"a": 0.0}, most_head_start_s=1.0)
    first = placement.place(conv(10), 0.0)
    placement.place(conv(10), 0.1, head_start_s)
    assert placement.take("a", 0.1) == first


def run_dry(
    placement: Placement,
    factors: dict[str, float],
    now: float,
    references: Sequence[ReferenceTime] = (),
) -> int:
    """Place these, then run all that waits, each for its reference time by its kind's factor; how many."""
    for reference in references:
        placement.place(reference, now)
    ran = 0
    for engine in placement.queues:
        at = now
        while taken := placement.take(engine, at):
            at += taken.reference.seconds * factors.get(taken.reference.kind, 1.0)
            placement.done(taken, at)
            ran += 1
    return ran


def test_the_rule_is_what_is_used_unless_another_is_named() -> None:
    named = Placement({"a": 1.0, "b": 0.0}, expected_wait)
    assert Placement({"a": 1.0, "b": 0.0}).place(conv(1), 0.0).engine == named.place(conv(1), 0.0).engine
