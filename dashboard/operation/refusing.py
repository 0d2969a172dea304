"""Error pages: nothing there, not allowed, or a form that came too late. They look like every other page;
programs get the same sentence as JSON."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import render

NOTHING = "There is nothing at this address, or it is not yours to see."
FORBIDDEN = "Your role does not allow this: ask an administrator of your organisation."
TOO_LATE = (
    "Nothing was changed: the form was open for too long, or your browser keeps no cookies of this service. "
    "Go back, load the page anew, and send it again."
)
NO_VISIT = "This address takes what a form sends; there is no page to look at."

Answer = Callable[[HttpRequest], HttpResponseBase]


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404. A sentence of ours is shown; what Django says of queries and addresses is not."""
    said = exception.args[0] if exception.args else ""
    ours = isinstance(said, str) and said and not said.endswith("matches the given query.")
    return _refusal(request, 404, "Nothing here", said if ours else NOTHING)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler403."""
    return _refusal(request, 403, "Not for your role", str(exception) or FORBIDDEN)


def too_late(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's CSRF_FAILURE_VIEW."""
    return _refusal(request, 403, "The form was not taken", TOO_LATE)


class NotAllowedMiddleware:
    """Views answer a method that they do not take with an empty 405: here it becomes a page."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not isinstance(response, HttpResponseNotAllowed) or response.content:
            return response
        said = NO_VISIT if request.method in ("GET", "HEAD") else f"This page takes no {request.method}."
        page = _refusal(request, 405, "Not this way", said)
        page.headers["Allow"] = response.headers["Allow"]
        return page


def _refusal(request: HttpRequest, status: int, title: str, sentence: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse({"error": sentence}, status=status)
    user = getattr(request, "user", None)
    # Who is not logged in sees no navigation: every link of it would lead to the login.
    frame = "base.html" if user is not None and user.is_authenticated else "people/entry.html"
    context = {"frame": frame, "title": title, "sentence": sentence, "status": status}
    return render(request, "refused.html", context, status=status)
