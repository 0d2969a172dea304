"""How long each process of a service is away after SIGKILL, until its work is done again.

The service is what ``make run`` starts, supervised as there. *Again* means for the web server that
``/healthz`` is answered; for the worker that its successor is warm; for the courier and for the leader (the
worker that leads, killed with its process) that another holds their lease. ``measured()`` is what
``make bench ONLY=service`` writes as ``restart_s``.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.record import spread
from dashboard.run.stack import ROOT, Stack
from dashboard.run.supervising import Supervisor

TIMES = 5
WAIT_S = 180.0
LOOK_S = 0.05

_WARM = "SELECT name FROM tuning_worker WHERE warm AND stopped_at IS NULL ORDER BY id DESC LIMIT 1"
_HOLDER = "SELECT owner FROM tuning_lease WHERE name = '{}'"

ROWS = {
    "worker": ("worker0", _WARM),
    "courier": ("courier", _HOLDER.format("courier")),
    "leader": ("worker0", _HOLDER.format("leader")),
}
"""Which process is killed, and who does its work: another one, as soon as it is done again."""


def measured(times: int = TIMES, app: str = "tuning", **environment: str) -> dict[str, dict[str, float]]:
    """Process → seconds from its SIGKILL until its work is done again: median, quartiles, samples.

    Each is killed as if for the first time in long. ``environment`` says over which database and broker
    (DATABASE_URL, BROKER_URL; else SQLite and files), and is that of the service alone. Raises TimeoutError
    where one does not come back within three minutes.
    """
    with _service(app, environment) as service:
        kinds = {"web": ("web", lambda: "web" if _answers(service.stack.url) else "")}
        kinds |= {kind: (name, lambda sql=sql: service.read(sql)) for kind, (name, sql) in ROWS.items()}
        service.until(lambda: all(who() for _, who in kinds.values()), "the whole service")
        return {
            kind: spread([service.away_s(name, who) for _ in range(times)])
            for kind, (name, who) in kinds.items()
        }


class KilledService:
    """A supervised stack over an own folder, asked past its processes."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._supervisor = _supervising(stack)
        self._supervisor.ask()

    def away_s(self, name: str, who: Callable[[], str]) -> float:
        """Kill a process with all that it started; seconds until its work is done by another."""
        before = who()
        self._supervisor = _supervising(self.stack)
        victim = next(one for one in self.stack.processes if one.name == name)
        os.killpg(victim.popen.pid, signal.SIGKILL)
        victim.popen.wait()
        began = time.monotonic()
        self.until(lambda: (found := who()) and (name == "web" or found != before), name)
        return time.monotonic() - began

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come back within {WAIT_S:.0f} s.")
            self._supervisor.look()
            time.sleep(LOOK_S)

    def read(self, sql: str) -> str:
        """The one value of a query, or nothing."""
        if url := self.stack.environment.get("DATABASE_URL"):
            with psycopg.connect(url) as connection:
                row = connection.execute(sql.encode()).fetchone()
        else:
            path = Path(self.stack.environment["OPATLAS_HOME"]) / "opatlas.sqlite3"
            with closing(sqlite3.connect(path, timeout=10)) as database:
                row = database.execute(sql).fetchone()
        return str(row[0]) if row else ""


def _supervising(stack: Stack) -> Supervisor:
    """One that has seen nobody end yet: who ends again and again waits ever longer."""
    return Supervisor(stack, lambda line: None)


@contextmanager
def _service(app: str, environment: dict[str, str]) -> Iterator[KilledService]:
    with tempfile.TemporaryDirectory(prefix="restarts") as folder:
        own = {"OPATLAS_HOME": folder, "OPATLAS_LOCK": str(Path(folder) / "lock"), **environment}
        logs = Path(folder) / "logs"
        with Stack(own, workers=1, logs=logs, app=app, prepare=lambda: _migrate(own)) as stack:
            yield KilledService(stack)


def _migrate(environment: dict[str, str]) -> None:
    settings = {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    command = [sys.executable, "manage.py", "migrate", "--noinput", "--verbosity", "0"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings, **environment}, check=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
