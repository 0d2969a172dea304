"""The answer to unexpected errors: a sentence and the request's id."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from catalog.errors import DISK_FULL, is_full

_SENTENCE = "Something broke on our side; it was logged."


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500."""
    number = getattr(request, "request_id", "")
    full = is_full(sys.exception())
    said, status = (f"{DISK_FULL}: nothing was changed.", 503) if full else (_SENTENCE, 500)
    if request.path.startswith("/api/"):
        return JsonResponse({"error": said, "request_id": number}, status=status)
    # Without the request: what is broken may be what its context processors ask.
    return HttpResponse(render_to_string("500.html", {"sentence": said, "number": number}), status=status)
