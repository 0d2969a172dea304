"""What is answered when something broke that nobody foresaw: a sentence and the request's id, no more."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

_SENTENCE = "Something broke on our side; it was logged."


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500."""
    number = getattr(request, "request_id", "")
    if request.path.startswith("/api/"):
        return JsonResponse({"error": _SENTENCE, "request_id": number}, status=500)
    # Without the request: what is broken may be what its context processors ask.
    return HttpResponse(render_to_string("500.html", {"sentence": _SENTENCE, "number": number}), status=500)
