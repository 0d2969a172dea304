"""What stands in front of Django: lookups that it has answered before, out of this process's memory.

A request goes through only where all that could change Django's answer is known to be as it was: the headers
are among those that change nothing, or have the very values with which Django has answered 200 before (a
*door*, which has the answer's headers too); the key is one that it has let in; the rates have room; every
operator's best is remembered and not recalled. Whatever else there is, Django is asked, and teaches.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django.core.exceptions import SuspiciousOperation
from django.db import DatabaseError, InterfaceError
from django.http import QueryDict

from catalog.api.lookup_json import BEST_FIELDS, parse_best, parse_lookup
from catalog.api.parsers import parse_json
from catalog.api.passes import Pass, Passes
from catalog.api.warm import LESSON, Ask, Lesson, WarmMemory
from catalog.context import added_log_fields
from catalog.errors import SystemFault
from catalog.lookup.recalls import Recalls
from catalog.lookup.shelf import Shelf
from catalog.people.addresses import address_in
from dashboard.operation import metrics, requests
from dashboard.operation.limits import window
from opatlas.errors import CallerError

StartResponse = Callable[..., Any]
Environ = dict[str, Any]

LOOKUP = "/api/v1/lookup"
_BEST = re.compile(r"/api/v1/operators/(o1:[0-9a-f]{64})/best")

_CHANGES_NOTHING = frozenset(
    {
        *("HTTP_AUTHORIZATION", "HTTP_X_REQUEST_ID", "HTTP_X_FORWARDED_FOR"),  # looked at below
        *("HTTP_USER_AGENT", "HTTP_CONNECTION", "HTTP_KEEP_ALIVE", "HTTP_ACCEPT_ENCODING"),
        *("HTTP_ACCEPT_LANGUAGE", "HTTP_CACHE_CONTROL", "HTTP_PRAGMA", "HTTP_X_REAL_IP", "HTTP_VIA"),
        *("CONTENT_LENGTH", "PATH_INFO", "QUERY_STRING", "RAW_URI", "REQUEST_URI"),
        *("REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT", "GATEWAY_INTERFACE", "SERVER_SOFTWARE"),
        *("SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL"),
        *("wsgi.version", "wsgi.input", "wsgi.input_terminated", "wsgi.errors", "wsgi.file_wrapper"),
        *("wsgi.multithread", "wsgi.multiprocess", "wsgi.run_once"),
    }
)
_OF_DOORS = (
    *("REQUEST_METHOD", "SCRIPT_NAME", "wsgi.url_scheme", "HTTP_HOST"),
    *("HTTP_ACCEPT", "CONTENT_TYPE", "HTTP_X_FORWARDED_PROTO"),
)
_OWN = frozenset({"content-length", requests.HEADER.lower()})  # of each answer anew
_MOST_DOORS = 256
_MOST_REMEMBERED_BODY = 32 << 10


class Door(NamedTuple):
    """The headers of Django's answers to requests of one kind, but for those of each anew."""

    headers: tuple[tuple[str, str], ...]


class Front:
    """Around Django's WSGI application. ``warm_bytes``: what it may remember."""

    def __init__(self, application: Any, recalls: Recalls, warm_bytes: int) -> None:
        self._application, self._recalls = application, recalls
        self.memory = WarmMemory(recalls, warm_bytes)
        self._passes = Passes(recalls, warm_bytes // 64)
        self._asks: Shelf[object, Ask] = Shelf(warm_bytes // 8)
        self._doors: dict[tuple[Any, ...], Door] = {}
        # The web server puts this process's variables beside the headers, and a header in place of one that
        # is named like it.
        headers = {name for name in os.environ if name.startswith("HTTP_")} - _CHANGES_NOTHING
        self._of_doors = tuple(dict.fromkeys((*_OF_DOORS, *sorted(headers))))
        self._known = _CHANGES_NOTHING | {*self._of_doors, *os.environ}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        began = time.perf_counter()
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        best = method == "GET" and _BEST.fullmatch(path)
        if not (best or (method == "POST" and path == LOOKUP)) or not self._is_plain(environ):
            return self._django(environ, start_response)
        look = self._recalls.current()
        if look is None:
            return self._django(environ, start_response)
        door = self._doors.get(at := tuple(map(environ.get, self._of_doors)))
        if door is not None:
            answer = self._answer(environ, best.group(1) if best else "")
            if answer is not None:
                return _served(environ, start_response, door, *answer, began)
        return self._taught(environ, start_response, at, look)

    def _is_plain(self, environ: Environ) -> bool:
        """Nothing is there that could change the answer and is in no door: a cookie, a name for the request …"""
        if not environ.keys() <= self._known:
            return False
        if environ["REQUEST_METHOD"] == "GET":
            return not environ.get("CONTENT_TYPE") and environ.get("CONTENT_LENGTH") in (None, "", "0")
        # A body of no announced length is left to Django, and so is what a POST has in its address.
        return bool(environ.get("CONTENT_LENGTH")) and not environ.get("QUERY_STRING")

    def _django(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _answer(self, environ: Environ, key: str) -> tuple[bytes, Pass] | None:
        """The body, metered and counted, and whose it is; None: Django is to be asked."""
        address = address_in(environ)
        held = self._passes.find(environ.get("HTTP_AUTHORIZATION", ""), address)
        if held is None:
            return None
        ask = self._ask(environ, key)
        if ask is None or not _have_room(address, held.key_id):
            return None
        try:
            body = self.memory.answer(held.organisation_id, ask, alone=bool(key))
        except (SystemFault, DatabaseError, InterfaceError):  # Django says so
            body = None
        if body is None:
            _give_back(address, held.key_id)
            return None
        return body, held

    def _ask(self, environ: Environ, key: str) -> Ask | None:
        """What is asked for; None where Django is to say what is wrong with it, or must be asked."""
        text = (key, environ.get("QUERY_STRING", "")) if key else _body(environ)
        ask = self._asks.get(text)
        if ask is not None:
            return ask
        try:
            parsed = parse_best(key, _query(text[1])) if key else parse_lookup(parse_json(text))  # type: ignore[arg-type]
        except (CallerError, UnicodeError, RecursionError, SuspiciousOperation):
            return None
        size = len(text) if isinstance(text, bytes) else len(text[1])
        ask = self.memory.ask(parsed, size)
        if ask is not None and size <= _MOST_REMEMBERED_BODY:
            self._asks.put(text, ask)
        return ask

    def _taught(
        self, environ: Environ, start_response: StartResponse, at: tuple[Any, ...], look: int
    ) -> Iterable[bytes]:
        """Django's answer, and what there is to be learnt of it."""
        said: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            said[:] = [status, headers]
            return start_response(status, headers, *more)

        answer = self._django(environ, start)
        lesson = environ.pop(LESSON, None)
        if isinstance(lesson, Lesson) and said and said[0].startswith("200"):
            self.memory.learn(lesson, look)
            self._passes.learn(environ.get("HTTP_AUTHORIZATION", ""), lesson.key, look)
            if len(self._doors) >= _MOST_DOORS:
                self._doors = {}
            headers = ((name, value) for name, value in said[1] if name.lower() not in _OWN)
            self._doors[at] = Door(tuple(headers))
        return answer


def _body(environ: Environ) -> bytes:
    """The body, there for Django as well."""
    stream = environ["wsgi.input"]
    body: bytes = stream.read()
    stream.seek(0)
    return body


def _query(text: str) -> QueryDict:
    """As Django reads it; raises CallerError where a parameter is none of ours (``format`` is DRF's)."""
    given = QueryDict(text.encode("latin-1"))
    if not given.keys() <= BEST_FIELDS:
        raise CallerError("Django is to be asked.")
    return given


def _have_room(address: str, key_id: int) -> bool:
    """Counts one, as Django does: the address, then the key. What it would refuse, it refuses."""
    of_address = window("rate_address")
    if of_address is not None and of_address.take(address) is not None:
        return False
    of_key = window("rate_lookup")
    if of_key is None or of_key.take(key_id) is None:
        return True
    if of_address is not None:
        of_address.give_back(address)
    return False


def _give_back(address: str, key_id: int) -> None:
    for name, whose in (("rate_address", address), ("rate_lookup", key_id)):
        if (counter := window(name)) is not None:
            counter.give_back(whose)


def _served(
    environ: Environ, start_response: StartResponse, door: Door, body: bytes, held: Pass, began: float
) -> list[bytes]:
    """The answer on its way, with what every request leaves behind: its id, its figures, its log line."""
    number = requests.request_id_in(environ)
    alone = environ["REQUEST_METHOD"] == "GET"
    route = "operator-best" if alone else "lookup"
    took_s = time.perf_counter() - began
    metrics.observe(environ["REQUEST_METHOD"], route, 200, took_s)
    if requests.access.isEnabledFor(logging.INFO):
        with added_log_fields(request_id=number):
            whose = requests.whose_key(held.prefix, held.organisation_id)
            requests.log_line(environ["REQUEST_METHOD"], environ["PATH_INFO"], route, 200, took_s, whose)
    own = [("Content-Length", str(len(body))), (requests.HEADER, number)]
    start_response("200 OK", [*door.headers, *own])
    return [body]
