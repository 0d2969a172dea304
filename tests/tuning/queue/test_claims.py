"""Claims: order, compare-and-swap, fences, sweeping, tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from catalog.models import Miss
from tuning.models import Exploration, Stage, State
from tuning.queue import claims
from tuning.queue.claims import Claim, begin, claim, fail, pack_size, release, sweep
from tuning.queue.held import StaleLease, renew
from tuning.queue.rates import Rates

pytestmark = pytest.mark.django_db


def database_now() -> datetime:
    """The only clock on which leases are compared."""
    return Exploration.objects.values_list(Now(), flat=True).first()


def expire(row: Exploration) -> None:
    Exploration.objects.filter(pk=row.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def ids(held: list[Claim]) -> list[int]:
    return [claim.pk for claim in held]


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


def test_a_pack_takes_a_packs_seconds_and_not_a_count() -> None:
    """20 of them: what is expected to take long is claimed in small packs, what is short in large ones."""
    assert pack_size(Stage.FIRST, [5.0] * 16, 100, 1) == 4
    assert pack_size(Stage.FIRST, [1.0] * 16, 100, 1) == 8, "leases are renewed one by one"
    assert pack_size(Stage.FIRST, [1.0, 1.0, 17.0, 17.0], 100, 1) == 3
    assert pack_size(Stage.CONTEST, [41.0] * 16, 100, 1) == 1
    assert pack_size(Stage.CONTEST, [6.0] * 16, 100, 1) == 3
    assert pack_size(Stage.TUNE, [0.1] * 16, 100, 1) == 1
    assert pack_size(Stage.FIRST, [5.0] * 3, 3, 8) == 1


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
    assert renew(held) == [c for c in held if c.pk == lost.pk]


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
    row = make_exploration(max_tries=1)
    held = claim("w/1", row.target_id)
    begin(held[0], "eager")
    expire(row)
    requeue_or_bury = claims._requeue_or_bury

    def renewed_meanwhile(*given: Any) -> int:
        assert renew(held) == []
        return requeue_or_bury(*given)

    monkeypatch.setattr(claims, "_requeue_or_bury", renewed_meanwhile)
    assert sweep() == 0
    row.refresh_from_db()
    assert (row.state, row.lease_owner) == (State.RUNNING, "w/1")
    assert row.operator.miss_set.get().state == "promoted"


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


def test_a_share_is_of_the_seconds_that_wait_rounded_up_and_at_least_one() -> None:
    assert pack_size(Stage.FIRST, [1.0] * 9, 9, 2) == 5
    assert pack_size(Stage.FIRST, [1.0] * 8, 8, 2) == 4
    assert pack_size(Stage.FIRST, [1.0] * 3, 3, 0) == 3
    assert pack_size(Stage.FIRST, [9.0, 1.0, 1.0, 1.0], 4, 2) == 1, "the others are the other worker's"


def test_how_many_are_claimed_goes_by_how_long_their_kind_took(
    make_exploration: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [make_exploration(size=size, worth=-size) for size in range(1, 7)]
    known = Rates([], [])
    monkeypatch.setattr(claims, "lately", lambda: known)
    for seconds, claimed in ((9.0, 2), (2.0, 4)):
        known._seconds[Stage.FIRST, "Relu"] = [seconds] * 3
        assert ids(claim("w/1", rows[0].target_id)) == [row.pk for row in rows[:claimed]]
        rows = rows[claimed:]


def test_only_what_is_queued_and_within_reach_is_taken(make_exploration: Callable[..., Any]) -> None:
    rows = [make_exploration(size=size) for size in (1, 2, 3)]
    make_exploration(size=4, state=State.PAUSED)
    assert ids(claim("w/1", rows[0].target_id, reach=~Q(pk=rows[1].pk))) == [rows[0].pk, rows[2].pk]
    assert ids(claim("w/1", rows[0].target_id)) == [rows[1].pk]


def test_what_another_takes_meanwhile_is_made_up_for(
    make_exploration: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [make_exploration(size=size, worth=-size) for size in range(1, 7)]
    take, lost = claims._take, []

    def slower(pk: int, *rest: Any) -> bool:
        if len(lost) < 2:
            lost.append(take(pk, *rest))
            return False
        return take(pk, *rest)

    monkeypatch.setattr(claims, "_take", slower)
    held = claim("w/1", rows[0].target_id, workers=3)
    assert ids(held) == [rows[2].pk, rows[3].pk]
    assert [each.load().pk for each in held] == ids(held)


def test_who_is_always_too_late_looks_again_a_few_times(
    make_exploration: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_exploration()
    tried: list[int] = []
    monkeypatch.setattr(claims, "_take", lambda pk, *rest: tried.append(pk))
    assert claim("w/1", row.target_id) == []
    assert tried == [row.pk] * 5


def test_whoever_lost_a_claim_is_told_which(make_exploration: Callable[..., Any]) -> None:
    lost = Claim(make_exploration().pk, 7)
    for use in (lost.load, lambda: lost.update(doing="x")):
        with pytest.raises(StaleLease) as caught:
            use()
        assert str(caught.value) == f"Exploration {lost.pk} is no longer held under fence 7."


def test_a_claim_is_loaded_with_all_that_a_slice_needs_in_one_statement(
    make_exploration: Callable[..., Any], organisation: Any, django_assert_num_queries: Any
) -> None:
    row = make_exploration(owner=organisation)
    (held,) = claim("w/1", row.target_id)
    with django_assert_num_queries(1):
        found = held.load()
        assert (found.operator.op_type, found.target.pk, found.owner.name) == (
            "Relu",
            row.target_id,
            organisation.name,
        )
        assert found.setting.threads == 2


def test_renewing_moves_the_end_of_the_lease(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    held = claim("w/1", row.target_id)
    expire(row)
    assert renew([*held, Claim(row.pk, 99)]) == [Claim(row.pk, 99)]
    row.refresh_from_db()
    assert 25 < (row.lease_expires_at - database_now()).total_seconds() <= 30


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda held: begin(held, "eager"), (State.RUNNING, 1, "eager", "w/1")),
        (lambda held: release(held, begun=False), (State.QUEUED, 0, "", "")),
        (lambda held: fail(held, "disk full"), (State.QUEUED, 0, "", "")),
        (lambda held: sweep(owner_prefix="w/"), (State.QUEUED, 0, "", "")),
    ],
)
def test_every_change_is_dated(
    make_exploration: Callable[..., Any], change: Callable[[Claim], Any], seen: tuple[Any, ...]
) -> None:
    row = make_exploration()
    (held,) = claim("w/1", row.target_id)
    row.refresh_from_db()
    assert (row.doing, row.finished_at) == ("claimed", None)
    Exploration.objects.update(updated_at=timezone.now() - timedelta(days=1))
    change(held)
    row.refresh_from_db()
    assert (row.state, row.tries, row.doing, row.lease_owner) == seen
    assert timezone.now() - row.updated_at < timedelta(minutes=1)
    assert (row.lease_expires_at is None) is (row.state == State.QUEUED)


def test_writing_is_dated_and_all_or_nothing(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (held,) = claim("w/1", row.target_id)
    Exploration.objects.update(updated_at=timezone.now() - timedelta(days=1))
    with pytest.raises(RuntimeError), held.writing(doing="never"):
        raise RuntimeError
    row.refresh_from_db()
    assert row.doing == "claimed"
    with held.writing(doing="now"):
        pass
    row.refresh_from_db()
    assert row.doing == "now"
    assert timezone.now() - row.updated_at < timedelta(minutes=1)


def test_a_sweep_says_who_fell_silent_and_over_what(make_exploration: Callable[..., Any]) -> None:
    rows = [make_exploration(size=size, worth=-size) for size in (1, 2)]
    held = claim("w/1", rows[0].target_id)
    begin(held[0], "eager: checking")
    held[1].update(doing="")
    for row in rows:
        expire(row)
    assert sweep() == 2
    assert [Exploration.objects.get(pk=row.pk).error for row in rows] == [
        "Worker w/1 fell silent while eager: checking (try 1 of 3).",
        "Worker w/1 fell silent (try 0 of 3).",
    ]


def test_a_new_pool_child_keeps_what_it_holds_itself(make_exploration: Callable[..., Any]) -> None:
    dead, own = make_exploration(size=1), make_exploration(size=2)
    claims._take(dead.pk, 0, 0, "w1/100")
    claims._take(own.pk, 0, 0, "w1/200")
    assert sweep(owner_prefix="w1/", but_not="w1/200") == 1
    assert Exploration.objects.get(state=State.RUNNING) == own
    assert sweep(owner_prefix="w1/") == 1


def test_what_is_given_up_says_why_briefly_and_its_miss_too(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(max_tries=1)
    (held,) = claim("w/1", row.target_id)
    begin(held, "x")
    fail(held, "a" * 5000 + " the end")
    row.refresh_from_db()
    assert (row.state, row.reason, row.fence) == (State.DEAD, "Gave up after 1 try.", 2)
    assert len(row.error) == 4000 and row.error.endswith(" the end")
    assert timezone.now() - row.finished_at < timedelta(minutes=1)
    miss = row.operator.miss_set.get()
    assert miss.reason == f"Gave up after 1 try: {'a' * 479}"


def test_who_asked_reads_no_trace(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(max_tries=1)
    (held,) = claim("w/1", row.target_id)
    begin(held, "trying")
    fail(held, "Traceback (most recent call last):\n  File \"/srv/x.py\", line 1\nKeyError: 'graph'\n")
    assert Miss.objects.get().reason == "Gave up after 1 try: KeyError: 'graph'"
