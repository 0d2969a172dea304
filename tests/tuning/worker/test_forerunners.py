"""A worker that takes a dead one's place on this machine takes over at once; the living are left alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from django.utils import timezone

from catalog.registry import register_target
from tests.tuning.fakes import TARGET
from tuning.models import Exploration, State, Worker
from tuning.queue import claims
from tuning.queue.promote import promote_misses
from tuning.worker import forerunners

pytestmark = pytest.mark.django_db


def worker(name: str, pid: int, host: str | None = None) -> Worker:
    return Worker.objects.create(
        name=name, host=host or socket.gethostname(), pid=pid, target=register_target(TARGET),
        last_seen_at=timezone.now(),
    )  # fmt: skip


def dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def held_by(make_miss: Any, name: str) -> Exploration:
    make_miss()
    promote_misses()
    [claim] = claims.claim(f"{name}/1", Exploration.objects.get().target_id)
    return Exploration.objects.get(pk=claim.pk)


def test_what_a_dead_one_of_the_same_name_held_is_taken_over_at_once(make_miss: Any) -> None:
    worker("w0@here#1", dead_pid())
    row = held_by(make_miss, "w0@here#1")
    assert row.lease_expires_at > timezone.now()
    assert forerunners.bury("w0@here#2") == 1
    row.refresh_from_db()
    assert row.state == State.QUEUED
    assert Worker.objects.get().stopped_at is not None


@pytest.mark.parametrize(
    ("name", "pid", "host"),
    [("w0@here#1", os.getpid(), None), ("w0@here#1", None, "elsewhere"), ("w01@here#1", None, None),
     ("w0@here#2", None, None)],
    ids=["alive", "elsewhere", "another name", "oneself"],
)  # fmt: skip
def test_the_living_those_of_other_machines_and_of_other_names_are_left_to_their_leases(
    make_miss: Any, name: str, pid: int | None, host: str | None
) -> None:
    worker(name, dead_pid() if pid is None else pid, host)
    row = held_by(make_miss, name)
    assert forerunners.bury("w0@here#2") == 0
    row.refresh_from_db()
    assert row.state == State.RUNNING and Worker.objects.get().stopped_at is None
