"""The leader: one at a time, replaced when it falls silent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tuning.models import Exploration, Lease, State, Worker
from tuning.queue import steering as queues
from tuning.worker import leader

pytestmark = pytest.mark.django_db


def as_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "_holder", None)


def test_of_two_exactly_one_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leader.lead("a")
    as_another_process(monkeypatch)
    assert not leader.lead("b")
    as_another_process(monkeypatch)
    assert leader.lead("a")


def test_a_silent_leader_is_replaced_and_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    leader.lead("a")
    Lease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    as_another_process(monkeypatch)
    assert leader.lead("b")
    as_another_process(monkeypatch)
    assert not leader.lead("a")


def test_who_resigns_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leader.lead("a")
    leader.resign("a")
    assert leader.lead("b")


def test_an_idle_leader_does_not_write(django_assert_num_queries: Any) -> None:
    leader.lead("a")
    with django_assert_num_queries(0):
        assert leader.lead("a")


def test_a_tick_sweeps_promotes_and_rings_the_idle(
    make_miss: Callable[..., Any], live_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[set[str]] = []
    monkeypatch.setattr(leader.bell, "ring", lambda names: rung.append(set(names)))
    make_miss()
    assert leader.tick("a")
    assert rung[-1] == {"cpu.zen3"}
    Exploration.objects.update(
        state=State.RUNNING, lease_expires_at=timezone.now() - timedelta(seconds=1), lease_owner="x/1"
    )
    leader.tick("a")
    assert Exploration.objects.get().state == State.QUEUED
    Worker.objects.update(doing="exploration 1")
    leader.tick("a")
    assert rung[-1] == set(), "a busy worker looks for more by itself"
    Worker.objects.update(doing="")
    queues.pause("cpu.zen3")
    leader.tick("a")
    assert rung[-1] == set()
