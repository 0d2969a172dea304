"""SIGKILL at every step of a lookup, on either side: whoever comes next goes on, nothing that it is given is
wrong, nothing is counted twice, and nobody waits for long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dashboard.run.stack import free_port
from opatlas.client import Client, RestOfModel, usage
from opatlas.client.cache.store import EntryStore
from opatlas.client.service import rest
from opatlas.client.service.door import ServiceDoor
from opatlas.client.service.rest import RestClient
from opatlas.client.service.wire import ServiceWire
from opatlas.client.steps import LookupSteps
from opatlas.errors import OpatlasError
from opatlas.identity import Setting
from tests.catalog import making
from tests.databases import ROOT, new_sqlite
from tests.opatlas.client.forking import fork
from tests.opatlas.client.killable import KNOWN, LOADABLE, UNKNOWN, at_entry, at_exit, die
from tests.opatlas.load.kernels import add_operator

pytestmark = pytest.mark.slow

WAIT_S = 60.0
"""Beyond what any step may take on a busy host: a client gives a service up after twenty seconds."""


class KillableService:
    """``order("serve", point)``; one process that has everything imported answers."""

    def __init__(self, home: Path) -> None:
        new_sqlite(home / "opatlas.sqlite3")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | {
            "OPATLAS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "dashboard.settings", "OPATLAS_LOG": "ERROR",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.opatlas.client.killable", str(port)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.key = self.order("setup")["key"]

    def order(self, order, point=""):
        self._process.stdin.write(f"{order} {point}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(WAIT_S)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    running = KillableService(tmp_path_factory.mktemp("killable") / "home")
    with contextlib.closing(running):
        yield running


@pytest.fixture(scope="module")
def numbers():
    """Of operators that no other test has asked for: one that is known, and one that is not."""
    return zip(KNOWN, UNKNOWN, strict=True)


@pytest.fixture
def operators(numbers):
    known, unknown = next(numbers)
    return making.relu(known), making.relu(unknown)


@pytest.fixture
def job(service, tmp_path):
    """``job()``: another client on this machine."""
    made = []

    def make(**options):
        given = {"setting": Setting(threads=1), "accepts": {}, "cache": tmp_path / "cache", "timeout_s": 20.0}
        options = given | options
        made.append(Client(service.url, service.key, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(autouse=True)
def _soon_over():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 2 * WAIT_S, "nobody waits for what is dead"


@pytest.fixture
def reports_at_once(monkeypatch):
    monkeypatch.setattr(usage, "REPORT_S", -1.0)
    monkeypatch.setattr(usage, "LEAVE_S", 0.0)


def killed(work):
    """Work in a process of its own, which must be killed over it."""
    child = fork()
    if not child:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    end = time.monotonic() + WAIT_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("it hangs")
        time.sleep(0.005)
    assert os.waitstatus_to_exitcode(ended[1]) == -signal.SIGKILL


def sound(client):
    client.store.close()
    with contextlib.closing(sqlite3.connect(client.store.path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not list(client.store.path.parent.glob("*.damaged-*"))


def is_right(answers, operators):
    """Of one that is known and one that is not."""
    (known, unknown), keys = answers, [operator.key for operator in operators]
    assert [known.key, unknown.key] == keys
    assert known and known.best["ratio_to_default"] == 2.0
    assert not unknown and unknown.state == "waiting"


def with_s(job, operators):
    """A client that asks for all of these with any of them."""
    client = job()
    client.predictor = RestOfModel([client.asked(one) for one in operators])
    return client


def misses(counted, operator):
    return [state for key, state, _ in counted["missed"] if key == operator.key]


# ---- the service is killed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "counts"),
    [
        ("before_the_request_is_read", 0),
        ("before_it_looks_anything_up", 0),
        ("before_the_hits_are_written_down", 0),
        ("after_misses_and_hits_are_written_down", 1),
        ("after_half_of_the_answer", 1),
    ],
)
def test_a_service_that_dies_over_a_lookup(service, job, operators, point, counts):
    service.order("serve", point)
    first = job()
    empty = first.lookup_all(operators)
    assert [answer.source for answer in empty] == ["nobody"] * 2 and not any(empty)
    assert empty[0].reason and first.store.counts()["entries"] == 0
    assert service.order("serve")["was_killed"]
    second = job()
    is_right(second.lookup_all(operators), operators)
    sound(second)
    counted = service.order("count")
    assert misses(counted, operators[1]) == ["waiting"], "one, though it was asked for twice"
    # What the service had written down without its answer arriving counts, as the lookup that it was.
    assert counted["used"][operators[0].key] == counts + 1


@pytest.mark.parametrize(
    "point", ["before_a_manifest_is_sent", "after_half_of_a_manifest", "after_half_of_a_file"]
)
def test_a_service_that_dies_over_an_artifact(service, job, point):
    service.order("serve")
    answer = job().lookup(add_operator(LOADABLE))
    service.order("serve", point)
    if "manifest" in point:
        job().store.forget_manifest(answer.best["artifact"])
    with pytest.raises(OpatlasError):
        job().load(answer)
    assert service.order("serve")["was_killed"]
    x = np.ones(LOADABLE, np.float32)
    assert (job().load(answer)(x, x) == 2).all()
    sound(job())


@pytest.mark.parametrize(
    "point",
    ["before_the_request_is_read", "after_misses_and_hits_are_written_down", "after_half_of_the_answer"],
)
def test_a_service_that_dies_over_what_is_fetched_beside_a_hit(service, job, operators, point):
    service.order("serve")
    job().lookup(operators[0])
    service.order("serve", point)
    client = with_s(job, operators)
    assert client.lookup(operators[0]).source == "cache", "whatever becomes of S"
    assert service.order("serve")["was_killed"]
    second = job()
    is_right(second.lookup_all(operators), operators)
    sound(second)
    counted = service.order("count")
    assert misses(counted, operators[1]) == ["waiting"] and counted["used"][operators[0].key] == 1


@pytest.mark.parametrize("point", ["before_uses_are_counted", "after_uses_are_counted"])
def test_a_service_that_dies_over_a_report(service, job, operators, point, reports_at_once):
    service.order("serve")
    client = job()
    for _ in range(3):
        client.lookup(operators[0])
    service.order("serve", point)
    client.close()
    assert service.order("serve")["was_killed"]
    assert job().store.counts()["reports"] == 1
    job().close()
    assert job().store.counts()["reports"] == 0
    assert service.order("count")["used"][operators[0].key] == 3, "one by the service, two by its memory"


# ---- the client is killed -------------------------------------------------------------------------------


class Deadly:
    """Predicts nothing any more."""

    related = staticmethod(die)


def within(name):
    """Be killed in the transaction that this method of the cache makes."""
    method, within = getattr(EntryStore, name), []

    def noted(self, *given, **more):
        within.append(name)
        return method(self, *given, **more)

    setattr(EntryStore, name, noted)
    at_entry(EntryStore, "_make_room", when=lambda *_: bool(within))


LOOKUP_STEPS = {
    "S was built": (lambda: at_entry(ServiceDoor, "ask"), 0),
    "it is about to ask": (lambda: at_entry(ServiceWire, "send"), 0),
    "the answer begins to come": (lambda: at_exit(ServiceWire, "send"), 1),
    "the answer has come": (lambda: at_exit(RestClient, "ask"), 1),
    "it is about to write entries": (lambda: at_entry(EntryStore, "keep"), 1),
    "entries are being written": (lambda: within("keep"), 1),
    "entries were written": (lambda: at_exit(EntryStore, "keep"), 1),
    "it is about to write what was revoked": (lambda: within("revoke"), 1),
    "manifests were written": (lambda: at_exit(EntryStore, "keep_manifests"), 1),
}


@pytest.mark.parametrize("step", LOOKUP_STEPS)
def test_a_client_that_dies_over_a_lookup(service, job, operators, step):
    service.order("serve")
    arm, counts = LOOKUP_STEPS[step]

    def work():
        arm()
        job().lookup_all(operators)

    killed(work)
    second = job()
    answers = second.lookup_all(operators)
    is_right(answers, operators)
    sound(second)
    counted = service.order("count")
    assert misses(counted, operators[1]) == ["waiting"]
    assert counted["used"][operators[0].key] == counts + (answers[0].source == "service")


def test_a_client_that_dies_while_it_predicts(service, job, operators):
    service.order("serve")
    killed(lambda: job(predictor=Deadly()).lookup(operators[0]))
    second = job()
    is_right(second.lookup_all(operators), operators)
    sound(second)


BESIDE_STEPS = {
    "the hit was given": lambda: at_entry(LookupSteps, "_prefetch"),
    "it is about to ask for S": lambda: at_entry(ServiceWire, "send"),
    "S has come": lambda: at_exit(RestClient, "ask"),
    "what came of S is being written": lambda: within("keep"),
    "what came of S was written": lambda: at_exit(EntryStore, "keep"),
}


@pytest.mark.parametrize("step", BESIDE_STEPS)
def test_a_client_that_dies_over_what_is_fetched_beside_a_hit(service, job, operators, step):
    service.order("serve")
    job().lookup(operators[0])

    def work():
        client = with_s(job, operators)
        BESIDE_STEPS[step]()
        client.lookup(operators[0])
        time.sleep(2 * WAIT_S)

    killed(work)
    second = job()
    is_right(second.lookup_all(operators), operators)
    sound(second)
    counted = service.order("count")
    assert misses(counted, operators[1]) == ["waiting"] and counted["used"][operators[0].key] == 1


def half_of_a_file():
    pieces = rest.pieces

    def half(*response_and_bounds):
        for piece in pieces(*response_and_bounds):
            yield piece[: len(piece) // 2]
            die()

    rest.pieces = half


LOAD_STEPS = {
    "a file is about to be fetched": lambda: at_entry(RestClient, "_download"),
    "half of a file was written": half_of_a_file,
    "a file is about to have its name": lambda: at_entry(
        Path, "replace", when=lambda path, _: path.name.endswith(".part")
    ),
    "files have come": lambda: at_exit(RestClient, "download"),
}


@pytest.mark.parametrize("step", LOAD_STEPS)
def test_a_client_that_dies_over_an_artifact(service, job, step):
    service.order("serve")

    def work():
        LOAD_STEPS[step]()
        job().lookup(add_operator(LOADABLE)).load()

    killed(work)
    x = np.ones(LOADABLE, np.float32)
    second = job()
    assert (second.lookup(add_operator(LOADABLE)).load()(x, x) == 2).all()
    sound(second)


REPORT_STEPS = {
    "uses are about to be written down": (lambda: within("keep_report"), 0),
    "uses were written down": (lambda: at_exit(EntryStore, "keep_report"), 2),
    "a report is being claimed": (lambda: within("claim_report"), 2),
    "a report was claimed": (lambda: at_exit(EntryStore, "claim_report"), 2),
    "a report was sent": (lambda: at_exit(usage.UsageReporter, "_send"), 2),
    "a report is being dropped": (lambda: within("drop_report"), 2),
    "a report was dropped": (lambda: at_exit(EntryStore, "drop_report"), 2),
}


@pytest.mark.parametrize("step", REPORT_STEPS)
def test_a_client_that_dies_over_a_report(service, job, operators, step, reports_at_once):
    service.order("serve")
    arm, reported = REPORT_STEPS[step]

    def work():
        client = job()
        for _ in range(3):
            client.lookup(operators[0])
        arm()
        client.close()

    killed(work)
    second = job()
    second.close()
    assert second.store.counts()["reports"] == 0
    sound(second)
    assert service.order("count")["used"][operators[0].key] == 1 + reported
