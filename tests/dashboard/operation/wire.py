"""A front with Django behind it, asked as a web server asks: environ in, bytes out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from catalog.lookup.recalls import Recalls
from dashboard.operation.bodies import BoundedBodies
from dashboard.operation.front import Front

REQUEST_ID = "the-very-same-id"


class Answer(NamedTuple):
    status: str
    headers: Mapping[str, str]  # by names in small letters
    body: bytes
    warm: bool  # Django was not asked

    @property
    def said(self) -> tuple[str, Mapping[str, str], bytes]:
        """What must be the same, whoever answered."""
        return self[:3]

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """``clock`` moves by itself never: ``later`` makes the next request look for recalls."""

    def __init__(self, key: str, warm_bytes: int = 8 << 20) -> None:
        self.now, self.asked_django, self.key = 100.0, 0, key
        self._handler = WSGIHandler()
        self.front = Front(self._django, Recalls(lambda: self.now), warm_bytes)
        self._answers = {
            True: BoundedBodies(self.front, 4 << 20),
            False: BoundedBodies(self._handler, 4 << 20),
        }

    def later(self, seconds: float = 0.3) -> None:
        self.now += seconds

    def get(self, path: str, query: str = "", *, front: bool = True, **changes: Any) -> Answer:
        return self.ask(environ_of(self.key, "GET", path, query, **changes), front)

    def post(self, document: Any, *, front: bool = True, **changes: Any) -> Answer:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.ask(environ_of(self.key, "POST", "/api/v1/lookup", body=body, **changes), front)

    def ask(self, environ: dict[str, Any], front: bool = True) -> Answer:
        said: list[Any] = []
        before = self.asked_django
        with _connections_stay():
            parts = self._answers[front](environ, lambda *given: said.append(given))
            body = b"".join(parts)
            if hasattr(parts, "close"):
                parts.close()
        ((status, headers, *_),) = said
        assert len({name.lower() for name, _ in headers}) == len(headers)
        told = {name.lower(): value for name, value in headers}
        return Answer(status, told, body, front and self.asked_django == before)

    def _django(self, environ: Any, start_response: Any) -> Any:
        self.asked_django += 1
        return self._handler(environ, start_response)


@contextmanager
def _connections_stay() -> Iterator[None]:
    """A test's transaction goes on after a request, as for Django's own test client."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in signals:
            signal.connect(close_old_connections)


def environ_of(
    key: str, method: str, path: str, query: str = "", body: bytes = b"", **changes: Any
) -> dict[str, Any]:
    """As granian's: this process's variables are in it. A change to None leaves something out."""
    environ: dict[str, Any] = {
        **os.environ,
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "HTTP_HOST": "localhost",
        "HTTP_AUTHORIZATION": f"Bearer {key}",
        "HTTP_X_REQUEST_ID": REQUEST_ID,
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
    }
    if body:
        environ |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    return {name: value for name, value in (environ | changes).items() if value is not None}
