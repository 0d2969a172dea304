"""Middleware that only pages need; requests to the API skip it.

Below ``/api/`` no session counts: only keys open anything there (``catalog.api.authentication``). Middleware
that guards every answer (limits, hosts, security headers, request ids, the audit log) is in the list as
usual, as is Django's own for sessions and CSRF, whose deployment checks look for it by name. So is everything
that inspects a view before it runs: a view below ``/api/`` that does not declare that it needs neither login
nor token is refused, not open.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import middleware as auth
from django.contrib.auth.models import AnonymousUser
from django.contrib.messages import middleware as messages
from django.http import HttpRequest
from django.middleware import common
from django_htmx import middleware as htmx
from whitenoise import middleware as whitenoise

from dashboard.project import middleware as viewing

_API, _READ_BY_PEOPLE = "/api/", "/api/v1/docs/"


_NOBODY = AnonymousUser()


def is_for_programs(request: HttpRequest) -> bool:
    """Whether a request goes to the API, by the same text as the URL table uses."""
    path = request.path_info
    return path.startswith(_API) and not path.startswith(_READ_BY_PEOPLE)


class _ForPages:
    """Wraps a middleware: its request and response parts are for pages; its ``process_view`` is for all."""

    async_capable = False
    get_response: Any

    def __call__(self, request: HttpRequest) -> Any:
        if is_for_programs(request):
            return self.get_response(request)
        return super().__call__(request)  # type: ignore[misc]


class WhiteNoiseMiddleware(_ForPages, whitenoise.WhiteNoiseMiddleware):
    pass


class AuthenticationMiddleware(_ForPages, auth.AuthenticationMiddleware):
    def __call__(self, request: HttpRequest) -> Any:
        request.user = _NOBODY  # to programs; where a key is shown, DRF says whose it is
        return super().__call__(request)


class PageViewerMiddleware(_ForPages, viewing.ViewerMiddleware):
    pass


class MessageMiddleware(_ForPages, messages.MessageMiddleware):
    pass


class HtmxMiddleware(_ForPages, htmx.HtmxMiddleware):
    pass


class CommonMiddleware(common.CommonMiddleware):
    """For programs, only the host is checked and the length set; nothing is redirected. (The URL table knows
    every address below ``/api/``, so none was ever redirected for a slash.)"""

    async_capable = False

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        self._does_more = bool(settings.DISALLOWED_USER_AGENTS or settings.PREPEND_WWW)

    def __call__(self, request: HttpRequest) -> Any:
        if self._does_more or not is_for_programs(request):
            return super().__call__(request)
        request.get_host()  # raises DisallowedHost
        response: Any = self.get_response(request)
        if not response.streaming and not response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))
        return response
