"""Around every request: its id, its log line, its place in the metrics."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch

from catalog.context import added_log_fields
from catalog.models import ApiKey
from catalog.people.addresses import scheme_in
from dashboard.operation import metrics

access = logging.getLogger("opatlas.access")

HEADER = "X-Request-ID"
_ids: deque[str] = deque()
os.register_at_fork(after_in_child=_ids.clear)
_SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")


class RequestMiddleware:
    """``request.request_id``: the caller's X-Request-ID if it is a plain word of 8 to 64 characters, else a
    new one. It is answered in the same header, and stands in every log line and error of the request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        number = request_id(request)
        request.request_id = number  # type: ignore[attr-defined]
        request.META["wsgi.url_scheme"] = scheme_in(request.META)  # what Django takes for https
        with added_log_fields(request_id=number):
            response = self.get_response(request)
            took_s = time.perf_counter() - began
            route = route_of(request.resolver_match)
            metrics.observe(request.method or "", route, response.status_code, took_s)
            if are_logged():
                whose = _whose(request)
                log_line(
                    request.method or "", request.path, route, response.status_code, took_s, whose, number
                )
        response.headers[HEADER] = number
        return response


def request_id(request: HttpRequest) -> str:
    return request_id_in(request.META)


def request_id_in(meta: Mapping[str, Any]) -> str:
    given = meta.get("HTTP_X_REQUEST_ID", "")
    return given if given and _SANE.fullmatch(given) else _new_id()


def _new_id() -> str:
    """Of 256 that are drawn at a time: each draw lets other threads go first."""
    try:
        return _ids.pop()
    except IndexError:
        drawn = os.urandom(256 * 16).hex()
        _ids.extend(drawn[at : at + 32] for at in range(32, len(drawn), 32))
        return drawn[:32]


def route_of(match: ResolverMatch | None) -> str:
    """The route's name, or its pattern where it has none: of a bounded number, unlike paths."""
    if match is None:
        return "none"
    return match.view_name if match.url_name else match.route or "none"


def are_logged() -> bool:
    return access.isEnabledFor(logging.INFO)


def log_line(
    method: str, path: str, route: str, status: int, took_s: float, whose: Mapping[str, object], number: str
) -> None:
    """One request in the log. No query string, no body: they can hold what belongs in no log."""
    facts = {
        "method": method,
        "path": path[:300],
        "route": route,
        "status": status,
        "duration_ms": round(took_s * 1e3, 2),
    }
    access.info("%s %s %s", method, path, status, extra=facts | {"request_id": number, **whose})


def whose_key(prefix: str, organisation_id: int) -> dict[str, object]:
    return {"api_key": prefix, "organisation": organisation_id}


def _whose(request: HttpRequest) -> dict[str, object]:
    facts: dict[str, object] = {}
    key = getattr(request, "auth", None)
    if isinstance(key, ApiKey):
        facts |= whose_key(key.prefix, key.organisation_id)
    # Only if somebody has looked already: a log line is no reason to read a session.
    user = getattr(request, "_cached_user", None)
    if user is not None and user.is_authenticated:
        facts["user"] = user.get_username()
    return facts
