"""A whole client on a bad day: a full disk, a clock that jumps, a fork meanwhile, a wrong signature."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time

import numpy as np
import pytest

from catalog.models import Artifact, Miss
from opatlas.client import Client, Refused, usage
from opatlas.client.service import wire
from opatlas.client.service.login import is_readable_on_its_way
from opatlas.errors import LoadError
from opatlas.identity import Setting
from tests.catalog import making
from tests.opatlas.client.forking import fork
from tests.opatlas.client.test_client import used
from tests.opatlas.load.kernels import add_operator


def in_a_child(work):
    """Whether what is said there is true."""
    child = fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_on_a_full_disk_a_job_goes_on_from_memory(publish_add, job, requests):
    publish_add()

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        client = job()
        answers = [client.lookup(add_operator()) for _ in range(3)]
        assert [answer.source for answer in answers] == ["service", "memory", "memory"]
        assert not client.lookup("Relu", (7,))
        with pytest.raises(LoadError, match="cannot be kept"):
            answers[0].load()
        client.close()
        return True

    assert in_a_child(work)
    x = np.ones(1000, np.float32)
    assert (job().lookup(add_operator()).load()(x, x) == 2).all(), "once there is room again"


def test_a_fork_in_the_middle_of_a_request(publish_add, publish_all, job):
    publish_add()
    publish_add(999)
    client, found = job(), []
    client.lookup(add_operator(999))
    waits = threading.Thread(target=lambda: found.append(client.lookup("Relu", (7,), wait_s=25)))
    waits.start()
    while not Miss.objects.exists():  # the request is under way, and its connection in use
        time.sleep(0.01)
    x = np.ones(1000, np.float32)

    def work():
        assert client.lookup(add_operator(999)).source == "memory"
        answer = client.lookup(add_operator())
        return answer.source == "service" and (answer.load()(x, x) == 2).all()

    assert in_a_child(work) and waits.is_alive()
    assert (client.lookup(add_operator()).load()(x, x) == 2).all(), "the parent meanwhile"
    publish_all([making.relu(7)])
    waits.join()
    assert found[0] and found[0].source == "service", "on the connection that it has had"


def test_after_a_fork_both_ask_at_once_and_each_has_its_own_answers(publish_all, job):
    operators = [add_operator(size) for size in range(1, 41)]
    publish_all(operators)
    client = job()
    client.lookup(operators[0])  # leaves a connection open

    def work():
        found = [client.rest.ask([{"key": one.key}]).answers[0] for one in operators * 2]
        return all(answer.key == one.key and answer for answer, one in zip(found, operators * 2, strict=True))

    child = threading.Thread(target=lambda: in_both.append(in_a_child(work)))
    in_both: list[bool] = []
    child.start()
    assert work()
    child.join()
    assert in_both == [True]


def test_a_signature_that_is_wrong_is_asked_for_once_more_and_refused(publish_add, job, requests, careless):
    publish_add()
    right = Artifact.objects.get().signature
    Artifact.objects.update(signature="00" * 64)
    answer = job().lookup(add_operator())
    with pytest.raises(Refused) as refused:
        answer.load()
    assert refused.value.why == "signature"
    assert not [path for path in requests if "/files/" in path], "nothing of it was fetched"
    Artifact.objects.update(signature=right)
    assert answer.load()


@pytest.mark.parametrize("ahead_s", [-86400.0, -30.0, 30.0, 86400.0])
def test_a_wall_clock_that_jumps_costs_requests_at_most(publish_add, job, requests, monkeypatch, ahead_s):
    publish_add()
    monkeypatch.setattr(usage, "REPORT_S", -1.0)
    monkeypatch.setattr(usage, "LEAVE_S", 0.0)
    wall, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: wall() + ahead[0])
    first = job()
    sources = [first.lookup(add_operator()).source for _ in range(2)]
    ahead[0] = ahead_s
    sources.append(first.lookup(add_operator()).source)
    second = job()
    sources.append(second.lookup(add_operator()).source)
    assert sources[:3] == ["service", "memory", "memory"], "a process goes by the clock that does not jump"
    assert sources[3] == ("cache" if ahead_s == 30 else "service")
    first.close()
    ahead[0] = 0.0
    third = job()
    sources.append(third.lookup(add_operator()).source)
    assert sources[4] in ("cache", "service")
    second.close()
    third.close()
    job().close()
    assert used() == {add_operator().key: len(sources)}, "each use once"
    assert requests.count("/api/v1/lookup") == sources.count("service")


@pytest.mark.parametrize(("url", "readable"), [
    ("http://atlas.example.com:8000", True),
    ("http://atlas.example.com./under/it", True),
    ("http://user@8.8.8.8", True),
    ("http://[2001:4860:4860::8888]:80", True),
    ("https://atlas.example.com", False),
    ("http://127.0.0.1:8000", False),
    ("http://127.8.9.1", False),
    ("http://[::1]:8000", False),
    ("http://localhost:8000", False),
    ("http://atlas.localhost", False),
    ("http://10.1.2.3:8000", False),
    ("http://192.168.0.7", False),
    ("http://100.64.0.1", False),  # a provider's own network
    ("http://[fd00::7]", False),
    ("http://[fe80::7%25eth0]", False),
    ("http://atlas:8000", False),
    ("http://[::1", False),
])  # fmt: skip
def test_whose_network_a_key_travels_through(url, readable):
    assert is_readable_on_its_way(url) == readable


def test_a_key_that_is_sent_in_the_open_is_said_once_and_the_job_goes_on(
    publish_add, job, live_server, make_key, settings, monkeypatch, caplog, tmp_path
):
    publish_add()
    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(wire, "_warned", set())
    find, port = socket.getaddrinfo, int(live_server.url.rpartition(":")[2])
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more: find({"atlas.example.com": "127.0.0.1"}.get(host, host), *more),
    )
    far, key = f"http://atlas.example.com:{port}", make_key("lookup")
    assert job().lookup(add_operator()) and "https" not in caplog.text, "to this machine"
    for number in range(2):
        with Client(far, key, setting=Setting(threads=1), cache=tmp_path / f"far{number}") as client:
            assert client.lookup(add_operator()) and not client.lookup("Relu", (7,))
    said = [record.message for record in caplog.records if "https://" in record.message]
    assert said == [
        f"The API key is sent to {far} unencrypted, where whoever is on the way can read it: use https://."
    ]
    assert key not in caplog.text
