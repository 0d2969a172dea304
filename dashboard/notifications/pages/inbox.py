"""The inbox: what happened, unread first; it keeps itself up to date."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from dashboard.notifications import selectors
from dashboard.notifications.models import Happening
from dashboard.notifications.selectors import Inbox, InboxFilters
from dashboard.web.asked import one_of, takes
from dashboard.web.live import Part
from dashboard.web.paging import page_of, with_query
from dashboard.web.requests import ViewerRequest, number_in, safe_next
from dashboard.web.tables import Column, Table, exported

_EXPORTED = 10_000


@require_safe
def inbox(request: ViewerRequest) -> HttpResponse:
    """All of them, or as the URL says; ``?seen=`` asks for the list alone if it changed."""
    filters = _filters(request)
    rows = selectors.inbox(_user(request), request.viewer, filters)
    if (answer := exported(request, _table(rows))) is not None:
        return answer
    part = _part(request, filters)
    if "seen" in request.GET:
        answer = part.response()
        if answer.status_code == 200:
            # The region that screen readers listen to stays where it is; only what it says is replaced.
            newest = selectors.inbox(_user(request), request.viewer, InboxFilters("unread"))[:1]
            answer.content += render_to_string(
                "notifications/_notification_news.html", {"newest": newest}, request
            ).encode()
        return answer
    events = [(one.value, one.label) for one in Happening]
    return render(
        request, "notifications/notifications.html", {"filters": filters, "live": part.html, "events": events}
    )


def _part(request: ViewerRequest, filters: InboxFilters) -> Part:
    page = page_of(request, Inbox(selectors.inbox(_user(request), request.viewer, filters)))
    path = with_query(request, export=None, table=None)
    context = {"filters": filters, "page": page, "back": path}
    return Part(request, "notifications/_notifications.html", context, path=path, every_s=4)


@require_safe
def badge(request: ViewerRequest) -> HttpResponse:
    """How many are unread, for the navigation: sent only if it is not what the page shows."""
    count = selectors.unread(_user(request))
    if request.GET.get("seen") == str(count):
        return HttpResponse(status=204)
    return render(request, "notifications/_unread.html", {"unread": count})


@require_safe
def open_one(request: ViewerRequest, pk: int) -> HttpResponse:
    """Go where a notification points; it is read by that."""
    row = get_object_or_404(_mine(request), pk=pk)
    if request.method == "GET":
        _mine(request).filter(pk=pk, read_at=None).update(read_at=timezone.now())
    return redirect(row.path)


@require_POST
def mark_read(request: ViewerRequest) -> HttpResponse:
    """``notification`` one or more numbers, or ``all``; back to the list as it was filtered."""
    rows = _mine(request).filter(read_at=None)
    if "all" not in request.POST:
        numbers = map(number_in, request.POST.getlist("notification"))
        rows = rows.filter(pk__in=[pk for pk in numbers if pk is not None])
    rows.update(read_at=timezone.now())
    return redirect(safe_next(request, reverse("notifications")))


def _mine(request: ViewerRequest) -> Any:
    return selectors.visible(_user(request), request.viewer)


def _user(request: ViewerRequest) -> Any:
    return request.user


def _filters(request: ViewerRequest) -> InboxFilters:
    takes(request, "show", "event")
    return InboxFilters(one_of(request, "show", ("unread",)), one_of(request, "event", Happening.values))


def _table(rows: Any) -> Table:
    columns = (
        Column("at", "When", "when"),
        Column("happening", "What"),
        Column("text", "Said"),
        Column("count", "Times", "count"),
        Column("path", "Where", "code"),
        Column("read_at", "Read", "when"),
    )
    # A queryset: read when it is exported, not when the page is shown.
    return Table("notifications", "Notifications", columns, (), every=rows[:_EXPORTED])
