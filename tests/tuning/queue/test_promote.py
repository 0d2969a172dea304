"""From misses to explorations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
from catalog.models import Miss, MissState, Target
from tuning.models import Exploration, State, Worker
from tuning.priority import Priority
from tuning.queue import steering as queues
from tuning.queue.promote import promote_misses, reweigh, reweigh_asked_again

pytestmark = pytest.mark.django_db


def test_misses_become_explorations_once(make_miss: Callable[..., Any], live_worker: Any) -> None:
    misses = [make_miss("Conv", size, calls=size) for size in (1, 2, 3)]
    assert promote_misses() == 3
    assert promote_misses() == 0
    rows = list(Exploration.objects.order_by("worth"))
    assert [row.calls for row in rows] == [1, 2, 3]
    assert all(row.asked_at == miss.first_asked_at for row, miss in zip(rows, misses, strict=True))
    assert set(Miss.objects.values_list("state", flat=True)) == {MissState.PROMOTED}


def test_related_ones_go_to_the_low_queue_and_waited_for_ones_to_the_urgent(
    make_miss: Callable[..., Any], live_worker: Any
) -> None:
    make_miss("Conv", 1, related=True)
    make_miss("Conv", 2, waited_until=timezone.now() + timedelta(seconds=20))
    make_miss("Conv", 3)
    promote_misses()
    found = {row.operator.summary: row.priority for row in Exploration.objects.select_related("operator")}
    assert found == {"Conv 1": Priority.LOW, "Conv 2": Priority.URGENT, "Conv 3": Priority.NORMAL}


def test_without_a_live_worker_misses_wait_with_the_reason_until_one_comes(
    make_miss: Callable[..., Any], live_worker: Any
) -> None:
    silent = timezone.now() - timedelta(minutes=5)
    Worker.objects.update(last_seen_at=silent)
    Target.objects.update(served_until=silent)
    miss = make_miss()
    assert promote_misses() == 0
    miss.refresh_from_db()
    assert miss.state == MissState.WAITING
    assert "No live worker serves this target" in miss.reason
    Worker.objects.update(last_seen_at=timezone.now())
    Target.objects.update(served_until=timezone.now() + timedelta(seconds=10))
    assert promote_misses() == 1


def test_a_pause_postpones_and_resuming_promotes(make_miss: Callable[..., Any], live_worker: Any) -> None:
    queues.pause("*", reason="maintenance")
    miss = make_miss()
    assert promote_misses() == 0
    miss.refresh_from_db()
    assert (miss.state, miss.reason) == (MissState.POSTPONED, "The queue * is paused: maintenance.")
    assert queues.resume("*")
    assert promote_misses() == 1


def test_too_large_is_discarded_with_its_reason(make_miss: Callable[..., Any], live_worker: Any) -> None:
    miss = make_miss("Relu", size=4 << 30)
    promote_misses()
    miss.refresh_from_db()
    assert miss.state == MissState.DISCARDED
    assert "GiB" in miss.reason
    assert not Exploration.objects.exists()


def test_asking_again_after_an_ended_exploration_begins_a_new_round(
    make_miss: Callable[..., Any], live_worker: Any
) -> None:
    miss = make_miss()
    promote_misses()
    Exploration.objects.update(state=State.DONE, stage=2, tries=1, finished_at=timezone.now())
    Miss.objects.filter(pk=miss.pk).update(state=MissState.WAITING)
    assert promote_misses() == 1
    row = Exploration.objects.get()
    assert (row.state, row.stage, row.round, row.tries, row.finished_at) == (State.QUEUED, 0, 1, 0, None)


def test_more_calls_raise_the_worth_of_what_already_waits(
    make_miss: Callable[..., Any], live_worker: Any
) -> None:
    miss = make_miss("Conv", calls=1)
    promote_misses()
    before = Exploration.objects.get()
    Miss.objects.filter(pk=miss.pk).update(
        calls=10, last_asked_at=timezone.now(), waited_until=timezone.now() + timedelta(seconds=9)
    )
    assert reweigh_asked_again(15) == 1
    after = Exploration.objects.get()
    assert after.worth == pytest.approx(10 * before.worth)
    assert after.priority == Priority.URGENT


def test_weighed_again_it_never_moves_to_a_lesser_queue(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(priority=Priority.URGENT, worth=10.0)
    reweigh(row, 20.0, Priority.NORMAL, calls=7.0)
    row.refresh_from_db()
    assert (row.priority, row.worth, row.calls) == (Priority.URGENT, 20.0, 7.0)


@pytest.mark.django_db(transaction=True)
def test_a_lookup_that_asks_again_meanwhile_does_not_cross_it(
    make_miss: Callable[..., Any], live_worker: Any
) -> None:
    """Both lock the same misses. PostgreSQL ends one of two that lock them in opposite orders."""
    earlier, later = make_miss("Conv", 1), make_miss("Conv", 2)
    Miss.objects.filter(pk=later.pk).update(first_asked_at=timezone.now() - timedelta(days=1))
    request = LookupRequest(
        target=earlier.target,
        setting=earlier.setting,
        operators=[AskedOperator(earlier.operator.key), AskedOperator(later.operator.key)],
    )
    writes, states = threading.Event(), []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith('INSERT INTO "catalog_miss"'):
            writes.set()
        return execute(sql, *rest)

    def ask_again() -> None:
        try:
            with connection.execute_wrapper(note):
                states.extend(result.state for result in lookup(request).results)
        finally:
            connection.close()

    asker = threading.Thread(target=ask_again)

    def wait_until_somebody_waits() -> None:
        deadline = time.monotonic() + (5 if connection.vendor == "postgresql" else 0)
        with connection.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute(
                    "SELECT 1 FROM pg_stat_activity"
                    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
                )
                if cursor.fetchone():
                    return
                time.sleep(0.02)

    def pause_after_the_first(execute: Any, sql: str, *rest: Any) -> Any:
        done = execute(sql, *rest)
        if sql.startswith('UPDATE "catalog_miss"') and asker.ident is None:
            asker.start()
            writes.wait(2)  # SQLite lets nobody else write meanwhile
            wait_until_somebody_waits()
        return done

    with connection.execute_wrapper(pause_after_the_first):
        assert promote_misses() == 2
    asker.join(30)
    assert states == ["promoted", "promoted"]
