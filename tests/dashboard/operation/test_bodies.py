"""Bodies of requests: how large, and how many at a time that arrive slowly."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from dashboard.operation import bodies
from dashboard.operation.bodies import BoundedBodies, Readers, SlowBodies
from tests.databases import ROOT

MOST = 3 << 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 0.0)


def test_one_address_leaves_room_for_others(impatient: None) -> None:
    readers = Readers()
    with ExitStack() as slow:
        for _ in range(4):
            slow.enter_context(readers.turn("10.0.0.1"))
        with pytest.raises(SlowBodies), readers.turn("10.0.0.1"):
            pass
        for number in range(20):
            slow.enter_context(readers.turn(f"10.0.1.{number // 4}"))
        with pytest.raises(SlowBodies), readers.turn("10.0.0.3"):
            pass
    with readers.turn("10.0.0.1"):
        pass


def test_who_comes_while_others_read_quickly_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    readers, looked, waits = Readers(lambda: 0.0), list[tuple[bool, float]](), threading.Event()
    held = [readers.turn("a") for _ in range(4)]
    for one in held:
        one.__enter__()

    def end_one() -> None:
        assert waits.wait(60)
        held[0].__exit__(None, None, None)

    def wait_for(free: Callable[[], bool], patience_s: float) -> bool:
        looked.append((free(), patience_s))
        waits.set()
        return wait(free, 60)

    wait = readers._changed.wait_for
    monkeypatch.setattr(readers._changed, "wait_for", wait_for)
    threading.Thread(target=end_one).start()
    with readers.turn("a"):
        assert looked == [(False, bodies.PATIENCE_S)]


def test_nobody_waits_for_those_that_are_known_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever comes after them would hold the threads that are left."""
    monkeypatch.setattr(bodies, "PATIENCE_S", 3600.0)
    clock = Clock()
    readers = Readers(clock)
    with ExitStack() as slow:
        for _ in range(4):
            slow.enter_context(readers.turn("a"))
        clock.now = 1.0
        with pytest.raises(SlowBodies, match="arrive slowly: try again"), readers.turn("a"):
            pass


@pytest.mark.parametrize(
    "path", ["dashboard/run/stack.py", "deploy/Dockerfile", "deploy/systemd/opatlas-web.service"]
)
def test_pages_have_threads_that_no_body_takes(path: str) -> None:
    [threads] = re.findall(r"--blocking-threads\W+(\d+)", (ROOT / path).read_text())
    assert int(threads) >= bodies.AT_ONCE + 8


def test_a_network_of_ipv6_is_one_sender() -> None:
    echo, whom = Echo(), set[str]()

    class Noted(Readers):
        def turn(self, address: str) -> Any:
            whom.add(address)
            return super().turn(address)

    application = BoundedBodies(echo, MOST)
    application._readers = Noted()
    for address in (
        "2001:db8::1",
        "2001:db8::ffff:2",
        "2001:db8:0:1::1",
        "192.0.2.7",
        "::ffff:192.0.2.7",
        "unix:",
    ):
        environ = {"wsgi.input": io.BytesIO(b"x"), "CONTENT_LENGTH": "1", "REMOTE_ADDR": address}
        application(environ, lambda *answer: None)
    assert whom == {"2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.7", "unix:"}


class Echo:
    """An application that reads as views do; what it read, or None where it was not asked."""

    read: bytes | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        self.read = environ["wsgi.input"].readline() + environ["wsgi.input"].read()
        return [b"done"]


def post(echo: Echo, body: bytes, length: str, **more: Any) -> tuple[str, bytes]:
    said: list[str] = []
    environ = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": length, "REMOTE_ADDR": "10.0.0.1"} | more
    answer = BoundedBodies(echo, MOST)(environ, lambda status, headers: said.append(status))
    return "".join(said), b"".join(answer)


@pytest.mark.parametrize("size", [1, 1 << 20, (1 << 20) + 1, MOST])
def test_a_body_arrives_whole(size: int) -> None:
    echo, body = Echo(), b"a\n" * (size // 2) + b"a" * (size % 2)
    assert post(echo, body, str(size)) == ("", b"done") and echo.read == body


# As granian writes a body without a length, which HTTP/2 says in no header.
WITHOUT_LENGTH = [
    {"SERVER_PROTOCOL": "HTTP/1.1", "HTTP_TRANSFER_ENCODING": "chunked"},
    {"SERVER_PROTOCOL": "HTTP/2", "REQUEST_METHOD": "POST"},
]


@pytest.mark.parametrize("more", WITHOUT_LENGTH)
@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_a_body_without_a_length_is_no_empty_one(size: int, more: dict[str, str]) -> None:
    echo, body = Echo(), b"a" * size
    length: dict[str, Any] = {"CONTENT_LENGTH": None}
    assert post(echo, body, "", **more, **length) == ("", b"done") and echo.read == body


@pytest.mark.parametrize("more", WITHOUT_LENGTH)
def test_a_large_body_without_a_length_is_asked_for_it(more: dict[str, str]) -> None:
    echo = Echo()
    status, said = post(echo, b"a" * ((1 << 20) + 1), "", **more)
    assert status == "411 Length Required" and b"send Content-Length" in said and echo.read is None


@pytest.mark.parametrize("length", [str(MOST + 1), str(1 << 30), "9" * 40])
def test_a_body_that_is_too_large_is_refused_unread(length: str) -> None:
    class Unread(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("it was read")

    echo = Echo()
    status, said = post(echo, b"", length, **{"wsgi.input": Unread()})
    assert status.startswith("413") and json.loads(said)["error"] == "A body has at most 3 MiB."
    assert echo.read is None


@pytest.mark.parametrize("length", ["", "0", "-5", "²", "x"])
def test_a_length_that_is_none_is_left_to_who_reads(length: str) -> None:
    assert post(Echo(), b"", length) == ("", b"done")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/login/", "/admin/login/", "/forgotten/", "/invited/x/", "/people/invite/"]
)
def test_nobody_unknown_writes_parts_of_a_form_to_the_disk(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*args: Any) -> None:
        raise AssertionError("a temporary file was made")

    monkeypatch.setattr("django.core.files.uploadhandler.TemporaryUploadedFile.__init__", write)
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = "a" * 32
    client.cookies["sessionid"] = "a" * 32
    answer = client.post(path, {"file": SimpleUploadedFile("a", b"x" * (4 << 20))})
    assert answer.status_code in (302, 413)
