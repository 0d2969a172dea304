"""Which of a session's first runs are held against ONNX Runtime."""

from __future__ import annotations

from opatlas.session.held_schedule import SHARE, HeldSchedule


def held_of(most: int, runs: int, run_s: float, held_s: float) -> tuple[list[int], HeldSchedule]:
    """The numbers of the runs that are held, each run and each time of ONNX Runtime's taking so long."""
    schedule, found = HeldSchedule(most), list[int]()
    for number in range(1, runs + 1):
        is_due = schedule.is_due
        schedule.ran(run_s)
        if is_due:
            schedule.was_held(held_s)
            found.append(number)
    return found, schedule


def test_the_first_second_fourth_and_eighth_run_are_held_where_that_costs_little() -> None:
    found, schedule = held_of(4, 100, run_s=1.0, held_s=0.01)
    assert found == [1, 2, 4, 8] and schedule.is_over


def test_what_onnx_runtime_did_not_end_in_the_time_of_its_caller_is_charged() -> None:
    schedule = HeldSchedule(4)
    schedule.ran(1.0)
    schedule.gave_up(1.0)
    assert not schedule.is_due and schedule.held == 0
    for _ in range(3):
        schedule.ran(1.0)
    assert schedule.is_due


def test_where_it_costs_more_later_ones_are_held_within_a_share_of_the_time() -> None:
    found, schedule = held_of(5, 100, run_s=1.0, held_s=2.0)
    assert found[:2] == [1, 2] and len(found) == 5 and found[2] > 4
    before_last_s = schedule.later_held_s - 2.0
    assert before_last_s <= SHARE * found[-1]


def test_none_is_held_where_none_is_asked_for() -> None:
    assert held_of(0, 10, 1.0, 0.01)[0] == []
