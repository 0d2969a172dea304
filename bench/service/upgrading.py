"""A service that is upgraded while jobs ask: web processes of a tree, replaced by this tree's one by one."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.servers import MissingProgram
from dashboard.run.stack import free_port

ROOT = Path(__file__).resolve().parents[2]
SETUP = """
import json; import django; django.setup()
from catalog.best.publishing import publish
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation, register_operator, register_setting, register_target
from tests.catalog import making
place = {"target": register_target(making.TARGET), "setting": register_setting(making.SETTING)}
publish(making.new_result({"operator": register_operator(making.relu(64)), **place}, "eager", 1.0))
print(create_api_key(default_organisation(), "jobs", ["lookup"])[1])
asked = {"target": making.TARGET.to_json(), "setting": making.SETTING.to_json(), "include": ["manifest"]}
print(json.dumps({**asked, "operators": [{"graph": making.relu_json(64)}]}))
"""
"""What the tree before is given, by means of its own tests: prints a key, and what jobs ask."""

COUNT = """
import django; django.setup()
from catalog.models import Usage
print(Usage.objects.count())
"""


def tree_before(folder: Path) -> Path:
    """This tree as it was before its newest migration, unpacked below ``folder``; raises MissingProgram."""
    if shutil.which("git") is None:
        raise MissingProgram("git, which has the version before")
    known = migrations("HEAD")
    # Of what came to the main line, a merge as one; a branch's own versions of a migration, which were named
    # anew before they were landed, are nobody's database.
    changed = git("log", "--first-parent", "-m", "--format=%H^", "--", "*/migrations/0*.py").decode().split()
    commit = next((one for one in changed if migrations(one) < known), "")
    if not commit or not migrations(commit):
        raise MissingProgram("the history of this tree, which has the version before")
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as packed:
        packed.extractall(folder / "before", filter="data")
    return folder / "before"


def migrations(commit: str) -> set[str]:
    """But squashed ones: who has what they replace has nothing left to migrate."""
    paths = git("ls-tree", "-r", "--name-only", commit).decode().splitlines()
    return {path for path in paths if "/migrations/0" in path and "_squashed_" not in path}


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True).stdout


BETWEEN_S = 0.02
"""Between an answer and a job's next question: what is upgraded has cores left."""


class Web:
    """One web process of a tree, and how it is asked."""

    def __init__(self, tree: Path, environment: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [str(Path(sys.executable).parent / "granian"), "--interface", "wsgi"]
        self._process = subprocess.Popen(
            [*command, "dashboard.wsgi:application"], cwd=tree, stdin=subprocess.DEVNULL,
            env={**environment, "GRANIAN_PORT": str(port)},
        )  # fmt: skip
        until(self._answers, "a web process")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        """As a service manager does: it ends what it has begun."""
        self._process.terminate()
        self._process.wait(30)


class Jobs:
    """Asks one process after the other, over and over; whom a request cannot be sent to, the next, as a
    balancer does."""

    def __init__(self, key: str, body: str, webs: list[Web]) -> None:
        self._body = body.encode()
        self.webs, self.answered, self.lost = webs, 0, list[str]()
        self._key, self._ended = key, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(2)]

    def _ask(self, number: int) -> None:
        while not self._ended.is_set():
            try:
                self._ask_one(number)
                self.answered += 1
            except Exception as error:
                self.lost.append(f"{error!r} {getattr(error, 'read', bytes)()[:500]!r}")
            number += 1
            time.sleep(BETWEEN_S)

    def _ask_one(self, number: int) -> None:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        for web in (self.webs[number % 2], self.webs[1 - number % 2]):
            asked = urllib.request.Request(f"{web.url}/api/v1/lookup", self._body, headers)
            try:
                with urllib.request.urlopen(asked, timeout=40) as answer:
                    assert json.load(answer)["results"][0]["status"] == "hit"
                    return
            except urllib.error.URLError as error:  # while it was sent: once it was, errors are none of these
                if not isinstance(error.reason, ConnectionError):
                    raise
        raise AssertionError("nobody listened")

    @contextmanager
    def asking(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(60)

    def go_on(self) -> None:
        """Wait until further ones were answered."""
        enough = self.answered + 20
        until(lambda: self.answered >= enough or self.lost, "answers")


def until(condition: Callable[[], object], what: str, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.1)


@dataclass(frozen=True)
class Upgraded:
    """What came of it: lookups that were answered, why others were not, and how many were counted."""

    answered: int
    lost: list[str]
    counted: int


def upgrade(before: Path, home: Path, **database: str) -> Upgraded:
    """Start the tree ``before``, migrate under it and replace it, while jobs ask."""
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment = inherited | {
        "OPATLAS_HOME": str(home),
        "OPATLAS_LOG": "ERROR",
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        **database,
    }

    def run(tree: Path, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run(before, "manage.py", "migrate", "-v0")
    key, body = run(before, "-c", SETUP).splitlines()
    jobs = Jobs(key, body, [Web(before, environment), Web(before, environment)])
    try:
        with jobs.asking():
            jobs.go_on()
            assert "Applying" in run(ROOT, "manage.py", "migrate"), "there is something to migrate"
            jobs.go_on()
            for number in range(2):
                jobs.webs[number].stop()
                jobs.webs[number] = Web(ROOT, environment)
                jobs.go_on()
    finally:
        for web in jobs.webs:
            web.stop()
    run(ROOT, "manage.py", "drain_journal")
    return Upgraded(jobs.answered, jobs.lost, int(run(ROOT, "-c", COUNT)))
