"""The sidecar's HTTP over its UNIX socket. Whoever may open it is this user's own process; but it may be
broken, so that nothing it sends or leaves out keeps others waiting."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TypeVar

from opatlas.client.service.login import checked_address
from opatlas.client.service.rest import CostsSomething
from opatlas.client.service.unix_socket import SERVICE_HEADER, peer_user
from opatlas.client.service.wire import ServiceError, ServiceWire, all_of
from opatlas.errors import CallerError
from opatlas.quick_json import json_bytes
from opatlas.sidecar.answering import Answerer
from opatlas.sidecar.lookup_body import PassedOn, read_lookup
from opatlas.sidecar.place import claimed

T = TypeVar("T")
log = logging.getLogger("opatlas")

MOST_BODY_BYTES = 1 << 20
"""As a service takes."""
MOST_CONNECTIONS = 512
"""Of jobs at once; then whoever has been silent for longest is hung up on (and comes back if it lives)."""
IDLE_S = 120.0
MOST_TO_SERVICE = 8
"""Connections; one unless it is asked for several things at once."""
PASSED_ON_S = 30.0
"""What the service may take over what is passed on, beside the time that the request wants to wait."""
LOOK_S, ALIVE_S = 1.0, 1.0
MOST_FETCHING = 4
"""Artifacts whose files are fetched or compared at once."""

LOOKUP = "/api/v1/lookup"
FILE = re.compile(r"/api/v1/artifacts/([0-9a-f]{64})/files/([\w.+-]{1,255})")
PASSED_ON = {
    "POST": re.compile(r"/api/v1/(lookup|explain|usage|failures)"),
    "GET": re.compile(r"/api/v1/(artifacts/[0-9a-f]{64}|predictor(/[0-9a-f]{64})?|signers/(\?[\w&=]*)?)"),
}
"""What a job's client asks beside lookups and files: the login is lent for nothing else."""
HEADERS_ON = ("Idempotency-Key",)
HEADERS_BACK = ("Content-Type", "Retry-After")


def serve(path: Path, url: str, key: str, ready: Callable[[], None]) -> None:
    """Serve this user's jobs at a socket until SIGTERM or SIGINT; ``ready`` is called when it is open. Raises
    :class:`opatlas.errors.CallerError` where that cannot be."""
    url, key = checked_address(url, key)
    _allow_files()
    ended = threading.Event()
    before = {one: signal.signal(one, lambda *_: ended.set()) for one in (signal.SIGTERM, signal.SIGINT)}
    wire = ServiceWire(url, key, most_connections=MOST_TO_SERVICE)
    with claimed(path, wire.service), SidecarServer(path, Answerer(wire, key)) as server:
        for work in (server.serve_forever, server.look_around):
            threading.Thread(target=work, daemon=True).start()
        ready()
        ended.wait()
        for one, handler in before.items():  # whoever is in a hurry says it twice
            signal.signal(one, handler)
        server.shutdown()
        server.fetching.shutdown(wait=False, cancel_futures=True)
        server.answerer.close()


class SidecarServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, path: Path, answerer: Answerer) -> None:
        self.answerer = answerer
        self.fetching = ThreadPoolExecutor(MOST_FETCHING)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: dict[socket.socket, None] = {}  # who has not sent a whole request; longest first
        mask = os.umask(0o177)  # never open to others, not for a moment
        try:
            super().__init__(str(path), SidecarHandler)
        finally:
            os.umask(mask)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return peer_user(request) == os.geteuid()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
            silent = next(iter(self._silent), None) if len(self._open) > MOST_CONNECTIONS else None
            self._silent.pop(silent, None) if silent is not None else None
        if silent is not None:
            with contextlib.suppress(OSError):
                silent.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def waits(self, request: socket.socket) -> None:
        """For the next request of this connection."""
        with self._lock:
            self._silent.pop(request, None)
            self._silent[request] = None

    def works(self, request: socket.socket) -> None:
        """On a request that has come whole."""
        with self._lock:
            self._silent.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            self._silent.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("A connection ended early.", exc_info=True)

    def look_around(self) -> None:
        while True:
            time.sleep(LOOK_S)
            try:
                self.answerer.look_around()
            except Exception:
                log.exception("What is to be done beside answering could not be.")


class SidecarHandler(BaseHTTPRequestHandler):
    """One connection's requests, one after the other."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: SidecarServer

    def handle_one_request(self) -> None:
        self.server.waits(self.connection)
        with contextlib.suppress(ConnectionError):
            return super().handle_one_request()
        self.close_connection = True
        return None

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,9}", length):
            return self._refuse(411, "A request with a body says its Content-Length.")
        if int(length) > MOST_BODY_BYTES:
            return self._refuse(
                413, f"The body is larger than {MOST_BODY_BYTES >> 10} KiB: split the request."
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        return self._respond(body)

    def _respond(self, body: bytes) -> None:
        self.server.works(self.connection)
        try:
            self._answer(body)
        except CallerError as error:
            where = {"where": error.where} if error.where else {}
            self._say(getattr(error, "status", 400), {"error": str(error)} | where)
        except ServiceError as error:
            self._say(503, {"error": str(error)})
        except OSError:
            raise
        except Exception:
            log.exception("A request could not be answered.")
            self._say(500, {"error": "The sidecar failed; its log says why."})

    def _answer(self, body: bytes) -> None:
        answerer = self.server.answerer
        login = self.headers.get(SERVICE_HEADER)
        if login and login != answerer.wire.service.hex():
            self._say(421, {"error": "This sidecar has another login than yours: ask the service yourself."})
        elif self.command == "POST" and self.path == LOOKUP and (told := self._looked_up(body)):
            self._say(200, told)
        elif self.command == "GET" and (named := FILE.fullmatch(self.path)):
            self._send_file(self._awaited(self.server.fetching.submit(answerer.file, *named.groups())))
        elif PASSED_ON[self.command].fullmatch(self.path):
            self._pass_on(body)
        else:
            self._say(404, {"error": f"A sidecar has no {self.command} {self.path[:200]}: ask the service."})

    def _looked_up(self, body: bytes) -> dict[str, Any] | None:
        """None where the service is to answer: what costs something as well, so that a job that does not
        hear of it can ask again, under the same name and whomever it asks then, and pays once."""
        answerer = self.server.answerer
        try:
            wanted = read_lookup(json.loads(body), answerer.read_graph)
        except (PassedOn, ValueError, RecursionError):
            return None
        try:
            return answerer.lookup(wanted)
        except CostsSomething:
            return None

    def _awaited(self, found: Future[T]) -> T:
        """What takes a while: the job is told every second that somebody is there."""
        while True:
            try:
                return found.result(ALIVE_S)
            except TimeoutError:
                if found.done():
                    raise
                self.send_response_only(100)
                self.end_headers()

    def _pass_on(self, body: bytes) -> None:
        headers = {name: self.headers[name] for name in HEADERS_ON if name in self.headers}
        wire, timeout_s = self.server.answerer.wire, PASSED_ON_S + _wanted_s(self.path, body)
        response = wire.send(self.command, self.path, body or None, headers, timeout_s)
        data = all_of(response, time.monotonic() + timeout_s)
        given = {name: response.headers[name] for name in HEADERS_BACK if name in response.headers}
        self._send(response.status, given, data)

    def _send_file(self, path: Path | None) -> None:
        """All of it, or what comes after the bytes that the job has."""
        if path is None:
            return self._say(404, {"error": "There is no such file."})
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            asked = re.fullmatch(r"bytes=([0-9]{1,18})-", self.headers.get("Range", ""))
            first = int(asked[1]) if asked else 0
            if first > size or (first and first == size):
                return self._send(416, {"Content-Range": f"bytes */{size}"}, b"")
            self.send_response(206 if asked else 200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size - first))
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{size - 1}/{size}")
            self.end_headers()
            stream.seek(first)
            return shutil.copyfileobj(stream, self.wfile)

    def _refuse(self, status: int, sentence: str) -> None:
        """A request whose end nobody knows: the connection ends with it."""
        self.close_connection = True
        self._say(status, {"error": sentence})

    def _say(self, status: int, document: Mapping[str, Any]) -> None:
        body = json_bytes(document)
        self._send(status, {"Content-Type": "application/json"}, body)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header(SERVICE_HEADER, self.server.answerer.wire.service.hex())
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What :mod:`http.server` refuses: garbage, headers without end, methods that there are not."""
        self._refuse(code, f"This is no request that a sidecar takes: {message or code}.")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: jobs ask often."""


def _wanted_s(path: str, body: bytes) -> float:
    """How long a request that is passed on wants to wait for exploring."""
    try:
        return min(max(float(json.loads(body)["wait_s"]), 0.0), PASSED_ON_S) if path == LOOKUP else 0.0
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0.0


def _allow_files() -> None:
    """As many open connections as the system lets us have, where it lets us have few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
