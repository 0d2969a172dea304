"""Claims: order, compare-and-swap, fences, sweeping, tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tuning.models import Exploration, Stage, State
from tuning.queue import claims
from tuning.queue.claims import Claim, StaleLease, begin, claim, fail, pack_size, release, renew, sweep
from tuning.queue.clock import database_now

pytestmark = pytest.mark.django_db


def expire(row: Exploration) -> None:
    Exploration.objects.filter(pk=row.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def ids(held: list[Claim]) -> list[int]:
    return [claim.exploration_id for claim in held]


def test_lower_stages_come_first_then_urgency_then_worth(make_exploration: Callable[..., Any]) -> None:
    tuning = make_exploration(size=1, stage=Stage.TUNE, priority=0, worth=900)
    contest = make_exploration(size=2, stage=Stage.CONTEST, worth=900)
    low = make_exploration(size=3, priority=3, worth=900)
    cheap = make_exploration(size=4, priority=2, worth=1)
    dear = make_exploration(size=5, priority=2, worth=5)
    urgent = make_exploration(size=6, priority=0, worth=1)
    order = []
    while held := claim("w/1", low.target_id):
        order += ids(held)
    assert order == [row.pk for row in (urgent, dear, cheap, low, contest, tuning)]


def test_a_pack_holds_one_stage_only_and_is_shared_among_workers(
    make_exploration: Callable[..., Any],
) -> None:
    rows = [make_exploration(size=size) for size in range(1, 7)]
    make_exploration(size=99, stage=Stage.CONTEST)
    first = claim("w/1", rows[0].target_id, workers=2)
    assert len(first) == 3
    assert len(claim("w/2", rows[0].target_id, workers=2)) == 2


def test_a_pack_is_never_larger_than_its_stage_allows() -> None:
    assert pack_size(Stage.FIRST, 100, 1) == 8
    assert pack_size(Stage.CONTEST, 100, 1) == 2
    assert pack_size(Stage.TUNE, 100, 1) == 1
    assert pack_size(Stage.FIRST, 3, 8) == 1


def test_what_is_claimed_cannot_be_claimed_again(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (held,) = claim("w/1", row.target_id)
    assert claim("w/2", row.target_id) == []
    assert not claims._take(row.pk, held.fence, Stage.FIRST, "w/2")
    row.refresh_from_db()
    assert (row.state, row.lease_owner, row.fence) == (State.RUNNING, "w/1", 1)


def test_leases_lie_on_the_databases_clock(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    claim("w/1", row.target_id)
    row.refresh_from_db()
    left = (row.lease_expires_at - database_now()).total_seconds()
    assert 25 < left <= 30


def test_rows_of_another_target_are_not_taken(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    assert claim("w/1", row.target_id + 1) == []


def test_only_expired_leases_are_swept(make_exploration: Callable[..., Any]) -> None:
    lost, kept = make_exploration(size=1), make_exploration(size=2)
    held = claim("w/1", lost.target_id)
    assert sweep() == 0
    expire(lost)
    assert sweep() == 1
    lost.refresh_from_db()
    kept.refresh_from_db()
    assert (lost.state, kept.state) == (State.QUEUED, State.RUNNING)
    assert "w/1 fell silent" in lost.error
    assert renew(held) == [c for c in held if c.exploration_id == lost.pk]


def test_a_worker_whose_lease_was_swept_writes_no_more(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (old,) = claim("w/1", row.target_id)
    expire(row)
    sweep()
    (new,) = claim("w/2", row.target_id)
    with pytest.raises(StaleLease):
        old.update(doing="still here")
    with pytest.raises(StaleLease), old.writing():
        raise AssertionError("the block must not run")
    with pytest.raises(StaleLease):
        begin(old, "late")
    assert release(old, begun=False) is False
    new.update(doing="mine")
    row.refresh_from_db()
    assert (row.doing, row.lease_owner) == ("mine", "w/2")


def test_a_renewed_lease_is_not_swept(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    held = claim("w/1", row.target_id)
    expire(row)
    assert renew(held) == []
    assert sweep() == 0


def test_a_lease_that_is_renewed_while_the_sweep_looks_is_kept(
    make_exploration: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_exploration()
    held = claim("w/1", row.target_id)
    expire(row)
    requeue_or_bury = claims._requeue_or_bury

    def renewed_meanwhile(*given: Any) -> int:
        assert renew(held) == []
        return requeue_or_bury(*given)

    monkeypatch.setattr(claims, "_requeue_or_bury", renewed_meanwhile)
    assert sweep() == 0
    row.refresh_from_db()
    assert (row.state, row.lease_owner) == (State.RUNNING, "w/1")


def test_the_last_try_that_is_lost_buries_the_exploration_and_fails_its_miss(
    make_exploration: Callable[..., Any],
) -> None:
    row = make_exploration(max_tries=2)
    for number in (1, 2):
        (held,) = claim(f"w/{number}", row.target_id)
        begin(held, "eager: checking")
        expire(row)
        sweep()
    row.refresh_from_db()
    assert row.state == State.DEAD
    assert row.tries == 2
    assert "eager: checking" in row.error
    miss = row.operator.miss_set.get()
    assert miss.state == "failed"
    assert "Gave up after 2 tries" in miss.reason
    assert claim("w/3", row.target_id) == []


def test_a_crash_is_not_blamed_on_the_rest_of_the_pack(make_exploration: Callable[..., Any]) -> None:
    rows = [make_exploration(size=size, worth=-size) for size in (1, 2)]
    held = claim("w/1", rows[0].target_id)
    begin(held[0], "boom")
    for row in rows:
        expire(row)
    sweep()
    assert [Exploration.objects.get(pk=row.pk).tries for row in rows] == [1, 0]


def test_released_work_counts_as_no_try(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (held,) = claim("w/1", row.target_id)
    begin(held, "x")
    assert release(held, begun=True)
    row.refresh_from_db()
    assert (row.state, row.tries, row.lease_owner, row.lease_expires_at) == (State.QUEUED, 0, "", None)


def test_a_failed_slice_is_queued_again_with_its_error(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (held,) = claim("w/1", row.target_id)
    begin(held, "x")
    fail(held, "disk full")
    row.refresh_from_db()
    assert (row.state, row.tries, row.error) == (State.QUEUED, 1, "disk full")


def test_a_new_pool_child_puts_back_at_once_what_its_dead_predecessor_held(
    make_exploration: Callable[..., Any],
) -> None:
    ours, others = make_exploration(size=1), make_exploration(size=2)
    claims._take(ours.pk, 0, 0, "w1/100")
    claims._take(others.pk, 0, 0, "w10/100")
    assert sweep(owner_prefix="w1/", but_not="w1/200") == 1
    ours.refresh_from_db()
    others.refresh_from_db()
    assert (ours.state, others.state) == (State.QUEUED, State.RUNNING)
