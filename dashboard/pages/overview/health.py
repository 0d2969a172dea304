"""Whether this process answers, for supervisors and load balancers."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from dashboard.web.requests import ViewerRequest


@login_not_required
@require_safe
def liveness(request: ViewerRequest) -> JsonResponse:
    """The process lives. It does not use the database: a slow one must not get web nodes killed."""
    return JsonResponse({"status": "ok"})


@login_not_required
@require_safe
def favicon(request: ViewerRequest) -> HttpResponse:
    """Browsers ask for it by this name where a page names no icon (Django's admin)."""
    return redirect(static("img/favicon.svg"))
