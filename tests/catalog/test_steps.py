"""What fails in periodic work stops nobody else, is told of, and is tried again less and less often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.utils import timezone

from catalog import steps
from catalog.errors import StoreError
from catalog.models import Organisation, StepFailure
from catalog.steps import (
    each,
    first_that_works,
    forget_old_failures,
    held_back,
    lasting,
    reason_of,
    set_aside,
    step,
)
from opatlas.errors import InvalidOperator

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_look_at", {})
    monkeypatch.setattr(steps, "_failed_here", {})


def halve(number: int) -> float:
    return 10 / number


def test_a_step_that_fails_is_noted_until_it_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with step("sweeping"):
            raise KeyError("graph")
    row = StepFailure.objects.get()
    assert (row.step, row.row, row.said, row.failures) == ("sweeping", 0, "KeyError: 'graph'", 2)
    with step("sweeping"):
        pass
    assert not StepFailure.objects.exists()
    with step("sweeping") as done:
        raise ValueError("again")
    assert done.error == "ValueError: again"
    for minutes, stands in ((1, True), (4, False)):  # in another process, where it works
        monkeypatch.setattr(steps, "_look_at", {})
        monkeypatch.setattr(steps, "_failed_here", {})
        StepFailure.objects.update(last_at=timezone.now() - timedelta(minutes=minutes))
        with step("sweeping"):
            pass
        assert StepFailure.objects.exists() is stands


def test_it_lasts_after_three_failures_or_five_minutes() -> None:
    for failures, minutes, lasts in ((1, 1, False), (2, 1, False), (3, 1, True), (1, 6, True)):
        StepFailure.objects.all().delete()
        with step("draining"):
            raise OSError("no room")
        first = timezone.now() - timedelta(minutes=minutes)
        StepFailure.objects.update(failures=failures, first_at=first)
        assert lasting().exists() is lasts, (failures, minutes)


def test_a_step_that_works_costs_a_statement_a_minute(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        for _ in range(5):
            with step("sweeping"):
                pass


def test_what_is_no_failure_of_a_step_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StopIteration), step("exploring", raises=(StopIteration,)):
        raise StopIteration
    with step("a statement too slow"):
        raise OperationalError("canceling statement due to statement timeout")
    assert StepFailure.objects.get().step == "a statement too slow"

    def gone() -> Any:
        raise OperationalError("the connection is closed")

    with monkeypatch.context() as away:
        away.setattr(connection, "cursor", gone)
        with pytest.raises(OperationalError), step("sweeping"):
            raise OperationalError("the connection is closed")
    assert StepFailure.objects.count() == 1


def test_one_row_that_fails_leaves_the_others_done_and_is_set_aside_with_a_sentence() -> None:
    told: dict[int, str] = {}
    assert each("halving", [1, 0, 2], halve, aside=told.__setitem__) == [10, 5]
    assert told == {0: "The service failed at it (ZeroDivisionError); who runs the service was told."}


def test_a_row_that_fails_waits_four_times_as_long_each_time_and_is_forgotten_once_it_works() -> None:
    tried: list[int] = []

    def work(number: int) -> None:
        tried.append(number)
        if not heals:
            raise DataError("value too long")

    heals = False
    for failures, wait_s in enumerate((5, 20, 80, 320), start=1):
        each("halving", [7], work)
        row = StepFailure.objects.get()
        assert row.due_at is not None and row.failures == failures == len(tried)
        assert (row.due_at - row.last_at).total_seconds() == pytest.approx(wait_s)
        assert list(held_back("halving")) == [7] and list(held_back("another")) == []
        each("halving", [7], work)
        assert len(tried) == failures, "not before it is due"
        StepFailure.objects.update(due_at=timezone.now())
    heals = True
    each("halving", [7], work)
    assert not StepFailure.objects.exists()


def test_a_trouble_of_the_host_sets_nothing_aside_for_good() -> None:
    for error in (OSError("no room"), MemoryError(), OperationalError("database is locked")):
        StepFailure.objects.all().delete()

        def work(number: int, error: Exception = error) -> None:
            raise error

        each("halving", [7], work, aside=lambda *_: pytest.fail("the row is not to blame"))
        assert list(held_back("halving")) == [7]


def test_processes_that_fail_at_a_row_beside_each_other_are_one_failure() -> None:
    for _ in range(8):
        set_aside("halving", 7, DataError("value too long"))
    row = StepFailure.objects.get()
    assert row.failures == 1 and row.due_at is not None
    assert (row.due_at - row.first_at).total_seconds() == pytest.approx(5)


@pytest.mark.parametrize(("error", "shared", "most_s"), [
    (OperationalError("database is locked"), False, 60),
    (DataError("value too long"), True, 60),
    (DataError("value too long"), False, 6 * 3600),
])  # fmt: skip
def test_what_is_no_fault_of_the_row_or_holds_up_many_is_tried_again_within_a_minute(
    error: Exception, shared: bool, most_s: float
) -> None:
    def work(number: int) -> None:
        raise error

    for _ in range(9):
        StepFailure.objects.update(due_at=timezone.now())
        each("halving", [7], work, shared=shared)
    row = StepFailure.objects.get()
    assert row.due_at is not None
    assert (row.failures, (row.due_at - row.last_at).total_seconds()) == (9, pytest.approx(most_s))


def test_within_a_transaction_what_a_failing_row_wrote_is_taken_back_and_the_others_stay() -> None:
    def enter(name: str) -> None:
        Organisation.objects.create(name=name)
        if name == "bad":
            Organisation.objects.create(name="bad")  # breaks the constraint within the transaction

    with transaction.atomic():
        each("entering", ["a", "bad", "b"], enter)
    assert set(Organisation.objects.values_list("name", flat=True)) >= {"a", "b"}
    assert not Organisation.objects.filter(name="bad").exists()


def test_a_row_that_cannot_even_be_set_aside_is_held_back() -> None:
    def aside(row: int, reason: str) -> None:
        raise ValueError(reason)

    each("halving", [1, 3], lambda number: halve(number - 3), aside=aside)
    assert list(held_back("halving")) == [3]


def test_the_first_row_that_works_is_taken() -> None:
    assert first_that_works("halving", [0, 5, 2], halve) == 2
    assert first_that_works("halving", [0], halve) is None


def test_what_is_told_to_anybody_says_nothing_of_the_services_insides() -> None:
    assert reason_of(InvalidOperator("Relu has no attribute 'x'")) == "Relu has no attribute 'x'."
    hidden = "The service failed at it (StoreError); who runs the service was told."
    assert reason_of(StoreError("/srv/store/ab is gone")) == hidden


def test_what_failed_long_ago_is_told_of_no_more() -> None:
    each("halving", [0], halve, aside=lambda *_: None)
    assert forget_old_failures() == 0
    StepFailure.objects.update(last_at=timezone.now() - timedelta(days=2))
    assert forget_old_failures() == 1
