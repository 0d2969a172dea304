"""Real Celery workers over a database and a broker of their own, seen from the test's process.

The test's own Django is pointed at the same database, so that services and models can be used directly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dj_database_url
from django.db import connections

from opatlas.identity import Setting, Target, default_setting, detect_target
from tests.configuring import configured
from tests.databases import ROOT, new_sqlite

T = TypeVar("T")

LONG_S = 120.0
"""What happens at all happens within this, on any host."""
SHORT = {
    "OPATLAS_LEASE_S": "5",
    "OPATLAS_TICK_S": "0.2",
    "OPATLAS_LEADER_LEASE_S": "1.5",
    "OPATLAS_WORKER_BEAT_S": "0.5",
    "OPATLAS_SERVED_S": "3",
    "OPATLAS_STOP_GRACE_S": "2",
}
"""Leases so short that a test can wait for their end, and long enough to be renewed on a busy host."""


@dataclass
class Live:
    """``with live(...) as service:`` then ``service.start_worker()``."""

    home: Path
    environment: dict[str, str]
    app: str = "tests.tuning.fake_worker"
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        number = len(self.workers)
        with (self.home / f"worker{number}.log").open("wb") as log:
            worker = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "celery",
                    "-A",
                    self.app,
                    "worker",
                    "-l",
                    "info",
                    "-n",
                    f"w{number}@test",
                ],
                cwd=ROOT,
                env={**os.environ, **SHORT, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def wait_warm(self, count: int = 1, timeout_s: float = LONG_S) -> Any:
        """The first of the warm workers, once there are so many."""
        from tuning.models import Worker

        warm = Worker.objects.filter(warm=True, stopped_at=None)
        return self.wait_for(lambda: warm.count() >= count and warm.first(), "warm workers", timeout_s)

    def wait_for(self, condition: Callable[[], T], what: str, timeout_s: float = LONG_S) -> T:
        """Poll until the condition holds; fails with the workers' last words."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if result := condition():
                return result
            time.sleep(0.05)
        raise AssertionError(f"Waited {timeout_s:.0f} s for {what}.\n{self.last_words()}")

    def last_words(self) -> str:
        logs = sorted(self.home.glob("worker*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def stop(self) -> None:
        for worker in self.workers:
            kill_session(worker)


@contextmanager
def live(home: Path, database_url: str = "", broker_url: str = "", app: str = "") -> Iterator[Live]:
    """A migrated database (SQLite where none is given) that this process and the workers share; workers are
    killed at the end."""
    url = database_url or new_sqlite(home / "opatlas.sqlite3")
    environment = {
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "OPATLAS_HOME": str(home),
        "OPATLAS_STORE": str(home / "artifacts"),
        "DATABASE_URL": url,
        "BROKER_URL": broker_url,
        "OPATLAS_LOCK": str(home / "machine.lock"),  # what else runs on this machine must not stop us
    }
    service = Live(home, environment, **({"app": app} if app else {}))
    with configured(home=home, store=home / "artifacts"), _default_database(url):
        try:
            yield service
        finally:
            service.stop()


@contextmanager
def measuring(
    home: Path, database_url: str = "", *, compilers: bool = False, app: str = ""
) -> Iterator[Live]:
    """As ``live``, with workers that measure on this machine, and tune nothing. With ``compilers`` they are
    the service's own; without, they have its libraries and submitted kernels only, and start in seconds.
    ``app`` is another worker's."""
    app = app or ("tuning" if compilers else "tests.tuning.library_worker")
    with live(home, database_url, app=app) as service:
        service.environment |= {"OPATLAS_TUNING": "0", "OPATLAS_LEASE_S": "10"}
        yield service


def look_up(*operators: Any, target: Target | None = None, setting: Setting | None = None) -> list[Any]:
    """What the lookup of a job answers, an operator a result; without ``target`` the job runs here."""
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
    from catalog.registry import default_organisation, register_setting, register_target

    target = target or detect_target()
    request = LookupRequest(
        target=register_target(target),
        setting=register_setting(setting or default_setting(target)),
        operators=[AskedOperator(operator.key, 1.0, operator) for operator in operators],
        organisation=default_organisation(),
    )
    return list(lookup(request).results)


@contextmanager
def _default_database(url: str) -> Iterator[None]:
    """Point this thread's default connection at another database for a while."""
    before, connection = connections.databases["default"], connections["default"]
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL;"}
    settings: dict[str, Any] = {**before, **dj_database_url.parse(url)}
    settings["OPTIONS"] = options if url.startswith("sqlite") else {}
    connections.databases["default"] = settings
    del connections["default"]
    try:
        yield
    finally:
        connections["default"].close()
        connections.databases["default"] = before
        connections["default"] = connection


def session_members(leader: int) -> list[int]:
    """Processes that are in the session of this process id (sandboxed grandchildren can have their own)."""
    members = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(path.name))
    return members


def children(parent: int) -> list[int]:
    """Processes whose parent this is."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def kill_session(worker: subprocess.Popen[bytes]) -> None:
    """SIGKILL to everything of a worker at the same time, as a machine that loses power."""
    # Again until nobody is left: a child that was just being forked is not in the first list.
    while members := session_members(worker.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.poll()
        time.sleep(0.01)
    worker.wait()
