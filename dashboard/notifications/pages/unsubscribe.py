"""The way out of mails: a signed link, without a login. GET asks, POST does it (RFC 8058)."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from dashboard.notifications.models import Subscription
from dashboard.notifications.subscribe import unsubscribing
from dashboard.notifications.subscribe.subscribing import end_mail


@csrf_exempt  # a mailbox posts it, without a page before; the link itself is the proof
@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def unsubscribe(request: HttpRequest, token: str) -> HttpResponse:
    """``all`` in the form ends every mail; else those that the link names."""
    link = unsubscribing.read(token)
    if link is None:
        return render(request, "notifications/unsubscribe.html", {"broken": True}, status=404)
    if request.method == "POST":
        if "all" in request.POST:
            link = unsubscribing.Link(link.user_id, ())
        end_mail(link)
        return render(
            request, "notifications/unsubscribe.html", {"done": True, "all": not link.subscriptions}
        )
    rows = Subscription.objects.filter(user=link.user_id, by_email=True)
    named = rows.filter(pk__in=link.subscriptions) if link.subscriptions else rows
    return render(
        request,
        "notifications/unsubscribe.html",
        {"rows": list(named[:50]), "others": rows.count() - len(named)},
    )
