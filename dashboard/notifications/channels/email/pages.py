"""Where mail goes, and the way out of it: a signed link, without a login. GET asks, POST does it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.notifications.channels.email import unsubscribing
from dashboard.web.requests import ViewerRequest


@csrf_exempt  # a mailbox posts it, without a page before; the link itself is the proof
@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def unsubscribe(request: ViewerRequest, token: str) -> HttpResponse:
    """``all`` in the form ends every mail; else those that the link names."""
    link = unsubscribing.read(token)
    if link is None:
        return render(request, "notifications/unsubscribe.html", {"broken": True}, status=404)
    if request.method == "POST":
        if "all" in request.POST:
            link = unsubscribing.Link(link.user_id, ())
        unsubscribing.end_mail(link)
        said: dict[str, Any] = {"done": True, "all": not link.subscriptions}
    else:
        named, others = unsubscribing.told_by_mail(link)
        said = {"rows": named[:50], "others": len(others)}
    return render(request, "notifications/unsubscribe.html", said)


@require_POST
def address(request: ViewerRequest) -> HttpResponse:
    """Where this person's mail goes."""
    given = request.POST.get("email", "").strip()[:254]
    try:
        validate_email(given)
    except ValidationError:
        messages.error(request, "This is no e-mail address: one looks like name@example.com.")
    else:
        user: Any = request.user
        user.email = given
        user.save(update_fields=["email"])
        messages.success(request, f"Mail goes to {given}.")
    return redirect("subscriptions")
