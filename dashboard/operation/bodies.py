"""Large bodies: few at a time in one process, so that threads are left for everybody else.

A server's thread reads a body for as long as its sender takes. What announces more than any endpoint takes is
refused unread; of what is larger than 1 MiB only so many are received at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from catalog.conf import MAX_BODY_BYTES
from dashboard.conf import conf
from dashboard.operation.limits import too_many

MOST_BYTES = 130 << 20
"""A model of 128 MiB, and the form around it."""
RETRY_S = 5.0


class LargeBodyMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._places = threading.Semaphore(conf().large_bodies)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        announced = str(request.META.get("CONTENT_LENGTH") or "0")
        size = int(announced) if announced.isdigit() and len(announced) < 20 else 0
        if size > MOST_BYTES:
            return _too_large(request)
        if size <= MAX_BODY_BYTES:
            return self.get_response(request)
        if not self._places.acquire(blocking=False):
            return too_many(request, RETRY_S, "As many uploads are being received as may be at a time.")
        try:
            return self.get_response(request)
        finally:
            self._places.release()


def _too_large(request: HttpRequest) -> HttpResponse:
    sentence = f"The body is larger than {MOST_BYTES >> 20} MiB, the most that anything here takes."
    if request.path_info.startswith("/api/"):
        return JsonResponse({"error": sentence}, status=413)
    return render(request, "limited.html", {"sentence": sentence, "title": "Too large"}, status=413)
