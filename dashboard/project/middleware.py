"""Adds the viewer to every request."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from catalog.people.sessions import renew_if_marked
from catalog.viewing import Viewer, viewer_of

FOCUS = "organisation"
"""The session key for the organisation that a person chose to look at."""


class ViewerMiddleware:
    """``request.viewer``: a :class:`catalog.viewing.Viewer`, looked up when it is first asked for."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.viewer = SimpleLazyObject(lambda: _viewer(request))  # type: ignore[attr-defined]
        if settings.SESSION_COOKIE_NAME in request.COOKIES:  # jobs have none: a lookup reads no session
            renew_if_marked(request)
        return self.get_response(request)


def _viewer(request: HttpRequest) -> Viewer:
    viewer = viewer_of(request.user)
    chosen = request.session.get(FOCUS)
    return viewer.focused(chosen) if isinstance(chosen, int) else viewer
