"""Connections that are out to hold the web server up: others are answered, and memory stays bounded."""

from __future__ import annotations

import http.client
import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from dashboard.run.stack import Stack

pytestmark = pytest.mark.slow
HEAD = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The web server alone, as `make run` starts it."""
    from tests.databases import new_sqlite

    home = tmp_path_factory.mktemp("home")
    url = new_sqlite(home / "opatlas.sqlite3")
    environment = {"OPATLAS_HOME": str(home), "DATABASE_URL": url, "BROKER_URL": ""}
    with Stack(environment=environment, workers=0, courier=False, logs=home / "logs") as stack:
        yield stack


def opened(web: Stack, text: bytes, address: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", web.port), timeout=20, source_address=(address, 0))
    connection.sendall(text)
    return connection


def answer(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def ask(
    web: Stack, method: str, path: str, address: str = "127.0.0.1", body: bytes = b""
) -> tuple[int, float]:
    """Status and seconds of one good request."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20, source_address=(address, 0))
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status, time.monotonic() - began
    finally:
        connection.close()


@contextmanager
def many(
    web: Stack, count: int, text: bytes, addresses: Sequence[str] = ("127.0.0.1",)
) -> Iterator[list[socket.socket]]:
    with ExitStack() as open_ones:
        yield [
            open_ones.enter_context(opened(web, text, addresses[number % len(addresses)]))
            for number in range(count)
        ]


@pytest.mark.parametrize("path", [b"/api/v1/lookup", b"/login/"])
def test_bodies_that_drip_hold_nobody_else_up(web: Stack, path: bytes) -> None:
    senders = [f"127.0.1.{number}" for number in range(1, 6)]  # four bodies of each are read
    with many(web, 40, HEAD % path + b"Content-Length: 90000\r\n\r\n{", senders) as slow:
        time.sleep(0.5)
        assert ask(web, "GET", "/healthz")[0] == 200
        status, took_s = ask(web, "POST", "/api/v1/lookup", "127.0.0.2", b"{}")
        assert status == 401 and took_s < 5
        refused: list[socket.socket] = []
        deadline = time.monotonic() + 10
        while len(refused) < 20 and time.monotonic() < deadline:
            refused = select.select(slow, [], [], 0.05)[0]
        assert len(refused) == 20
        for one in refused:
            said = answer(one)
            assert said.startswith(b"HTTP/1.1 503 ") and b"bodies arrive slowly" in said
    deadline = time.monotonic() + 10
    while ask(web, "POST", "/api/v1/lookup", senders[0], b"{}")[0] != 401:  # those who dripped are gone
        assert time.monotonic() < deadline


def test_headers_that_never_end_hold_nobody_up(web: Stack) -> None:
    with many(web, 200, b"GET /login/ HTTP/1.1\r\nHost: a\r\nX-Slow: ") as slow:
        for one in slow:
            one.sendall(b"a")
        status, took_s = ask(web, "GET", "/healthz")
        assert status == 200 and took_s < 5


@pytest.mark.parametrize(("path", "length"), [
    (b"/api/v1/lookup", 1 << 30), (b"/login/", 1 << 30), (b"/login/", 100 << 20),
    (b"/people/invite/", 1 << 62),
])  # fmt: skip
def test_a_gigabyte_is_refused_before_it_is_sent(web: Stack, path: bytes, length: int) -> None:
    with opened(web, HEAD % path + b"Content-Length: %d\r\n\r\n" % length) as connection:
        assert b" 413 " in answer(connection)


def test_garbage_ends_its_own_connection_alone(web: Stack) -> None:
    good = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    before = psutil.Process(web.processes[0].popen.pid).children(recursive=True)
    flood = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 100) for number in range(20_000))
    for text in (
        good * 3 + os.urandom(1 << 16), os.urandom(1 << 16), b"\0" * 4096, b"GET / HTTP/9.9\r\n\r\n",
        good[:-2] + flood + b"\r\n", b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
        HEAD % b"/login/" + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        HEAD % b"/login/" + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ):  # fmt: skip
        with opened(web, b"") as connection:
            try:
                connection.sendall(text)
                connection.shutdown(
                    socket.SHUT_WR
                )  # else a body that never ends is waited for, as others are
            except OSError:
                continue  # it has been refused before all of it was sent
            said = answer(connection)
            assert said == b"" or said.startswith(b"HTTP/1.1 "), said[:99]
            assert text.startswith(good) or b" 200 " not in said[:20]
        assert ask(web, "GET", "/healthz")[0] == 200
    assert psutil.Process(web.processes[0].popen.pid).children(recursive=True) == before


def test_memory_stays_bounded(web: Stack) -> None:
    """After all of the above, and with bombs on top."""
    process: Any = max(
        psutil.Process(web.processes[0].popen.pid).children(), key=lambda one: one.memory_info().rss
    )
    before = process.memory_info().rss
    for bomb in (b"[" * 900_000, b'{"a":' * 150_000, b"[" + b"1e9," * 200_000 + b"1]", b"9" * 900_000):
        assert ask(web, "POST", "/api/v1/lookup", "127.0.0.3", bomb)[0] in (400, 401)
    assert process.memory_info().rss - before < 100 << 20
