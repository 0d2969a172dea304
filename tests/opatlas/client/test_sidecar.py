"""A real sidecar process between jobs and a served catalogue."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from django.db.models import Sum
from urllib3.exceptions import NewConnectionError

from catalog.api import lookup_json
from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Implementation, LookupTally, Target, Usage
from catalog.usage.draining import drain_journal
from opatlas.client import Client
from opatlas.client.cache.store import EntryStore
from opatlas.client.service import wire
from opatlas.client.service.login import card_path
from opatlas.client.service.rest import RefusedRequest, ServiceError
from opatlas.client.service.unix_socket import SocketConnection
from opatlas.identity import Setting, detect_target
from tests.catalog import making
from tests.dashboard.billing.conftest import price  # noqa: F401
from tests.opatlas.client.forking import fork
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import add_operator

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = """
import sys
from opatlas.client import base, usage
from opatlas.sidecar import shared_client
base.WRITE_S, usage.REPORT_S, shared_client.TIMEOUT_S = 0.1, float(sys.argv.pop(1)), 30.0
from opatlas.cli import main
main()
"""
"""The command, which writes uses down and reports them when a test wants it, and bears with a busy host."""


class Counted:
    """A way to a service that counts the connections made to it. ``hears`` is called with what the service
    says before anybody hears it."""

    def __init__(self, url: str) -> None:
        self.made = 0
        self.hears: Callable[[bytes], object] = len
        host, port = url.removeprefix("http://").split(":")
        self._to = host, int(port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                self.made += 1
                far = socket.create_connection(self._to)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other, one is far), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, says: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if says:
                    self.hears(data)
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.close()


@pytest.fixture(autouse=True)
def forgotten_rules():
    from dashboard.billing import rules

    rules.forget()
    yield
    rules.forget()


@pytest.fixture
def service(live_server):
    counted = Counted(live_server.url)
    yield counted
    counted.close()


@pytest.fixture
def key(make_key):
    return make_key("lookup", "admin")


@pytest.fixture
def sidecar(service, key, tmp_path):
    """``sidecar()``: a process; it listens when this returns. ``home`` has its cache, ``at`` its socket."""
    running = []

    def start(home: str = "cache", at: str = "s.sock", report_s: float = 60.0) -> subprocess.Popen[str]:
        environment = {"OPATLAS_URL": service.url, "OPATLAS_KEY": key, "OPATLAS_CACHE": str(tmp_path / home)}
        process = subprocess.Popen(
            [sys.executable, "-c", QUICK, str(report_s), "sidecar", "--socket", str(tmp_path / at)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        running.append(process)
        process.said = process.stdout.readline()  # type: ignore[attr-defined, union-attr]
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def beside(tmp_path):
    """``beside()``: a job's client without a key or a cache of its own."""
    made = []

    def make(**options) -> Client:
        given = {"sidecar": tmp_path / "s.sock", "cache": False, "setting": Setting(threads=1), "job": "run"}
        given["timeout_s"] = 40.0
        made.append(Client(**(given | options)))
        return made[-1]

    yield make
    for client in made:
        client.close()


def in_processes(count: int, work: Callable[[int], object]) -> list:
    """What ``work`` gives in each of so many processes that begin at the same time."""
    begin, ends, children = time.time() + 0.3 + count / 100, [], []
    for number in range(count):
        out, into = os.pipe()
        child = fork()
        if not child:
            try:
                time.sleep(max(begin - time.time(), 0))
                os.write(into, json.dumps(work(number)).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(into)
        ends.append(out)
        children.append(child)
    found = []
    for out, child in zip(ends, children, strict=True):
        with os.fdopen(out, "rb") as stream:
            found.append(json.loads(stream.read() or b"null"))
        os.waitpid(child, 0)
    return found


def used() -> dict[tuple[str, str], float]:
    """Calls by job and operator, of everything that was counted."""
    drain_journal()
    rows = Usage.objects.values("job__name", "operator__key").annotate(total=Sum("calls"))
    return {(row["job__name"], row["operator__key"]): row["total"] for row in rows}


def test_sixteen_processes_make_one_connection_and_few_requests(
    publish_add,
    sidecar,
    beside,
    service,
    requests,
    key,
):
    sizes = range(990, 1000)
    for size in sizes:
        publish_add(size)
    sidecar()

    def work(number: int) -> object:
        turned = [*sizes[number % 10 :], *sizes[: number % 10], 7]
        with beside() as client:
            found = [client.lookup(add_operator(size)) for size in turned]
        return {answer.key: [answer.status, answer.best and dict(answer.best)] for answer in found}

    found = in_processes(16, work)
    assert service.made == 1
    assert len(requests) <= 2 * 11, "each is asked for once, but for what was on its way"
    with Client(service.url, key, cache=False, sidecar=False, setting=Setting(threads=1)) as direct:
        truth = {
            a.key: [a.status, a.best and dict(a.best)]
            for a in direct.lookup_all(map(add_operator, (*sizes, 7)))
        }
    assert all(one == truth for one in found)


def test_waiting_for_what_is_not_known_yet(publish_add, sidecar, beside, service):
    sidecar()
    client, found = beside(), []
    waiting = threading.Thread(target=lambda: found.append(client.lookup(add_operator(), wait_s=25)))
    waiting.start()
    until(lambda: service.made)
    assert not beside().lookup(add_operator()), "who does not wait is not kept waiting"
    publish_add()
    waiting.join()
    assert found[0].best["median_us"] == 10.0


def test_killed_in_the_middle_of_requests_jobs_go_on_and_come_back(
    publish_add, sidecar, beside, service, key, requests
):
    publish_add()
    with_key, without = beside(url=service.url, key=key), beside()
    killed = sidecar()
    assert with_key.lookup(add_operator(7)).source == "service"
    assert service.made == 1, "asked by the sidecar"
    found = []
    waiting = [
        threading.Thread(target=lambda one=one: found.append(one.lookup(add_operator(8), wait_s=8)))
        for one in (with_key, without)
    ]
    for thread in waiting:
        thread.start()
    until(lambda: len(requests) >= 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for thread in waiting:
        thread.join()
    assert sorted((one.source, one.state) for one in found) == [("nobody", ""), ("service", "waiting")]
    assert with_key.lookup(add_operator()), "by its own key"
    empty = without.lookup(add_operator())
    assert empty.source == "nobody"

    sidecar()  # where the killed one's socket lies
    until(lambda: without.lookup(add_operator()))
    before = service.made
    assert with_key.lookup(add_operator(9)).source == "service" and service.made <= before + 1
    without.lookup(add_operator(10))
    assert service.made <= before + 1, "one connection is for all again"


def test_a_miss_is_counted_once_whoever_remembered_it(sidecar, beside):
    process, one, other = sidecar(report_s=0.0), beside(), beside()
    for client in (one, one, other, other):
        assert not client.lookup(add_operator(7))
    assert one.counts["miss"] == other.counts["miss"] == 2
    for client in (one, other):  # what was missed alone is worth no request of theirs
        client._write_uses()
        client._reporter.send_all(client.rest, 20.0)
    process.terminate()
    process.wait(60)
    drain_journal()
    (tally,) = LookupTally.objects.all()
    assert (tally.operator.key, tally.misses, tally.hits) == (add_operator(7).key, 4, 0)


def test_what_nobody_could_be_asked_about_is_each_jobs_own_miss(
    publish_add, sidecar, beside, service, tmp_path
):
    publish_add()
    process = sidecar()
    assert beside().lookup(add_operator())

    def gone(said: bytes) -> None:
        raise ConnectionError

    service.hears = gone
    client = beside()
    found = client.lookup_all([add_operator(), add_operator(9)])
    assert [bool(one) for one in found] == [True, False] and found[1].state == "unasked"
    assert not client.lookup(add_operator(8)), "all of it"
    assert client._missed == {add_operator(size).key: 1 for size in (9, 8)} and client.counts["miss"] == 2
    process.terminate()
    process.wait(60)
    rows = EntryStore(tmp_path / "cache")._rows("SELECT body FROM reports")
    reports = [json.loads(body) for (body,) in rows]
    assert reports and not any("missed" in one for one in reports), "the sidecar counts none of it"


def test_a_silent_sidecar_is_given_up_and_the_service_asked(
    publish_add, sidecar, beside, service, key, monkeypatch
):
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 600.0)  # it is not asked again
    publish_add()
    process = sidecar()
    client, keyless = beside(url=service.url, key=key, timeout_s=1.5), beside(timeout_s=1.5)
    process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    empty = client.lookup(add_operator()), keyless.lookup(add_operator())
    assert [one.source for one in empty] == ["nobody"] * 2 and time.monotonic() - began < 30
    client.rest.timeout_s = 40.0
    until(lambda: client.lookup(add_operator()))


def test_a_job_that_began_before_its_sidecar(publish_add, sidecar, beside, requests):
    publish_add()
    client = beside()
    assert "no sidecar at" in client.lookup(add_operator()).reason and not requests
    sidecar()
    until(lambda: client.lookup(add_operator()))


def test_who_has_another_login_asks_by_itself(publish_add, sidecar, beside, service, make_key, requests):
    publish_add()
    sidecar()
    stranger = beside(url=service.url, key=make_key("lookup"))
    assert stranger.lookup(add_operator()).source == "service"
    assert beside().lookup(add_operator()).source == "service"
    assert len(requests) == 2, "nothing of it was given to the other"


def test_what_the_machine_knows_is_asked_of_nobody(publish_add, sidecar, beside, tmp_path, requests):
    publish_add()
    process = sidecar()
    beside().lookup(add_operator())
    job = beside(cache=tmp_path / "cache", accepts=beside().accepts)
    known = job.lookup(add_operator())
    assert known.source == "cache", "the sidecar kept it for whoever has its login"
    body = {"target": job.target.to_json(), "setting": job.setting.to_json(), "accepts": job.accepts}
    body |= {"operators": [{"key": known.key}], "known": [known.best["artifact"]]}
    body["include"] = ["evidence", "neighbours", "neighbour_defaults"]
    told = beside().rest.call("POST", "/api/v1/lookup", body)
    assert told["unchanged"] == body["known"]
    assert told["results"][0]["best"]["evidence"] == known.evidence != {}
    process.send_signal(signal.SIGSTOP)
    assert beside(cache=tmp_path / "cache").lookup(add_operator()).source == "cache"
    assert len(requests) == 1


def test_entries_live_no_longer_than_the_service_said(publish_add, sidecar, beside):
    publish_add()
    sidecar()
    first = beside().lookup(add_operator()).expires_s
    time.sleep(0.5)
    assert beside().lookup(add_operator()).expires_s <= first - 0.4


def test_what_was_revoked_reaches_every_job(publish_add, sidecar, beside, tmp_path):
    made = publish_add()
    sidecar()
    far = beside(cache=tmp_path / "elsewhere")
    assert far.lookup(add_operator())
    withdraw(Implementation.objects.filter(pk=made.implementation.pk), "it is wrong")
    revoked.forget()
    beside().lookup(add_operator(999))  # the sidecar is told
    assert far.lookup(add_operator()).source == "memory"
    far.lookup(add_operator(999))  # is told by the sidecar, which asks nobody
    assert not far.lookup(add_operator())
    assert made.implementation.artifact.sha256 in far.store.revoked()[0]


def test_another_machines_entries_come_as_each_job_understands_them(
    publish_add, sidecar, beside, tmp_path, monkeypatch
):
    here = detect_target()
    there = replace(here, cores=here.cores + 6)
    publish_add(threads=there.cores, provenance={"target": there.to_json()})
    Target.objects.update(key=there.key, description=there.to_json())
    sidecar()
    found = beside(setting=None, cache=tmp_path / "one").lookup(add_operator())
    assert found.from_neighbour["differs"]["setting.threads"]["neighbour"] == there.cores
    monkeypatch.setattr("opatlas.client.base.NEIGHBOURS", ("neighbours",))  # a job from before
    assert not beside(setting=None, cache=tmp_path / "two").lookup(add_operator())


def test_files_are_fetched_once_for_all_jobs(publish_add, sidecar, beside, tmp_path, requests):
    publish_add()
    sidecar()
    x = np.ones(1000, np.float32)

    def work(number: int) -> object:
        with beside(cache=tmp_path / ("cache" if number % 2 else f"home{number}")) as client:
            return float(client.lookup(add_operator()).load()(x, x).sum())

    assert in_processes(6, work) == [2000.0] * 6
    files = [path for path in requests if "/files/" in path]
    assert len(files) == 1
    (kernel,) = (tmp_path / "cache" / "artifacts").rglob("kernel.so")
    kernel.write_bytes(b"damaged")
    with beside(cache=tmp_path / "another") as client:
        assert (client.lookup(add_operator()).load()(x, x) == 2).all(), "it is compared with its manifest"


def test_files_may_take_longer_than_a_job_waits_for_an_answer(publish_add, sidecar, beside, monkeypatch):
    from catalog.api import files

    publish_add()
    sidecar()
    x, send = np.ones(1000, np.float32), files._read
    monkeypatch.setattr(files, "_read", lambda *given: (time.sleep(4), send(*given))[1])
    client = beside(timeout_s=3.0)
    assert (client.lookup(add_operator()).load()(x, x) == 2).all()


# ---- uses -----------------------------------------------------------------------------------------------


def written_down(store: EntryStore) -> float:
    """Lookups in reports that wait to be sent."""
    reports = [json.loads(body) for (body,) in store._rows("SELECT body FROM reports")]
    return sum(item["lookups"] for report in reports for item in report["used"])


def test_uses_are_counted_once_though_sidecar_and_jobs_are_killed(publish_add, sidecar, beside, tmp_path):
    publish_add()
    killed = sidecar()

    def work(number: int) -> object:
        clients = [beside(job=name) for name in ("first", "second")]
        return [client.lookup(add_operator()).hit for client in clients]  # and ends without closing

    assert in_processes(3, work) == [[True, True]] * 3
    store = EntryStore(tmp_path / "cache")
    until(lambda: written_down(store) + sum(used().values()) == 6)
    assert store.counts()["reports"] == 2
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    sidecar(report_s=0.2)
    until(lambda: store.counts()["reports"] == 0)
    key = add_operator().key
    assert used() == {("first", key): 3, ("second", key): 3}
    assert used() == {("first", key): 3, ("second", key): 3}


def test_a_charged_answer_that_got_lost_is_paid_once(publish_add, sidecar, beside, price):  # noqa: F811
    from dashboard.billing.models import LedgerEntry

    publish_add()
    price(5.0)
    sidecar()
    client = beside()
    item = {"key": add_operator().key}
    call = client.rest.call

    def lose(*given, **options):
        call(*given, **options)
        raise ServiceError("The connection broke.")

    client.rest.call = lose
    with pytest.raises(ServiceError):
        client.rest.ask([item])
    client.rest.call = call
    assert client.rest.ask([item]).answers[0].price["amount_micros"] == 5_000_000
    assert LedgerEntry.objects.filter(kind="charge").count() == 1
    assert client.rest.ask([item]).answers[0].price
    assert LedgerEntry.objects.filter(kind="charge").count() == 2, "another one is another one"
    assert all(in_processes(4, lambda _: beside().lookup(add_operator()).price is not None))
    assert LedgerEntry.objects.filter(kind="charge").count() == 6, "who asks together pays each"


@pytest.fixture
def dies_over_a_price(service):
    """``dies_over_a_price(sidecar())``: it is killed when the service has charged and answered, and before it
    hears of it. Gives what tells whether that has come to pass."""

    def arm(process: subprocess.Popen[str]) -> threading.Event:
        dead = threading.Event()

        def kill(said: bytes) -> None:
            if b'"price"' in said and not dead.is_set():
                dead.set()
                process.kill()
                process.wait()

        service.hears = kill
        return dead

    return arm


def paid() -> list[int]:
    from dashboard.billing.models import LedgerEntry

    return [-entry.amount_micros for entry in LedgerEntry.objects.filter(kind="charge")]


def test_killed_between_a_charge_and_its_answer_it_is_paid_once_by_the_service_itself(
    publish_add,
    sidecar,
    beside,
    service,
    key,
    price,  # noqa: F811
    dies_over_a_price,
):
    publish_add()
    price(5.0)
    dead = dies_over_a_price(sidecar())
    client = beside(url=service.url, key=key)
    assert client.lookup(add_operator()).price and dead.is_set()
    assert paid() == [5_000_000]
    assert client.lookup(add_operator()).price
    assert paid() == [5_000_000] * 2, "another one is another one"


@pytest.mark.parametrize("service_knows", ["free_only", "no free_only: each lookup is passed on"])
def test_killed_between_a_charge_and_its_answer_it_is_paid_once_by_the_next_sidecar(
    publish_add,
    sidecar,
    beside,
    price,  # noqa: F811
    monkeypatch,
    dies_over_a_price,
    service_knows,
):
    publish_add()
    price(5.0)
    if service_knows != "free_only":
        monkeypatch.setattr(lookup_json, "_FIELDS", lookup_json._FIELDS - {"free_only"})
    dead = dies_over_a_price(sidecar())
    client = beside()
    assert client.lookup(add_operator()).source == "nobody" and dead.is_set()
    sidecar()
    found = []
    until(lambda: found or found.extend(filter(None, [client.lookup(add_operator()).price])))
    assert paid() == [5_000_000]


def test_what_is_free_is_counted_once_beside_what_costs(
    publish_add,
    publish_all,
    sidecar,
    beside,
    requests,
    price,  # noqa: F811
):
    operators = [add_operator(1000), add_operator(1001), making.relu(64)]
    for size in (1000, 1001):
        publish_add(size)
    publish_all(operators[2:])
    price(5.0, op_type="Relu")
    process = sidecar(report_s=0.2)
    first = beside(accepts={}).lookup(operators[0])  # the sidecar has it now
    found = beside(accepts={}).lookup_all(operators)
    assert first and [one.price is not None for one in found] == [False, False, True]
    lookups = functools.partial(requests.count, "/api/v1/lookup")
    assert lookups() == 3, "it found out that one costs something, and passed all on"
    assert beside(accepts={}).lookup(operators[2]).price
    assert lookups() == 4, "which it knows now"
    assert beside(accepts={}).lookup(operators[0]) and lookups() == 4
    until(lambda: "/api/v1/usage" in requests)  # what the sidecar gave itself
    process.terminate()
    process.wait(60)
    counted = used()
    assert [counted["run", operator.key] for operator in operators] == [3, 1, 2]
    assert paid() == [5_000_000] * 2


def test_one_job_on_two_machines_is_one(publish_add, sidecar, beside, tmp_path):
    publish_add()
    for machine in ("one", "two"):
        sidecar(home=machine, at=f"{machine}.sock")
        job = beside(sidecar=tmp_path / f"{machine}.sock", cache=tmp_path / f"{machine}-job", job="spread")
        assert job.lookup(add_operator())
        assert job.lookup(add_operator()).source == "memory"
        job._write_uses()
        job._reporter.send_all(job.rest, 5.0)  # by the sidecar
    assert used() == {("spread", add_operator().key): 4}
    assert Usage.objects.values("job").distinct().count() == 1


# ---- the process ----------------------------------------------------------------------------------------


def test_it_says_where_it_is_and_ends_cleanly(sidecar, tmp_path):
    for ending in (signal.SIGTERM, signal.SIGINT):
        process = sidecar()
        assert str(tmp_path / "s.sock") in process.said
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o600
        process.send_signal(ending)
        assert process.wait(60) == 0 and not process.stderr.read()
        assert not (tmp_path / "s.sock").exists() and not card_path(tmp_path / "s.sock").exists()


def test_it_needs_a_login(tmp_path):
    environment = {"OPATLAS_KEY": "", "OPATLAS_CONFIG": str(tmp_path), "OPATLAS_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "opatlas.cli", "sidecar"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 2 and "needs a login" in done.stderr and done.stderr.count("\n") == 1


def test_a_second_one_is_refused_and_a_file_is_left_alone(sidecar, tmp_path):
    first = sidecar()
    second = sidecar()
    assert second.wait(60) == 2 and f"already (process {first.pid})" in second.stderr.read()
    assert first.poll() is None and (tmp_path / "s.sock").exists()
    (tmp_path / "precious").write_text("mine")
    third = sidecar(at="precious")
    assert third.wait(60) == 2 and "is a file" in third.stderr.read()
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_where_the_socket_is_open_to_all(sidecar, tmp_path):
    sidecar()
    path = tmp_path / "s.sock"
    assert speak(path, b"GET /nothing HTTP/1.1\r\n\r\n")

    def as_nobody(number: int) -> object:
        os.setgid(23456)
        os.setuid(23456)
        try:
            return speak(path, b"GET /nothing HTTP/1.1\r\n\r\n").decode()
        except PermissionError:
            return "closed door"
        except ConnectionError:
            return ""

    assert in_processes(1, as_nobody) == ["closed door"]
    path.chmod(0o666)
    closed = {folder: folder.stat().st_mode for folder in path.parents if not folder.stat().st_mode & 0o001}
    for folder, mode in closed.items():
        folder.chmod(mode | 0o011)
    try:
        assert in_processes(1, as_nobody) == [""]
    finally:
        for folder, mode in closed.items():
            folder.chmod(mode)


def speak(path: Path, text: bytes, timeout_s: float = 20.0) -> bytes:
    """What a sidecar says to this until it hangs up, or a first answer."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(timeout_s)
        line.connect(str(path))
        line.sendall(text)
        return line.recv(1 << 16)


def test_who_speaks_by_the_page_alone_is_answered(publish_add, sidecar, tmp_path):
    """docs/protocol.md, without this client: the card, the socket, and the fields of an answer."""
    publish_add()
    process = sidecar()
    card = json.loads((tmp_path / "s.sock.json").read_text())
    assert re.fullmatch("[0-9a-f]{32}", card["service"]) and card["process"] == process.pid
    asked = {
        "target": detect_target().to_json(),
        "setting": {"threads": 1},
        "operators": [{"graph": {"op": "Add", "inputs": [{"shape": [1000], "dtype": "float32"}] * 2}}],
        "include": ["manifest"],
        "job": "run",
    }
    line = http.client.HTTPConnection("localhost")
    line.sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(line):
        line.sock.connect(str(tmp_path / "s.sock"))
        line.request("POST", "/api/v1/lookup", json.dumps(asked), {"Opatlas-Service": card["service"]})
        response = line.getresponse()
        told = json.loads(response.read())
        line.request("POST", "/api/v1/lookup", json.dumps(asked), {"Opatlas-Service": "0" * 32})
        assert line.getresponse().status == 421, "of the same connection"
    page = Path("docs/protocol.md").read_text()
    table = page.partition("The answer:")[2].partition("\n\n`best`")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert response.status == 200 and set(told) <= named
    (result,) = told["results"]
    assert (result["key"], result["status"]) == (add_operator().key, "hit")
    signed = told["manifests"][result["best"]["artifact"]]
    assert signed["signer"] in told["signers"] and told["target"] == detect_target().key


def test_a_full_house_is_waited_for_and_no_longer_than_was_said(tmp_path):
    path = str(tmp_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(0)
        first = SocketConnection(path, timeout=5.0)._new_conn()
        with pytest.raises(NewConnectionError, match="unavailable"):
            SocketConnection(path, timeout=0.05)._new_conn()
        opening = threading.Timer(0.1, listening.accept)
        opening.start()
        SocketConnection(path, timeout=30.0)._new_conn().close()
        opening.join()
        first.close()


def test_broken_jobs_keep_no_other_waiting(publish_add, sidecar, beside, tmp_path):
    publish_add()
    process = sidecar()
    path, left = tmp_path / "s.sock", []
    assert b"no request" in speak(path, b"\x16\x03\x01\x02garbage\r\n\r\n")
    assert b"HTTP/1.1 4" in speak(path, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n")
    assert b" 413 " in speak(path, b"POST /api/v1/lookup HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
    assert b" 411 " in speak(path, b"POST /api/v1/lookup HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert b" 404 " in speak(path, b"GET /api/v1/keys/ HTTP/1.1\r\n\r\n"), "the login is lent for little"
    assert b" 421 " in speak(path, b"GET /api/v1/signers/ HTTP/1.1\r\nOpatlas-Service: 00\r\n\r\n")
    assert b"HTTP/1.1 501" in speak(path, b"DELETE /api/v1/signers/ HTTP/1.1\r\n\r\n")
    for text in (b"", b"POST /api/v1/lookup HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"):
        for _ in range(300):  # more than it has room for, silent or in the middle of a request
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(path))
            line.sendall(text)
            left.append(line)
    assert beside().lookup(add_operator())
    threads = int(re.search(r"Threads:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])
    assert 400 < threads < 560
    for line in left:
        line.close()
    assert beside().lookup(add_operator())


def test_what_it_does_not_know_is_the_services_to_answer(publish_add, sidecar, beside, service, requests):
    publish_add()
    sidecar()
    call = beside().rest.call
    operators = [{"key": add_operator().key, "calls": 3}]
    asked = {"target": "here", "operators": operators}
    with pytest.raises(RefusedRequest, match="worker"):
        call("POST", "/api/v1/lookup", asked)
    with pytest.raises(RefusedRequest, match="There is no field"):
        call("POST", "/api/v1/lookup", asked | {"later": 1})
    assert len(requests) == 2
    client = beside()
    assert client.explain(add_operator(5))["sentence"]
    with pytest.raises(RefusedRequest, match="NoSuch") as refused:
        graph = {"op": "NoSuch", "inputs": []}
        place = {"target": client.target.to_json(), "setting": client.setting.to_json()}
        call("POST", "/api/v1/lookup", place | {"operators": [{"graph": graph}]})
    assert refused.value.where == "operators[0].graph"
