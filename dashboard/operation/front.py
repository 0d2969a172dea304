"""In front of Django: repeated lookups, answered from this process's memory.

A request is answered here only if everything that could change Django's answer is known to be unchanged. Its
headers must be irrelevant ones, or have exactly the values with which Django has answered 200 before (a
*guise*, which includes the answer's headers). Django must have accepted the key, the rates must have room,
and every operator's best must be remembered and not recalled. All other requests go to Django, and the front
learns from its answers.

Within one look (``catalog.lookup.recalls``), and over all looks that find nothing changed on which it depends
(its *standing*), the same request gets the same *reply*: then only the rates are counted and the journal
written.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from django.core.exceptions import SuspiciousOperation
from django.db import DatabaseError, InterfaceError
from django.http import QueryDict

from catalog.api.lookup_json import BEST_FIELDS, ParsedLookup, parse_best, parse_lookup
from catalog.api.parsers import parse_json
from catalog.api.warm.memory import LESSON, Lesson, WarmAsk, WarmMemory, WarmStanding
from catalog.api.warm.rows import ROWS, WarmRows
from catalog.api.warm.tickets import Ticket, Tickets
from catalog.errors import JournalError
from catalog.lookup.recalls import Recalls
from catalog.lookup.shelf import Shelf
from catalog.people.addresses import address_in, scheme_in
from catalog.selectors.targets import HERE
from catalog.usage.recording import journal_said
from dashboard.operation import metrics, requests
from dashboard.operation.limits import count_lookup, uncount_lookup
from opatlas.errors import CallerError

StartResponse = Callable[..., Any]
Environ = dict[str, Any]
Headers = tuple[tuple[str, str], ...]

LOOKUP = "/api/v1/lookup"
_BEST = re.compile(r"/api/v1/operators/(o1:[0-9a-f]{64})/best")

_CHANGES_NOTHING = frozenset(
    {
        *(
            "HTTP_AUTHORIZATION",
            "HTTP_X_REQUEST_ID",
            "HTTP_X_FORWARDED_FOR",
            "HTTP_FORWARDED",
        ),  # looked at below
        *("HTTP_USER_AGENT", "HTTP_CONNECTION", "HTTP_KEEP_ALIVE", "HTTP_ACCEPT_ENCODING"),
        *("HTTP_ACCEPT_LANGUAGE", "HTTP_CACHE_CONTROL", "HTTP_PRAGMA", "HTTP_X_REAL_IP", "HTTP_VIA"),
        *("CONTENT_LENGTH", "RAW_URI", "REQUEST_URI", "REMOTE_ADDR", "REMOTE_HOST", "REMOTE_PORT"),
        *("GATEWAY_INTERFACE", "SERVER_SOFTWARE", "SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL"),
        *("wsgi.version", "wsgi.input", "wsgi.input_terminated", "wsgi.errors", "wsgi.file_wrapper"),
        *("wsgi.multithread", "wsgi.multiprocess", "wsgi.run_once"),
    }
)
_ASKED = ("PATH_INFO", "QUERY_STRING")
_OF_GUISES = (
    *("REQUEST_METHOD", "wsgi.url_scheme", "HTTP_HOST"),
    *("HTTP_ACCEPT", "CONTENT_TYPE", "HTTP_X_FORWARDED_PROTO"),
)
_SENT = _CHANGES_NOTHING | {*_OF_GUISES, *_ASKED}
_OWN = frozenset({"content-length", requests.HEADER.lower()})  # of each answer anew
_MOST_GUISES = 256
_LONGEST_GUISE = 2_000
"""Characters. Longer headers are not remembered, since each is kept with each of its replies."""

_MOST_REMEMBERED_BODY = 32 << 10


@dataclass(slots=True)
class WarmReply:
    """The reply to one request, for all callers that send the same."""

    look: int  # the last one that it was good for
    standing: WarmStanding | None  # while this very one holds, it is good for later looks; None: for none
    body: bytes
    headers: Headers
    said: bytes  # in the journal, before it leaves
    whose: Ticket
    address: str
    here: str | None  # what ``here`` meant, where the target was named by it
    weight_bytes: int


class _Stand(NamedTuple):
    """What replies depend on, as seen in a look."""

    look: int
    looked_at: float  # of the looks' clock
    standing: WarmStanding | None
    here: str | None  # the target that this means


class Front:
    """Around Django's WSGI application. ``warm_bytes``: the size of its memory."""

    def __init__(self, application: Any, recalls: Recalls, warm_bytes: int) -> None:
        self._application, self._recalls, self._warm_bytes = application, recalls, warm_bytes
        self.memory = WarmMemory(recalls, warm_bytes)
        self._rows = WarmRows(recalls)
        self._tickets = Tickets(recalls, warm_bytes // 64)
        self._asks: Shelf[object, WarmAsk] = Shelf(warm_bytes // 8)
        self._guises: dict[tuple[Any, ...], Headers] = {}
        self._replies: Shelf[tuple[Any, ...], WarmReply] = Shelf(warm_bytes // 8)
        self._stand = _Stand(0, -math.inf, None, None)
        # The web server puts this process's variables beside the headers, and a header in place of one that
        # is named like it.
        headers = {name for name in os.environ if name.startswith("HTTP_")} - _CHANGES_NOTHING
        own = ("SCRIPT_NAME", *sorted(headers - _SENT))
        self._of_guises = (*_OF_GUISES, *own)
        self._known = _SENT | {*own, *os.environ}
        # Where a variable is named like what a request has, it stands for what a request has not.
        self._is_quick = _SENT.isdisjoint(os.environ) and not os.environ.get("SCRIPT_NAME")
        self._unsent = tuple(os.environ.get(name, "") for name in own)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        began = time.perf_counter()
        if not (environ.keys() <= self._known and _is_lookup(environ)):
            return self._django(environ, start_response)
        look = self._recalls.current()
        if look is None:
            return self._django(environ, start_response)
        get = environ.get
        environ["wsgi.url_scheme"] = scheme_in(environ)
        guise = tuple(map(get, self._of_guises))
        text = _body(environ) if environ["REQUEST_METHOD"] == "POST" else get("QUERY_STRING", "")
        request = (_shown(environ), address_in(environ), environ["PATH_INFO"], text, guise)
        reply = self._reply(request, look) or self._made(request, look)
        if reply is not None and _is_written_down(reply):
            start_response("200 OK", _headers(environ, reply, began))
            return [reply.body]
        return self._taught(environ, start_response, request[0], guise, look)

    def quickly(self, sent: Environ) -> tuple[list[tuple[str, str]], bytes] | None:
        """Headers and body of a 200 to a GET that was answered lately, for
        :mod:`dashboard.operation.quick_lane`: reads nothing and waits for nobody. None: take the normal way.
        ``sent``: the request's own part of the environ."""
        began = time.perf_counter()
        if not (self._is_quick and sent.keys() <= _SENT and sent["REQUEST_METHOD"] == "GET"):
            return None
        if sent.get("CONTENT_LENGTH"):
            return None
        sent["wsgi.url_scheme"] = scheme_in(sent)
        get, stand = sent.get, self._stand
        guise = (*map(get, _OF_GUISES), *self._unsent)
        request = (_shown(sent), address_in(sent), sent["PATH_INFO"], get("QUERY_STRING", ""), guise)
        reply = self._lasting(request, stand)
        if reply is None or not self._recalls.are_fresh(stand.looked_at) or not _is_written_down(reply):
            return None
        return _headers(sent, reply, began), reply.body

    def _django(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        environ[ROWS] = self._rows
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer

    def _reply(self, request: tuple[Any, ...], look: int) -> WarmReply | None:
        """A reply made in this look, or still valid in it."""
        if self._stand.look != look and not self._see(look):
            return None
        return self._lasting(request, self._stand)

    def _lasting(self, request: tuple[Any, ...], stand: _Stand) -> WarmReply | None:
        reply = self._replies.get(request)
        if reply is not None and reply.here is not None and reply.here != stand.here:
            return None
        if reply is None or reply.look == stand.look:
            return reply
        # Not one that is equal: between the two it may have been another, and a reply was made in it.
        if reply.standing is None or reply.standing is not stand.standing:
            return None
        if self._tickets.find(*request[:2]) is not reply.whose:
            return None
        reply.look = stand.look
        return reply

    def _see(self, look: int) -> bool:
        """Read what replies depend on, once in a look; False if that cannot be read."""
        looked_at, here = self._recalls.looked_at(look), self._recalls.here
        try:
            standing = self.memory.standing()
        except (DatabaseError, InterfaceError):
            return False
        before = self._stand.standing
        self._stand = _Stand(look, looked_at, before if standing == before else standing, here)
        return True

    def _made(self, request: tuple[Any, ...], look: int) -> WarmReply | None:
        """A reply from memory; None: Django must answer."""
        shown, address, path, text, guise = request
        stood_in, _, standing, here = self._stand  # before all else is looked at
        if standing is None or stood_in < look:
            return None
        headers, whose = self._guises.get(guise), self._tickets.find(shown, address)
        if headers is None or whose is None:
            return None
        best = _BEST.fullmatch(path)
        if (ask := self._ask(best.group(1) if best else "", text)) is None:
            return None
        alone = best is not None
        try:
            answer = self.memory.answer(whose.organisation_id, ask, alone, standing, look, here)
        except (DatabaseError, InterfaceError):  # what is read twice a second cannot be read
            return None
        if answer is None:
            return None
        headers = (*headers, ("Content-Length", str(len(answer.body))))
        weight = len(answer.body) + len(answer.said) + len(text) + _size_of(guise) + 2_000
        reply = WarmReply(
            look, standing if answer.lasts else None, answer.body, headers, answer.said, whose, address,
            here if ask.target == HERE else None, weight,
        )  # fmt: skip
        self._replies.put(request, reply)
        return reply

    def _ask(self, key: str, text: bytes | str) -> WarmAsk | None:
        """The parsed request; None if Django must answer or say what is wrong."""
        if (ask := self._asks.get((key, text))) is not None:
            return ask
        try:
            parsed = _parsed(key, text)
        except (CallerError, UnicodeError, RecursionError, SuspiciousOperation):
            return None
        ask = self.memory.ask(parsed, len(text))
        if ask is not None and len(text) <= _MOST_REMEMBERED_BODY:
            self._asks.put((key, text), ask)
        return ask

    def _taught(
        self,
        environ: Environ,
        start_response: StartResponse,
        shown: bytes,
        guise: tuple[Any, ...],
        look: int,
    ) -> Iterable[bytes]:
        """Django's answer, after learning from it."""
        said: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            said[:] = [status, headers]
            return start_response(status, headers, *more)

        answer = self._django(environ, start)
        lesson = environ.pop(LESSON, None)
        if isinstance(lesson, Lesson) and said and said[0].startswith("200") and self._warm_bytes:
            self.memory.learn(lesson, look)
            self._tickets.learn(shown, lesson.key, look)
            if len(self._guises) >= _MOST_GUISES:
                self._guises = {}
            if _size_of(guise) <= _LONGEST_GUISE:
                self._guises[guise] = tuple(
                    (name, value) for name, value in said[1] if name.lower() not in _OWN
                )
        return answer


def _is_lookup(environ: Environ) -> bool:
    """Whether address and method are a lookup's: unusual requests go to Django."""
    if environ["REQUEST_METHOD"] == "GET":
        plain = not environ.get("CONTENT_TYPE") and environ.get("CONTENT_LENGTH") in (None, "", "0")
        return plain and _BEST.fullmatch(environ["PATH_INFO"]) is not None
    if environ["REQUEST_METHOD"] != "POST" or environ["PATH_INFO"] != LOOKUP:
        return False
    body = environ["wsgi.input"]
    return (
        isinstance(body, BytesIO)
        and not environ.get("QUERY_STRING")
        and environ.get("CONTENT_LENGTH") == str(body.getbuffer().nbytes)  # all of it, as announced
    )


def _size_of(guise: tuple[Any, ...]) -> int:
    return sum(len(value) for value in guise if value)


def _body(environ: Environ) -> bytes:
    """The body, which was read before (``dashboard.operation.bodies``), kept for Django as well."""
    stream = environ["wsgi.input"]
    body: bytes = stream.read()
    stream.seek(0)
    return body


def _parsed(key: str, text: bytes | str) -> ParsedLookup:
    """Parsed by the same functions as in Django's views; raises CallerError like them, and for unknown
    parameters (``format`` is DRF's)."""
    if isinstance(text, bytes):
        return parse_lookup(parse_json(text))
    given = QueryDict(text.encode("latin-1"))
    if not given.keys() <= BEST_FIELDS:
        raise CallerError("Django is to be asked.")
    return parse_best(key, given)


def _shown(environ: Environ) -> bytes:
    """The key's digest: this memory holds no key."""
    header: str = environ.get("HTTP_AUTHORIZATION", "")
    return hashlib.sha256(header.encode("utf-8", "surrogateescape")).digest()


def _is_written_down(reply: WarmReply) -> bool:
    """Count it in its rates and write the journal; False: Django must answer and say why."""
    if not count_lookup(reply.address, reply.whose.key_id):
        return False
    try:
        if reply.said:
            journal_said(reply.said)
    except JournalError:
        uncount_lookup(reply.address, reply.whose.key_id)
        return False
    return True


def _headers(environ: Environ, reply: WarmReply, began: float) -> list[tuple[str, str]]:
    """The answer's headers, and each request's traces: its id, its metrics, its log line."""
    number, method = requests.request_id_in(environ), environ["REQUEST_METHOD"]
    route = "operator-best" if method == "GET" else "lookup"
    took_s = time.perf_counter() - began
    metrics.observe(method, route, 200, took_s)
    if requests.are_logged():
        whose = requests.whose_key(reply.whose.prefix, reply.whose.organisation_id)
        requests.log_line(method, environ["PATH_INFO"], route, 200, took_s, whose, number)
    return [*reply.headers, (requests.HEADER, number)]
