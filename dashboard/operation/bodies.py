"""Limits for request bodies: their size, and how many may arrive slowly at a time.

The web server passes a request on once its headers are there, and a thread waits for the body. As many slow
senders as threads would stop every page, and nothing here can cut their connections. So fewer bodies than
threads may be read at a time, and fewer still from one address. Proxies that buffer bodies (nginx does) are
never slow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from django.http import HttpRequest, HttpResponse

from catalog.conf import MAX_BODY_BYTES
from catalog.errors import RequestError
from catalog.people.addresses import address_in, sender_at

AT_ONCE = 24
"""Bodies that are read at a time; the web server is started with 32 threads."""

OF_ADDRESS = 4
"""… of one sender (:func:`sender_at`)."""
PATIENCE_S = 0.25
SLOW_S = 1.0

_STATUS = {411: "411 Length Required", 413: "413 Content Too Large", 503: "503 Service Unavailable"}


class SlowBodies(RequestError, OSError):
    """Too many bodies arrive slowly. It is an OSError too, like a failing connection."""

    status = 503


class Readers:
    """The bodies that are being read, and since when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._reading: list[tuple[str, float]] = []

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Entered while a body is read; raises :class:`SlowBodies` if others have been reading too long. Most
        bodies arrive with their headers, so a short wait is enough."""
        with self._changed:
            known_slow = all(self._clock() - began >= SLOW_S for _, began in self._in_the_way(address))
            if not self._changed.wait_for(
                lambda: not self._in_the_way(address), 0 if known_slow else PATIENCE_S
            ):
                raise SlowBodies("Too many requests whose bodies arrive slowly: try again in a moment.")
            mine = (address, self._clock())
            self._reading.append(mine)
        try:
            yield
        finally:
            with self._changed:
                self._reading.remove(mine)
                self._changed.notify_all()

    def _in_the_way(self, address: str) -> list[tuple[str, float]]:
        own = [one for one in self._reading if one[0] == address]
        if len(own) >= OF_ADDRESS:
            return own
        return self._reading if len(self._reading) >= AT_ONCE else []


class BoundedBodies:
    """Around a WSGI application: a body beyond ``most`` bytes is refused unread; a small one is read before
    the application begins."""

    def __init__(self, application: Any, most: int) -> None:
        self._application, self._most = application, most
        self._readers = Readers()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        in_pieces = not environ.get("CONTENT_LENGTH") and _comes_without_length(environ)
        if in_pieces and (refused := self._read_in_pieces(environ)) is not None:
            return _refused(start_response, *refused)
        length = _length(environ)
        if length > self._most:
            return _refused(start_response, 413, f"A body has at most {self._most >> 20} MiB.")
        if length and not in_pieces:
            body = _InTurn(environ["wsgi.input"], self._readers, sender_at(address_in(environ)))
            environ["wsgi.input"] = body
            if length <= MAX_BODY_BYTES:
                try:
                    environ["wsgi.input"] = BytesIO(body.read(length))
                except SlowBodies as slow:
                    return _refused(start_response, slow.status, str(slow))
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _read_in_pieces(self, environ: dict[str, Any]) -> tuple[int, str] | None:
        """Read a chunked body without a length here: Django would take it for empty. Returns why it is
        refused, with the status; None if it was read."""
        try:
            body = _InTurn(environ["wsgi.input"], self._readers, sender_at(address_in(environ)))
            text = body.read(MAX_BODY_BYTES + 1)
        except SlowBodies as slow:
            return slow.status, str(slow)
        if len(text) > MAX_BODY_BYTES:
            most = MAX_BODY_BYTES >> 20
            return 411, f"A body of more than {most} MiB says its length: send Content-Length, not chunks."
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        environ |= {"CONTENT_LENGTH": str(len(text)), "wsgi.input": BytesIO(text)}
        return None


class _InTurn:
    """A body that is still arriving."""

    def __init__(self, body: Any, readers: Readers, address: str) -> None:
        self._body, self._readers, self._address = body, readers, address

    def read(self, size: int = -1) -> bytes:
        with self._readers.turn(self._address):
            return bytes(self._body.read(size))

    def readline(self, size: int = -1) -> bytes:
        with self._readers.turn(self._address):
            return bytes(self._body.readline(size))


class OpenPagesMiddleware:
    """Pages without a login accept small forms only: no stranger fills the disk with parts of one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        is_open = not getattr(view, "login_required", True) and not request.path_info.startswith("/api/")
        if is_open and _length(request.META) > MAX_BODY_BYTES:
            return HttpResponse("This form takes at most 1 MiB.", status=413, content_type="text/plain")
        return None


def _comes_without_length(environ: dict[str, Any]) -> bool:
    """Over HTTP/1.1 only what says so (``Transfer-Encoding: chunked``) has a body without a length; HTTP/2
    has no such header, and ends a body that is none at once."""
    if environ.get("SERVER_PROTOCOL", "HTTP/1.1").startswith("HTTP/1"):
        return bool(environ.get("HTTP_TRANSFER_ENCODING"))
    has_none = environ.get("REQUEST_METHOD") in ("GET", "HEAD", "OPTIONS")
    return bool(environ.get("HTTP_TRANSFER_ENCODING")) or not has_none


def _length(meta: Any) -> int:
    text = str(meta.get("CONTENT_LENGTH") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _refused(start_response: Any, status: int, sentence: str) -> list[bytes]:
    """An answer without Django."""
    headers = [("Content-Type", "application/json")]
    start_response(_STATUS[status], headers + ([("Retry-After", "1")] if status == 503 else []))
    return [b'{"error": "%b"}' % sentence.encode()]
