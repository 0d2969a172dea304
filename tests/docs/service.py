"""The service as ``make run`` starts it, told apart by nothing but what it prints and answers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dashboard.run.stack import free_port
from tests.databases import ROOT, new_sqlite

T = TypeVar("T")

STAMPS = tuple(f"--old-file=.venv/{name}.stamp" for name in ("worker", "opatlas", "dev"))
"""For ``make``: install nothing into the environment that runs the tests."""


@dataclass(frozen=True)
class Service:
    """A service that is up. ``environment`` points ``manage.py`` at its state."""

    url: str
    key: str
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def call(self, path: str, document: Any = None) -> Any:
        """GET, or POST where there is a document."""
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            None if document is None else json.dumps(document).encode(),
            {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def here(self, text: str) -> str:
        """A page's text with this service's address in place of the one that ``make run`` has."""
        return text.replace("http://127.0.0.1:8000", self.url)


def heed_signals() -> None:
    """A test run in the background or under nohup ignores these, and its children would inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def what_make_runs(*arguments: str) -> list[str]:
    """The last command of a target, as words."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *STAMPS, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return shlex.split(done.stdout.strip().splitlines()[-1])


@contextmanager
def running(home: Path, **environment: str) -> Iterator[Service]:
    """The service over a migrated database of its own, with one worker that is warm."""
    port = free_port()
    words = what_make_runs("run", f"PORT={port}")
    assert words[:2] == ["exec", ".venv/bin/python"], words
    home.mkdir()
    new_sqlite(home / "opatlas.sqlite3")  # where it makes its own: migrating is not what is tried here
    own = {
        "DJANGO_SETTINGS_MODULE": "dashboard.settings", "OPATLAS_HOME": str(home), "OPATLAS_TUNING": "0",
        "OPATLAS_LOCK": str(home / "machine.lock"), **environment,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, *words[2:]], cwd=ROOT, env={**os.environ, **own}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said = read_until_up(process)
        [key] = re.findall(r"opk_\S+", said)
        service = Service(f"http://127.0.0.1:{port}", key, process, own)
        until(lambda: any(worker["warm"] for worker in service.call("workers/")["results"]), "a warm worker")
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=120)
        finally:
            process.kill()


def until(condition: Callable[[], T], what: str, timeout_s: float = 120) -> T:
    """What the condition gives once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)
    return found


def read_until_up(process: subprocess.Popen[str]) -> str:
    """What ``manage.py serve`` prints until it is up."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Opatlas is up" in line:
            return said
    raise AssertionError(f"it ended: {said}")
