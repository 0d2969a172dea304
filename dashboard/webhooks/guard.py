"""The only way to addresses that customers give: public hosts alone, at the address that was checked.

A name is resolved once, every address is checked, and the connection goes to one of exactly these. So a name
that resolves differently the second time (DNS rebinding) gains nothing. Redirects are not followed. Standard
library only; knows no database.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from catalog.errors import RequestError
from dashboard.conf import conf

PORTS = frozenset({80, 443, 8000, 8080, 8443})
"""Ports that a receiver may use; others belong to services that a request must not reach."""

MAX_URL = 2048
MAX_HOST = 253
MOST_TRIED = 8  # of a host's addresses
_NAME = re.compile(r"(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.)*(?!-)[a-z0-9_-]{1,63}(?<!-)")
EXCERPT_BYTES = 1024

# Globally routed by the registry's letter, yet they lead to IPv4 addresses or into translators.
_TUNNELS = tuple(
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0/96")
)
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "fec0::/10")
)

Resolve = Callable[[str, int], Sequence[str]]
"""(host, port) → the addresses it has now."""


class AddressRefused(RequestError):
    """An address that the service does not send to."""


@dataclass(frozen=True)
class Checked:
    """A URL with the addresses that it was checked at."""

    url: SplitResult
    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Reply:
    """What came back, or why nothing did. ``status`` is None without an answer."""

    status: int | None
    error: str = ""
    excerpt: str = ""
    duration_ms: float = 0.0
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def resolve(host: str, port: int) -> list[str]:
    """Every address of a host, by the system's resolver; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_url(url: str) -> tuple[SplitResult, str, int]:
    """The URL's parts, host and port, by its form alone; raises :class:`AddressRefused`."""
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise AddressRefused(
            f"The address must be a plain ASCII URL of at most {MAX_URL} characters.", where="url"
        )
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError as error:
        raise AddressRefused(
            "The address is no URL: one looks like https://example.com/hooks.", where="url"
        ) from error
    if parts.scheme not in ("http", "https"):
        raise AddressRefused("The address must begin with https:// or http://.", where="url")
    if not parts.hostname:
        raise AddressRefused(
            "The address names no host: one looks like https://example.com/hooks.", where="url"
        )
    if "@" in parts.netloc:
        raise AddressRefused("The address must not contain a user name or password.", where="url")
    if not _is_host(parts.hostname):
        raise AddressRefused(
            "The host is neither a name nor an address: one looks like hooks.example.com, without %, empty "
            "parts or a dot at its end.",
            where="url",
        )
    if parts.fragment:
        raise AddressRefused(
            "The address must not contain a fragment (#…): it would not be sent.", where="url"
        )
    if port not in PORTS and not allowed(parts.hostname, port):
        ports = ", ".join(str(one) for one in sorted(PORTS))
        raise AddressRefused(f"Port {port} is not sent to: use one of {ports}.", where="url")
    return parts, parts.hostname, port


def _is_host(host: str) -> bool:
    """Whether all parsers read the host alike. Encoded characters (``%00``) end the name for some; a final
    dot names the same host under another text."""
    if ":" not in host:
        return len(host) <= MAX_HOST and _NAME.fullmatch(host) is not None
    try:
        return not ipaddress.IPv6Address(host).scope_id
    except ValueError:
        return False


def check_public(url: str, resolver: Resolve | None = None) -> Checked:
    """The URL with its addresses, all of them public; raises :class:`AddressRefused` with one sentence."""
    parts, host, port = check_url(url)
    try:
        addresses = tuple((resolver or resolve)(host, port))
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"The host {host} is not known.", where="url") from error
    if not addresses:
        raise AddressRefused(f"The host {host} has no address.", where="url")
    if not allowed(host, port) and not all(is_public(address) for address in addresses):
        raise AddressRefused(f"The host {host} is not a public one: nothing is sent to it.", where="url")
    return Checked(parts, host, port, addresses)


def check_literal(host: str) -> None:
    """Refuse a host that is a non-public address, or that names this machine. Asks no resolver: other names
    are checked whenever something is sent."""
    try:
        public = is_public(str(ipaddress.ip_address(host)))
    except ValueError:
        name = host.rstrip(".").lower()
        # 127.1, 0x7f000001 and 2130706433 are addresses to a resolver.
        public = "." in name and not name.endswith((".localhost", ".local", ".internal"))
        last = name.rpartition(".")[2]
        public = public and not (last.isdigit() or last.startswith("0x"))
    if not public:
        raise AddressRefused(
            f"The host {host[:100]} is not a public one: nothing is sent to it.", where="url"
        )


def is_public(text: str) -> bool:
    """Whether an address is somebody's on the internet: not private, loopback, link-local, multicast,
    reserved, carrier-grade NAT, documentation, or a way round to one of these."""
    if "%" in text:  # a scope: of this link
        return False
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in net for net in (*_TUNNELS, *_NOT_PUBLIC) if net.version == address.version)


def allowed(host: str, port: int) -> bool:
    """Whether OPATLAS_WEBHOOKS_ALLOW (``host:port``, separated by commas) names it: for tests, and for
    installations that have their receivers inside."""
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" in conf().webhooks_allow


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float = 15.0,
    resolver: Resolve | None = None,
) -> Reply:
    """POST to a public host and return the result; never raises for the other side's faults. ``timeout_s``
    bounds resolving, connecting, sending and reading together, even if an answer arrives byte by byte."""
    began = time.monotonic()
    try:
        checked = _within(timeout_s, lambda: check_public(url, resolver))
        reply = _exchange(checked, body, headers, began + timeout_s)
    except AddressRefused as refused:
        reply = Reply(None, str(refused))
    except (OSError, http.client.HTTPException, ValueError) as error:
        over = time.monotonic() - began >= timeout_s * 0.99
        reply = Reply(None, f"No answer within {timeout_s:.0f} s." if over else _sentence(error))
    return Reply(
        reply.status, reply.error, reply.excerpt, (time.monotonic() - began) * 1e3, reply.retry_after_s
    )


def _within(timeout_s: float, check: Callable[[], Checked]) -> Checked:
    """In a thread that is left behind if it takes longer: a system's resolver cannot be interrupted."""
    asked = Future[Checked]()

    def answer() -> None:
        try:
            asked.set_result(check())
        except BaseException as error:
            asked.set_exception(error)

    threading.Thread(target=answer, name="resolving", daemon=True).start()
    return asked.result(timeout_s)


def _exchange(checked: Checked, body: bytes, headers: Mapping[str, str], deadline: float) -> Reply:
    connection = _Pinned(checked, deadline)
    # Reads have a timeout each; a receiver that sends a byte a second would never run into one.
    watchdog = threading.Timer(max(0.0, deadline - time.monotonic()), connection.cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        path = checked.url.path or "/"
        if checked.url.query:
            path += f"?{checked.url.query}"
        connection.request("POST", path, body=body, headers={**headers, "Connection": "close"})
        answer = connection.getresponse()
        text = _beginning(answer).decode("utf-8", "replace").replace("\0", "�")
        error = ""
        if 300 <= answer.status < 400:
            error = f"It answered {answer.status}: redirects are not followed."
        elif not 200 <= answer.status < 300:
            error = f"It answered {answer.status}."
        # Replacement characters take more bytes than what they replace.
        excerpt = text.encode()[:EXCERPT_BYTES].decode("utf-8", "ignore")
        return Reply(answer.status, error, excerpt, retry_after_s=_seconds(answer.headers.get("Retry-After")))
    finally:
        watchdog.cancel()
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """Connects to the checked addresses; TLS and the Host header have the name."""

    def __init__(self, checked: Checked, deadline: float) -> None:
        default_port = {"https": 443, "http": 80}[checked.url.scheme]
        super().__init__(checked.host, checked.port, timeout=max(0.1, deadline - time.monotonic()))
        self.default_port = default_port  # the Host header leaves it out
        self._checked, self._deadline = checked, deadline
        # http.client lets go of its own once the headers are there; the body is read from it still.
        self._wire: socket.socket | None = None

    def connect(self) -> None:
        problem: OSError = OSError("no address")
        for address in self._checked.addresses[:MOST_TRIED]:
            if time.monotonic() >= self._deadline:
                raise TimeoutError("the time is over")
            try:
                left_s = max(0.1, self._deadline - time.monotonic())
                plain = socket.create_connection((address, self._checked.port), timeout=left_s)
            except OSError as error:
                problem = error
                continue
            self.sock = self._wire = plain
            if self._checked.url.scheme == "https":
                context = ssl.create_default_context()
                # The handshake comes after the assignment: the watchdog must be able to cut it off.
                self.sock = self._wire = context.wrap_socket(
                    plain, server_hostname=self._checked.host, do_handshake_on_connect=False
                )
                self.sock.do_handshake()
            return
        raise problem

    def cut(self) -> None:
        """Called by the watchdog's thread: ends the reading."""
        if self._wire is not None:
            with suppress(OSError):
                # Not SSLSocket's own, which takes away what the other thread is reading from.
                socket.socket.shutdown(self._wire, socket.SHUT_RDWR)


def _beginning(answer: http.client.HTTPResponse) -> bytes:
    """The body's first bytes. The status has been said: what goes wrong from there on changes nothing."""
    try:
        return answer.read(EXCERPT_BYTES)
    except http.client.IncompleteRead as error:
        return error.partial[:EXCERPT_BYTES]
    except (OSError, http.client.HTTPException, ValueError):
        return b""


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else None


def _sentence(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"The TLS connection failed: {error.reason or error}."[:300]
    if isinstance(error, TimeoutError):
        return "The connection timed out."
    if isinstance(error, ConnectionRefusedError):
        return "The connection was refused."
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"The connection failed: {text}."[:300]
