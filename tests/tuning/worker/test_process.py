"""Real Celery workers, a real PostgreSQL and a real Redis: work is shared, and nothing is lost when one dies.

The laboratory is a fake (what is tested is who does what, and when); ``test_first_hit`` uses the real one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dashboard.run.stack import free_port
from opatlas.identity import Setting
from tests import by_day
from tests.tuning import fakes
from tests.tuning.live import LONG_S, Live, children, kill_session, live, look_up, session_members

pytestmark = [pytest.mark.slow]


@pytest.fixture
def embedded(tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    """SQLite and the file-system broker."""
    with django_db_blocker.unblock(), live(tmp_path) as service:
        yield service


@pytest.fixture
def servers(
    tmp_path: Path, private_postgres: Any, private_redis: Any, django_db_blocker: Any
) -> Iterator[Live]:
    """PostgreSQL and Redis."""
    with (
        django_db_blocker.unblock(),
        live(tmp_path, private_postgres.new_database(migrated=True), private_redis.new_url()) as service,
    ):
        yield service


def ask(*operators: Any) -> list[str]:
    """What a job's lookup answers: hit or miss, per operator."""
    results = look_up(*operators, target=fakes.TARGET, setting=Setting(threads=2))
    return [result.status for result in results]


def relus(count: int) -> list[Any]:
    return [fakes.operator("Relu", size) for size in range(1, count + 1)]


def all_done(count: int) -> Callable[[], bool]:
    from tuning.models import Exploration, State

    return lambda: Exploration.objects.filter(state=State.DONE).count() == count


def running() -> Any:
    """An exploration in a slice of its contest, each step of which takes FAKE_STEP_S: its first result was
    its first slice, the contest's opening its second."""
    from tuning.models import Exploration, Stage, State

    contests = Exploration.objects.filter(state=State.RUNNING, tries__gt=0, stage=Stage.CONTEST)
    return contests.filter(fence__gt=2).first()


def claims_overlap() -> list[tuple[Any, Any]]:
    """Pairs of trials of one exploration under different claims that ran at the same time."""
    from datetime import timedelta

    from tuning.models import Trial

    by_exploration = defaultdict(list)
    for trial in Trial.objects.order_by("started_at"):
        by_exploration[trial.exploration_id].append(trial)
    return [
        (earlier, later)
        for trials in by_exploration.values()
        for earlier in trials
        for later in trials
        if earlier.fence < later.fence
        and later.started_at < earlier.started_at + timedelta(seconds=earlier.took_s)
    ]


@pytest.mark.nightly  # by day in tests/dashboard/run/test_whole_service.py, and with compilers in tests/docs
def test_miss_explored_hit_on_one_machine(embedded: Live) -> None:
    embedded.start_worker()
    embedded.wait_warm()
    operators = relus(3)
    assert ask(*operators) == ["miss"] * 3
    embedded.wait_for(all_done(3), "three explorations")
    assert ask(*operators) == ["hit"] * 3
    from catalog.models import Best

    assert set(Best.objects.filter(rank=0).values_list("route", flat=True)) == {"quick"}


@pytest.mark.nightly  # by day in tests/dashboard/run/test_whole_service.py
@pytest.mark.services
def test_two_workers_share_the_work_and_nothing_is_explored_twice(servers: Live) -> None:
    servers.environment["FAKE_STEP_S"] = "0.1"
    servers.start_worker()
    servers.start_worker()
    servers.wait_warm(2)
    operators = relus(16)
    ask(*operators)
    servers.wait_for(all_done(16), "sixteen explorations")
    assert ask(*operators) == ["hit"] * 16
    from tuning.models import Trial

    # Default, two variants of quick, and the deadly route that does not know Relu.
    assert Trial.objects.count() == 16 * 4
    assert claims_overlap() == []
    by_worker = defaultdict(set)
    for trial in Trial.objects.all():
        by_worker[trial.worker.partition("@")[0]].add(trial.exploration_id)
    assert set(by_worker) == {"w0", "w1"}
    assert all(len(rows) >= 3 for rows in by_worker.values()), "both had their share"


@pytest.mark.services
def test_a_worker_killed_in_the_middle_loses_nothing(servers: Live) -> None:
    servers.environment["FAKE_STEP_S"] = "0.5"
    victim = servers.start_worker()
    servers.wait_warm()
    operators = relus(3)
    ask(*operators)
    held = servers.wait_for(running, "work in progress")
    kill_session(victim)
    assert session_members(victim.pid) == []
    killed_at = time.monotonic()
    servers.start_worker()
    servers.wait_for(all_done(3), "the rest")
    assert time.monotonic() - killed_at > 1, "not before the lease's end"
    assert ask(*operators) == ["hit"] * 3
    held.refresh_from_db()
    assert held.fence >= 3
    assert claims_overlap() == []
    from tuning.models import Trial

    assert not Trial.objects.exclude(status__in=["ok", "unsupported"]).exists(), (
        "nobody is blamed for the kill"
    )


def test_who_is_stopped_past_its_lease_loses_it_in_time_and_writes_nothing_when_it_goes_on(
    embedded: Live,
) -> None:
    trace = embedded.home / "trace.jsonl"
    embedded.start_worker(OPATLAS_FAILPOINTS="claimed=stop@1", OPATLAS_TRACE=str(trace))
    embedded.wait_warm()
    ask(*relus(1))
    [line] = embedded.wait_for(lambda: passed(trace), "the claim")
    from tuning.models import Exploration, Trial, Worker

    row = Exploration.objects.get()
    assert (row.fence, row.state) == (1, "running")
    embedded.start_worker()
    embedded.wait_for(all_done(1), "the other one's work")
    [first] = Trial.objects.order_by("started_at")[:1]
    assert first.fence > 1 and "w1@test" in first.worker
    able = max(row.lease_expires_at, Worker.objects.get(name__startswith="w1@test").started_at)
    assert (first.started_at - able).total_seconds() < LONG_S / 2

    os.kill(line["pid"], signal.SIGCONT)
    again = Worker.objects.filter(name__startswith="w0@test", doing="", last_seen_at__gt=timezone.now())
    embedded.wait_for(again.exists, "the one that goes on")
    assert [line["place"] for line in passed(trace)] == ["claimed"]
    assert not Trial.objects.filter(worker__startswith="w0@test").exists()
    assert claims_overlap() == []


def passed(trace: Path) -> list[dict[str, Any]]:
    """Lines about an exploration: who passed which place."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
    return [line for line in lines if "exploration_id" in line and line["place"] != "sweeping"]


def test_a_killed_pool_child_is_replaced_and_goes_on_at_once(embedded: Live) -> None:
    embedded.environment |= {"FAKE_STEP_S": "0.5", "OPATLAS_LEASE_S": "600"}
    worker = embedded.start_worker()
    embedded.wait_warm()
    ask(*relus(2))
    held = embedded.wait_for(running, "work in progress")
    os.kill(int(held.lease_owner.rpartition("/")[2]), signal.SIGKILL)
    embedded.wait_for(all_done(2), "the rest, long before the lease's end")
    assert worker.poll() is None, "the worker itself lives"
    assert claims_overlap() == []


def test_a_route_that_kills_its_worker_ends_as_a_dead_letter(embedded: Live) -> None:
    embedded.start_worker()
    embedded.wait_warm()
    deadly, harmless = fakes.operator("Exp", 7), fakes.operator("Relu", 7)
    ask(deadly, harmless)
    from catalog.models import Miss
    from tuning.models import Exploration, State

    dead = embedded.wait_for(Exploration.objects.filter(state=State.DEAD).first, "the dead letter")
    assert dead.operator.key == deadly.key
    assert dead.tries == dead.max_tries == 3
    assert re.search(r"fell silent while .*\bdeadly\b.*: a heat of \d+ \(try 3 of 3\)", dead.error)
    embedded.wait_for(all_done(1), "the harmless one")
    # Its default had been published before: it is served, whatever became of the rest.
    assert ask(deadly, harmless) == ["hit", "hit"]
    assert Miss.objects.get(operator__key=deadly.key).state == "explored"


@pytest.mark.services
def test_another_worker_leads_when_the_leader_is_killed(servers: Live) -> None:
    from tuning.models import Lease

    workers = {f"w{number}@test": servers.start_worker() for number in (0, 1)}
    servers.wait_warm(2)
    lease = servers.wait_for(Lease.objects.first, "a leader")
    first = lease.owner.partition("#")[0]
    kill_session(workers.pop(first))

    def another_leads() -> bool:
        lease.refresh_from_db()
        return not lease.owner.startswith(first)

    servers.wait_for(another_leads, "another leader")
    assert ask(*relus(2)) == ["miss", "miss"]
    servers.wait_for(all_done(2), "work under the new leader")


def test_a_worker_that_is_told_to_stop_gives_its_work_back(embedded: Live) -> None:
    embedded.environment |= {"FAKE_STEP_S": "0.4", "OPATLAS_LEASE_S": "600"}
    worker = embedded.start_worker()
    embedded.wait_warm()
    ask(*relus(4))
    embedded.wait_for(running, "work in progress")
    worker.terminate()
    worker.wait(timeout=LONG_S)
    assert session_members(worker.pid) == []
    from tuning.models import Exploration, State, Worker

    assert set(Exploration.objects.values_list("state", flat=True)) <= {State.QUEUED, State.DONE}
    assert not Exploration.objects.exclude(tries=0).exists()
    assert Worker.objects.get().stopped_at is not None


@pytest.fixture
def mortal_redis(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a Redis on the same port each time; ``.port`` says which."""
    started: list[subprocess.Popen[bytes]] = []
    port = free_port()

    def start() -> subprocess.Popen[bytes]:
        command = [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(tmp_path),
        ]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        return started[-1]

    start.port = port  # type: ignore[attr-defined]
    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.services
@pytest.mark.parametrize("how", by_day.only(["stopped"], ["stopped", "hanging"]))
def test_without_a_broker_lookups_answer_at_once_and_are_explored_later(
    tmp_path: Path, private_redis: Any, mortal_redis: Any, django_db_blocker: Any, how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from tuning.celery import app
    from tuning.doorbell import bell
    from tuning.models import Worker

    url = f"redis://127.0.0.1:{mortal_redis.port}/0"
    redis = mortal_redis()
    monkeypatch.setitem(app.conf, "broker_url", url)
    monkeypatch.setitem(app.conf, "broker_transport", None)
    monkeypatch.setattr(bell, "bell", bell.Bell())
    with django_db_blocker.unblock(), live(tmp_path, broker_url=url) as service:
        service.start_worker()
        service.wait_warm()
        if how == "stopped":
            redis.kill()
            redis.wait()
        else:
            redis.send_signal(signal.SIGSTOP)
        assert ask(*relus(2)) == ["miss", "miss"]
        if how == "hanging":
            assert not bell.bell.flush(0.0), "the bell is still being rung, and nobody waited for it"
        asked_at = timezone.now()
        if how == "stopped":
            service.wait_for(lambda: "onnection to broker lost" in service.last_words(), "it to be missed")
        else:
            beats = Worker.objects.filter(last_seen_at__gt=asked_at)
            service.wait_for(lambda: beats.exists(), "the worker to go on")
        if how == "stopped":
            mortal_redis()
        else:
            redis.send_signal(signal.SIGCONT)
        service.wait_for(all_done(2), "explorations once the broker is back")
        assert ask(*relus(2)) == ["hit", "hit"]


@pytest.mark.services
def test_a_database_that_drops_its_connections_is_survived(servers: Live) -> None:
    from django.db import connection

    servers.environment["FAKE_STEP_S"] = "0.3"
    worker = servers.start_worker()
    servers.wait_warm()
    ask(*relus(4))
    servers.wait_for(running, "work in progress")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert len(cursor.fetchall()) >= 2
    servers.wait_for(all_done(4), "all explorations in spite of it")
    assert worker.poll() is None
    assert children(worker.pid), "the pool child lives"
    assert claims_overlap() == []


def test_a_worker_gives_signs_of_life_while_the_broker_is_away(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    """Else who watches it would start it again and again, and with it what it explores."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    with django_db_blocker.unblock(), live(tmp_path, broker_url=url) as service:
        service.start_worker(OPATLAS_ALIVE=str(tmp_path))
        service.wait_for(lambda: "Cannot connect to redis" in service.last_words(), "the broker to be missed")
        missed_at = time.time()
        parts = [tmp_path / name for name in ("celery", "worker")]
        service.wait_for(
            lambda: all(part.exists() and part.stat().st_mtime > missed_at for part in parts), "signs of life"
        )
