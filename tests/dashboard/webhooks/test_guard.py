"""Nothing is sent to where it must not go."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.conf import DashboardConf
from dashboard.webhooks import guard
from opatlas.conf import read
from tests.dashboard.webhooks.receiver import Receiver, answering, plain, receiving, self_signed, silent

LONG_S = 20.0
"""By then whoever is not answered to the end has been given up, on any host."""
PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.127.255.254", "192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.7",
    "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "2002:7f00:1::", "2001::1", "100::1", "no address",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_address_is_refused(address: str) -> None:
    assert not guard.is_public(address)
    with pytest.raises(guard.AddressRefused, match="not a public one"):
        guard.check_public("https://hooks.example.com/", lambda host, port: [address])


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_taken(address: str) -> None:
    checked = guard.check_public("https://hooks.example.com/a?b=c", lambda host, port: [address])
    assert checked.addresses == (address,) and checked.port == 443


def test_one_private_address_among_public_ones_is_enough() -> None:
    with pytest.raises(guard.AddressRefused):
        guard.check_public("https://hooks.example.com/", lambda host, port: ["8.8.8.8", "10.0.0.1"])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("gopher://example.com/", "must begin with"),
        ("example.com/hooks", "must begin with"),
        ("https:///nowhere", "names no host"),
        ("https://user:pass@example.com/", "user name"),
        ("https://example.com@127.0.0.1/", "user name"),
        ("https://@example.com/", "user name"),
        ("https://user%40example.com@example.com/", "user name"),
        ("https://example.com%00.example.org/", "neither a name nor an address"),
        ("https://example.com%2500.example.org/", "neither a name nor an address"),
        ("https://127.0.0.1%00example.org/", "neither a name nor an address"),
        ("https://%6cocalhost/", "neither a name nor an address"),
        ("https://[fe80::1%25eth0]/", "neither a name nor an address"),
        ("https://[2606:4700:4700::1111%1]/", "neither a name nor an address"),
        ("https://[::ffff:8.8.8.8.9]/", "n"),  # "no URL" in some versions of Python
        ("https://example.com./", "a dot at its end"),
        ("https://localhost./", "a dot at its end"),
        ("https://example..com/", "empty parts"),
        ("https://.example.com/", "empty parts"),
        ("https://-example.com/", "neither a name nor an address"),
        ("https://exam$ple.com/", "neither a name nor an address"),
        ("https://" + "a" * 64 + ".com/", "neither a name nor an address"),
        ("https://" + "a." * 126 + "com/", "neither a name nor an address"),
        ("https://example.com:22/", "Port 22"),
        ("https://example.com:6379/", "Port 6379"),
        ("https://example.com:99999/", "no URL"),
        ("https://[::1/", "no URL"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com/a b", "plain ASCII"),
        ("https://example.com/\r\nX-Injected: 1", "plain ASCII"),
        ("https://exämple.com/", "plain ASCII"),
        ("https://example.com\\@127.0.0.1/", "plain ASCII"),
        ("https://example.com/" + "a" * 3000, "2048"),
    ],
)
def test_form_of_the_address(url: str, why: str) -> None:
    with pytest.raises(guard.AddressRefused, match=why) as refused:
        guard.check_url(url)
    assert refused.value.where == "url"


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "localhost.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "0x7f.1",
        "017700000001",
        "[::127.0.0.1]",
    ],
)
def test_ways_to_write_this_machine_are_refused_by_the_real_resolver(host: str) -> None:
    with pytest.raises(guard.AddressRefused):
        guard.check_public(f"https://{host}/")


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.0.0.0x1", "2130706433", "localhost", "db", "a.local", "x.internal"]
)
def test_names_of_this_machine_are_refused_before_anything_is_asked(host: str) -> None:
    with pytest.raises(guard.AddressRefused):
        guard.check_literal(host)
    guard.check_literal("hooks.example.com")


def test_every_address_of_a_host_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, *, type: int) -> list[Any]:
        assert (host, port, type) == ("example.com", 443, socket.SOCK_STREAM)
        return [(None, None, None, "", (address, port)) for address in ("8.8.8.8", "1.1.1.1", "8.8.8.8")]

    monkeypatch.setattr(guard.socket, "getaddrinfo", getaddrinfo)
    assert guard.resolve("example.com", 443) == ["8.8.8.8", "1.1.1.1"]
    assert guard.check_public("https://example.com/").addresses == ("8.8.8.8", "1.1.1.1")


def test_a_scoped_address_is_of_this_link_whatever_it_says() -> None:
    assert guard.is_public("2606:4700:4700::1111")
    assert not guard.is_public("2606:4700:4700::1111%eth0")


@pytest.mark.parametrize(
    ("resolver", "sentence"),
    [
        (lambda host, port: [], "The host example.com has no address."),
        (lambda host, port: ["10.0.0.1"], "The host example.com is not a public one: nothing is sent to it."),
        (lambda host, port: {}[host], KeyError),
    ],
)
def test_what_a_resolver_answers_is_told(resolver: Any, sentence: Any) -> None:
    refused = sentence if sentence is KeyError else guard.AddressRefused
    with pytest.raises(refused) as caught:
        guard.check_public("https://example.com/", resolver)
    if refused is guard.AddressRefused:
        assert (str(caught.value), caught.value.where) == (sentence, "url")


@pytest.mark.parametrize("error", [OSError("no"), UnicodeError("no")])
def test_a_host_that_nobody_knows_is_told(error: Exception) -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise error

    with pytest.raises(guard.AddressRefused) as caught:
        guard.check_public("https://example.com/", resolver)
    assert (str(caught.value), caught.value.where) == ("The host example.com is not known.", "url")


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("8.8.8.8", True), ("10.0.0.1", False), ("::1", False), ("2606:4700:4700::1111", True),
        ("hooks.example.com", True), ("hooks.example.com.", True), ("hooks.example.x1", True),
        ("hooks.localhost", False), ("A.Local.", False), ("x.internal.", False), ("localhost.", False),
        ("example.0x7f", False), ("example.127", False), ("db", False),
    ],
)  # fmt: skip
def test_what_a_host_is_by_its_writing_alone(host: str, public: bool) -> None:
    if public:
        guard.check_literal(host)
        return
    with pytest.raises(guard.AddressRefused) as caught:
        guard.check_literal(host)
    assert caught.value.where == "url"
    assert str(caught.value) == f"The host {host} is not a public one: nothing is sent to it."


def test_a_long_host_is_told_in_part() -> None:
    with pytest.raises(guard.AddressRefused, match=f"The host {'a' * 100} is not"):
        guard.check_literal("a" * 200)


@pytest.mark.parametrize(
    ("given", "host", "port", "ok"),
    [
        ("a.test:80, b.test:81", "b.test", 81, True),
        ("a.test:80 ,  b.test:81 ,", "b.test", 81, True),
        ("a.test:80", "a.test", 81, False),
        ("[::1]:80", "::1", 80, True),
        ("::1:80", "::1", 80, False),
        ("", "a.test", 80, False),
    ],
)
def test_who_is_allowed_inside(configure: Any, given: str, host: str, port: int, ok: bool) -> None:
    configure(webhooks_allow=read(DashboardConf, {"OPATLAS_WEBHOOKS_ALLOW": given}).webhooks_allow)
    assert guard.allowed(host, port) is ok


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0), ("0", 0.0), ("1234567", 1234567.0), ("12345678", None), ("", None), (None, None),
        ("-1", None), ("7.5", None), ("²", None), ("soon", None),
    ],
)  # fmt: skip
def test_retry_after_is_whole_seconds_or_nothing(text: str | None, seconds: float | None) -> None:
    assert guard._seconds(text) == seconds


def tls_error(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "said")
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (tls_error("WRONG_VERSION_NUMBER"), "The TLS connection failed: WRONG_VERSION_NUMBER."),
        (tls_error(None), "The TLS connection failed: said."),
        (TimeoutError(), "The connection timed out."),
        (ConnectionRefusedError(), "The connection was refused."),
        (OSError(113, "No route to host"), "The connection failed: No route to host."),
        (ValueError("odd header"), "The connection failed: odd header."),
        (ValueError(), "The connection failed: ValueError."),
    ],
)
def test_why_nothing_came_back_is_one_sentence(error: Exception, sentence: str) -> None:
    assert guard._sentence(error) == sentence


def test_long_reasons_are_cut() -> None:
    for error in (ValueError("x" * 999), tls_error("X" * 999)):
        assert len(guard._sentence(error)) == 300


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (http.client.IncompleteRead(b"ab" * 1024), b"ab" * 512),
        (OSError(), b""), (http.client.HTTPException(), b""), (ValueError(), b""),
    ],
)  # fmt: skip
def test_a_body_that_breaks_off_undoes_nothing(error: Exception, read: bytes) -> None:
    def broken(size: int) -> bytes:
        raise error

    assert guard._beginning(SimpleNamespace(read=broken)) == read  # type: ignore[arg-type]


def test_the_address_that_was_checked_is_the_one_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is checked and private a moment later (DNS rebinding)."""
    asked: list[str] = []
    reached: list[Any] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if len(asked) == 1 else ["127.0.0.1"]

    def connect(address: Any, timeout: float) -> socket.socket:
        reached.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(guard.socket, "create_connection", connect)
    reply = guard.post("http://rebind.example.com/", b"{}", {}, resolver=rebinding)
    assert reply.status is None and reply.error == "The connection was refused."
    assert reached == [("8.8.8.8", 80)] and asked == ["rebind.example.com"]
    # The next request asks again, and is refused.
    reply = guard.post("http://rebind.example.com/", b"{}", {}, resolver=rebinding)
    assert "not a public one" in reply.error and len(reached) == 1


def test_host_header_and_path_are_the_urls_own(configure: Any) -> None:
    with receiving() as receiver:
        configure(webhooks_allow=(f"hooks.test:{receiver.port}",))
        url = f"http://hooks.test:{receiver.port}/a/b?c=d"
        reply = guard.post(url, b"{}", {"X-One": "1"}, resolver=lambda host, port: ["127.0.0.1"])
    assert reply.ok and reply.status == 200 and reply.duration_ms > 0
    (got,) = receiver.got
    assert (got.path, got.headers["host"]) == ("/a/b?c=d", f"hooks.test:{receiver.port}")
    assert (got.headers["x-one"], got.body) == ("1", "{}")


@pytest.mark.parametrize(("named", "ok"), [("hooks.test", True), ("others.test", False)])
def test_the_certificate_must_be_for_the_name_and_not_for_the_address(
    configure: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, ok: bool
) -> None:
    certificate = self_signed(tmp_path, named)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # whom the default context trusts
    with receiving(certificate) as receiver:
        configure(webhooks_allow=(f"hooks.test:{receiver.port}",))
        url = f"https://hooks.test:{receiver.port}/hooks"
        reply = guard.post(url, b"{}", {}, resolver=lambda host, port: ["127.0.0.1"])
    assert reply.ok is ok
    assert [one.headers["host"] for one in receiver.got] == [f"hooks.test:{receiver.port}"] * ok
    assert ok or reply.error == "The TLS connection failed: CERTIFICATE_VERIFY_FAILED."


def test_where_one_address_refuses_the_next_is_tried(configure: Any) -> None:
    with receiving() as receiver:
        configure(webhooks_allow=(f"hooks.test:{receiver.port}",))
        url = f"http://hooks.test:{receiver.port}/"
        assert guard.post(url, b"{}", {}, resolver=lambda host, port: ["127.0.0.2", "127.0.0.1"]).ok
        refused = guard.post(url, b"{}", {}, resolver=lambda host, port: ["127.0.0.2"])
    assert (refused.status, refused.error) == (None, "The connection was refused.")


@pytest.mark.parametrize(("scheme", "port"), [("https", 443), ("http", 80)])
def test_a_schemes_own_port_is_left_out_of_the_host_header(scheme: str, port: int) -> None:
    checked = guard.check_public(f"{scheme}://example.com/", lambda host, port: ["8.8.8.8"])
    assert guard._Pinned(checked, time.monotonic() + 9).default_port == checked.port == port


def test_loopback_is_refused_unless_it_is_allowed(configure: Any) -> None:
    with receiving() as receiver:
        configure(webhooks_allow=())
        assert "is not sent to" in guard.post(receiver.url, b"", {}).error
        configure(webhooks_allow=(f"127.0.0.1:{receiver.port + 1}",))
        assert guard.post(receiver.url, b"", {}).status is None
        assert receiver.got == []


@pytest.mark.parametrize(
    ("status", "body", "error", "excerpt"),
    [
        (200, b"fine", "", "fine"),
        (299, b"", "", ""),
        (300, b"", "It answered 300: redirects are not followed.", ""),
        (399, b"", "It answered 399: redirects are not followed.", ""),
        (400, b"no\0\xff", "It answered 400.", "no��"),
        (500, b"\xff" * 2000, "It answered 500.", "�" * 341),  # each takes three bytes of the 1024
    ],
)
def test_what_came_back_is_kept(
    receiver: Receiver, status: int, body: bytes, error: str, excerpt: str
) -> None:
    receiver.answer = answering(status, body, retry_after="7")
    reply = guard.post(receiver.url, b"{}", {})
    assert (reply.status, reply.error, reply.excerpt, reply.retry_after_s) == (status, error, excerpt, 7.0)
    assert reply.ok is (status < 300)


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.answer = answering(307, Location=f"http://{receiver.address}/elsewhere")
    reply = guard.post(receiver.url, b"{}", {})
    assert not reply.ok and reply.status == 307 and "redirects are not followed" in reply.error
    assert [one.path for one in receiver.got] == ["/hooks"]


def test_huge_answer_is_read_no_further_than_needed(receiver: Receiver) -> None:
    sent = 0

    def huge(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        for _ in range(4096):
            sent += handler.wfile.write(b"\xc3\xa9" * 32768)

    receiver.answer = huge
    reply = guard.post(receiver.url, b"{}", {})
    assert reply.ok and reply.excerpt.startswith("éé") and len(reply.excerpt.encode()) <= 1024
    assert sent < 64 << 20


def test_silent_receiver_is_given_up(receiver: Receiver) -> None:
    receiver.answer = silent(2 * LONG_S)
    began = time.monotonic()
    reply = guard.post(receiver.url, b"{}", {}, timeout_s=0.5)
    assert reply.status is None and "No answer within" in reply.error
    assert time.monotonic() - began < LONG_S


def test_a_resolver_that_does_not_answer_is_given_up() -> None:
    """Name servers are the host's own choice."""
    asked, go_on = threading.Event(), threading.Event()

    def resolver(host: str, port: int) -> list[str]:
        asked.set()
        go_on.wait(LONG_S)
        return ["127.0.0.1"]

    reply = guard.post("https://example.com/", b"{}", {}, timeout_s=0.2, resolver=resolver)
    assert asked.wait(LONG_S)
    assert (reply.status, reply.error) == (None, "No answer within 0 s.")
    go_on.set()


def test_headers_that_drip_are_cut_off(receiver: Receiver) -> None:
    """Each read gets its byte in time; the whole has its own bound."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 1000:  # for some minutes
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.2)

    receiver.answer = drip
    began = time.monotonic()
    reply = guard.post(receiver.url, b"{}", {}, timeout_s=1.0)
    assert reply.status is None and "No answer" in reply.error
    assert time.monotonic() - began < LONG_S


def test_body_that_drips_does_not_undo_the_status(receiver: Receiver) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        plain(handler, 202, headers={"Content-Length": "1000"})
        for _ in range(300):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.2)

    receiver.answer = drip
    began = time.monotonic()
    reply = guard.post(receiver.url, b"{}", {}, timeout_s=3.0)
    assert reply.ok and reply.status == 202
    assert time.monotonic() - began < LONG_S


def test_tls_handshake_that_never_comes_is_cut_off(configure: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        configure(webhooks_allow=(f"127.0.0.1:{port}",))
        threading.Thread(target=lambda: server.accept()[0].recv(1), daemon=True).start()
        began = time.monotonic()
        reply = guard.post(f"https://127.0.0.1:{port}/", b"{}", {}, timeout_s=1.0)
    assert reply.status is None and reply.error
    assert time.monotonic() - began < LONG_S


def test_answer_that_is_no_http_is_said(configure: Any) -> None:
    with receiving() as receiver:
        configure(webhooks_allow=(receiver.address,))
        receiver.answer = lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n") and None
        reply = guard.post(receiver.url, b"{}", {})
    assert reply.status is None and reply.error.startswith("The connection failed")
