"""What browsers may do with our pages, and their reports of violations."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from dashboard.operation.policy import PERMISSIONS, POLICY

logger = logging.getLogger("opatlas.csp")

_MAX_REPORT_BYTES = 16 << 10
_TOLD = (
    "effective-directive",
    "violated-directive",
    "blocked-uri",
    "document-uri",
    "source-file",
    "line-number",
)


class PolicyMiddleware:
    """Pages run no inline code and use no sensor, camera or the like; injected content may not either."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["Permissions-Policy"] = PERMISSIONS
        return response


@csrf_exempt
@login_not_required
@require_POST
def csp_report(request: HttpRequest) -> HttpResponse:
    """Log a browser's report; anything else sent here is dropped."""
    if int(request.META.get("CONTENT_LENGTH") or 0) <= _MAX_REPORT_BYTES:
        report = _report(request.read(_MAX_REPORT_BYTES))
        if report:
            logger.warning("The policy of a page was violated: %s", report, extra={"csp": report})
    return HttpResponse(status=204)


def _report(body: bytes) -> dict[str, str]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    given = document.get("csp-report") if isinstance(document, dict) else None
    if not isinstance(given, dict):
        return {}
    # Only what is understood, cut short and on one line: anybody can send anything.
    return {name: repr(str(given[name])[:200])[1:-1] for name in _TOLD if name in given}
