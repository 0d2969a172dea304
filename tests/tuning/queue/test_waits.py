"""What waits for a target's workers: filled from the emptiest, by what is held and what goes before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import MissState
from tuning.models import Exploration, Stage, State, Worker
from tuning.priority import Priority
from tuning.queue import steering, waits
from tuning.queue.promote import promote_misses, situation_of
from tuning.queue.rates import Rates
from tuning.queue.sharing import EXPECTED_S, Work
from tuning.queue.waits import Newcomer, backlog_s, busy_workers, first_results_s, newcomers_waits, wait_of

pytestmark = pytest.mark.django_db

FIRST_S, CONTEST_S = 5.0, 20.0  # as assumed, before anything has ended


@pytest.fixture
def rates() -> Rates:
    return Rates([], [])


@pytest.fixture
def worker(target_row: Any) -> Callable[[str], Worker]:
    """``worker("w1")``: a live one that serves the target."""

    def one(name: str, heard_s: float = -300.0) -> Worker:
        at = timezone.now() - timedelta(seconds=heard_s)
        return Worker.objects.create(name=name, host="here", pid=1, target=target_row, last_seen_at=at)

    return one


def test_the_first_free_worker_takes_what_waits(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates
) -> None:
    """Two workers, one of which holds half a first result and one that has not begun."""
    worker("w1")
    worker("w2")
    row = make_exploration(size=1, worth=1.0)
    assert wait_of(row, rates).seconds == 0.0
    held = {"state": State.RUNNING, "lease_owner": "w1/7"}
    make_exploration(size=2, **held, doing="eager: timing", steps_done=3, steps_total=6)
    make_exploration(size=3, **held, doing="claimed")
    found = wait_of(row, rates)
    assert found.busy_s == {"w1": 1.5 * FIRST_S, "w2": 0.0} and found.seconds == 0.0
    make_exploration(size=4, worth=9.0)
    assert wait_of(row, rates).seconds == FIRST_S, "the one before it has the other worker"
    for size in (5, 6, 7):
        make_exploration(size=size, worth=9.0)
    found = wait_of(row, rates)
    assert (found.ahead, found.ahead_s) == (4, 4 * FIRST_S)
    assert found.seconds == (1.5 + 4) * FIRST_S / 2


def test_what_goes_before_it_is_what_is_claimed_before_it(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates
) -> None:
    worker("w1")
    row = make_exploration(size=1, stage=Stage.CONTEST, priority=Priority.NORMAL, worth=5.0)
    make_exploration(size=2, worth=0.1)
    make_exploration(size=3, stage=Stage.CONTEST, priority=Priority.URGENT, worth=0.1)
    make_exploration(size=4, stage=Stage.CONTEST, worth=7.0)
    for after in ({"worth": 2.0}, {"priority": Priority.LOW, "worth": 9.0}, {"state": State.PAUSED}):
        make_exploration(size=9 + len(Exploration.objects.all()), stage=Stage.CONTEST, **after)
    make_exploration(size=8, stage=Stage.TUNE, worth=99.0)
    found = wait_of(row, rates)
    assert (found.ahead, found.seconds) == (3, FIRST_S + 2 * CONTEST_S)


def test_a_contest_makes_room_for_a_first_result_and_not_for_a_contest(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any
) -> None:
    worker("w1")
    held = {"state": State.RUNNING, "lease_owner": "w1/7", "stage": Stage.CONTEST}
    make_exploration(size=1, **held, doing="tvm: building")
    make_exploration(size=2, **held, doing="claimed")
    for stage, seconds in ((Stage.FIRST, EXPECTED_S[Work.CONTEST]), (Stage.CONTEST, 2 * CONTEST_S)):
        assert busy_workers(stage, rates)[target_row.pk] == {"w1": seconds}


def test_a_silent_worker_is_no_engine(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any
) -> None:
    worker("w1", heard_s=900.0)
    row = make_exploration()
    make_exploration(size=2, state=State.RUNNING, lease_owner="w1/7", doing="eager: timing")
    assert wait_of(row, rates).seconds is None
    assert target_row.pk not in newcomers_waits(busy_workers(Stage.FIRST, rates), rates)
    assert first_results_s(target_row.pk, [Newcomer(2, 1.0, "Relu")], rates) is None
    assert backlog_s(target_row.pk, rates) == 0.0
    worker("w2")
    assert wait_of(row, rates).busy_s == {"w2": 0.0}


def test_what_is_asked_for_now_goes_before_low_priority_and_later_stages(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any
) -> None:
    worker("w1")
    make_exploration(size=1, priority=Priority.URGENT)
    make_exploration(size=2)
    make_exploration(size=3, priority=Priority.LOW)
    make_exploration(size=4, stage=Stage.CONTEST)
    assert newcomers_waits(busy_workers(Stage.FIRST, rates), rates)[target_row.pk].seconds == 2 * FIRST_S
    assert backlog_s(target_row.pk, rates) == 3 * (FIRST_S + CONTEST_S) + CONTEST_S


def test_first_results_are_expected_in_the_order_of_their_claims(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any
) -> None:
    worker("w1")
    make_exploration(size=1, worth=5.0)
    coming = [
        Newcomer(Priority.NORMAL, 4.0, "Relu"),
        Newcomer(Priority.NORMAL, 6.0, "Relu"),
        Newcomer(Priority.URGENT, 0.0, "Relu"),
    ]
    # The urgent one, that of 6, what waits (of 5), that of 4.
    assert first_results_s(target_row.pk, coming, rates) == [4 * FIRST_S, 2 * FIRST_S, FIRST_S]


def test_of_too_many_nothing_is_foretold(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any, monkeypatch: Any
) -> None:
    worker("w1")
    for size in (1, 2, 3):
        make_exploration(size=size)
    coming = [Newcomer(Priority.NORMAL, 4.0, "Relu")]
    monkeypatch.setattr(waits, "MOST_AHEAD", 3)
    assert first_results_s(target_row.pk, coming, rates) == [FIRST_S]
    monkeypatch.setattr(waits, "MOST_AHEAD", 2)
    assert first_results_s(target_row.pk, coming, rates) is None


def test_a_promoted_miss_is_told_when_its_first_result_is_expected(
    worker: Any, make_miss: Callable[..., Any]
) -> None:
    worker("w1")
    for size in (1, 2):
        make_miss("Relu", size)
    before = timezone.now()
    assert promote_misses() == 2
    took_s = (timezone.now() - before).total_seconds()
    expected = sorted(Exploration.objects.values_list("expected_first_at", flat=True))
    seconds = [(at - before).total_seconds() for at in expected]
    assert seconds == pytest.approx([FIRST_S, 2 * FIRST_S], abs=took_s + 0.01)


def test_without_a_worker_nothing_is_foretold_and_a_new_round_forgets_what_was(
    live_worker: Worker, make_miss: Callable[..., Any]
) -> None:
    miss = make_miss("Relu", 1)
    promote_misses()
    row = Exploration.objects.get()
    assert row.expected_first_at is not None
    Exploration.objects.update(state=State.DONE)
    steering.retry(row.pk)
    row.refresh_from_db()
    assert row.expected_first_at is None
    Exploration.objects.update(state=State.DONE)
    type(miss).objects.update(state=MissState.WAITING)
    promote_misses()
    row.refresh_from_db()
    assert row.expected_first_at is not None, "asked for again, it is told again"
    live_worker.delete()
    assert situation_of(row.target).backlog_s == 0.0


def test_another_organisations_thousands_go_before_it_in_turns_only(
    worker: Any, make_exploration: Callable[..., Any], rates: Rates, target_row: Any, tenant: Any
) -> None:
    """Sixty of the host's are worth more; the tenant's second waits for one of its own and one of theirs."""
    worker("w1")
    for size in range(100, 160):
        make_exploration(size=size, worth=99.0)
    make_exploration(size=1, worth=2.0, asked_by=tenant)
    row = make_exploration(size=2, worth=1.0, asked_by=tenant)
    found = wait_of(row, rates)
    assert (found.ahead, found.seconds) == (2, 2 * FIRST_S)
    coming = [Newcomer(Priority.NORMAL, 0.5, "Relu", tenant.pk), Newcomer(Priority.NORMAL, 0.5, "Relu")]
    theirs, hosts = first_results_s(target_row.pk, coming, rates) or ()
    assert theirs == (2 + 2 + 1) * FIRST_S
    assert hosts == (60 + 3 + 1) * FIRST_S, "all of the tenant's, which has three, and its own"
