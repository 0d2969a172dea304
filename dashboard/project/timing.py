"""How long an answer took, and how many queries it made, in a ``Server-Timing`` header (for benches).

Only with ``OPATLAS_SERVER_TIMING=1``: times of pages tell a stranger what is in the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.core.exceptions import MiddlewareNotUsed
from django.db import connection
from django.http import HttpRequest, HttpResponse

from dashboard.conf import conf


class _Queries:
    """Counts the statements of one request, and the time spent in them."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        started = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            self.count += 1
            self.seconds += time.perf_counter() - started


class ServerTimingMiddleware:
    """``Server-Timing: total;dur=<ms>, db;dur=<ms>;desc="<queries> queries"``; first in the list, so that
    everything else is inside."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        if not conf().server_timing:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        queries = _Queries()
        with connection.execute_wrapper(queries):
            response = self.get_response(request)
        total_ms = (time.perf_counter() - started) * 1e3
        response["Server-Timing"] = (
            f'total;dur={total_ms:.2f}, db;dur={queries.seconds * 1e3:.2f};desc="{queries.count} queries"'
        )
        return response
