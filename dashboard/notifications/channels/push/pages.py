"""Web Push's part of the pages: the service worker, the public key, and this person's devices."""

from __future__ import annotations

from pathlib import Path

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import RequestError
from dashboard.notifications.channels.push import devices, vapid
from dashboard.web.requests import ViewerRequest

_WORKER = Path(__file__).resolve().parents[3] / "static" / "js" / "sw.js"


@login_not_required
@require_safe
def service_worker(request: ViewerRequest) -> HttpResponse:
    """At the root, since a worker rules only what lies below its own address. Browsers ask for it anew each
    day, without a session, so it holds nothing of anybody's."""
    answer = HttpResponse(_WORKER.read_bytes(), content_type="text/javascript; charset=utf-8")
    answer["Service-Worker-Allowed"] = "/"
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def public_key(request: ViewerRequest) -> JsonResponse:
    """What a browser subscribes with."""
    return JsonResponse({"public_key": vapid.public_key()})


@require_POST
def register(request: ViewerRequest) -> HttpResponse:
    """A browser's offer, as form fields; answers with JSON, since a script sends it."""
    given = request.POST
    offer = devices.PushOffer(
        given.get("endpoint", ""),
        given.get("p256dh", ""),
        given.get("auth", ""),
        devices.browser_name(request.headers.get("User-Agent", "")),
    )
    try:
        row = devices.remember(request.user, offer)  # type: ignore[arg-type]
    except RequestError as refused:
        return JsonResponse({"error": str(refused), "where": refused.where}, status=400)
    return JsonResponse({"id": row.pk, "name": row.name}, status=201)


@require_POST
def forget(request: ViewerRequest, pk: int) -> HttpResponse:
    """No more pushes to one device."""
    row = get_object_or_404(request.user.push_devices, pk=pk)  # type: ignore[union-attr]
    row.delete()
    messages.success(request, f"{row} takes no messages any more.")
    return redirect("subscriptions")
