"""What somebody watches: begun, changed, tried out, ended."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.backends.utils import csrf_input
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.errors import RequestError
from catalog.models import Method, Setting, Target
from catalog.selectors import listing
from catalog.viewing import Viewer
from dashboard.notifications import selectors, subscribing
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.find.notify import notify_test
from dashboard.notifications.models import SubjectKind, Subscription
from dashboard.notifications.templatetags.notifying import channel_label, choices
from dashboard.notifications.write import subjects
from dashboard.web.addresses import address
from dashboard.web.markup import filled
from dashboard.web.requests import ViewerRequest, number_in, refusals_said, safe_next
from dashboard.web.tables import Column, Table, exported, page


@require_safe
def subscriptions(request: ViewerRequest) -> HttpResponse:
    """All of this person's, where mail and pushes go, and a form for a filter."""
    rows = list(selectors.subscriptions(_user(request)))
    table = _table(rows, request)
    if (answer := exported(request, table)) is not None:
        return answer
    op_types, dtypes = listing.kinds()
    context = {
        "table": table,
        "problems": selectors.problems(_user(request)),
        "op_types": op_types,
        "dtypes": dtypes,
        "methods": Method.values,
        "targets": Target.objects.order_by("capability").only("key", "capability"),
        "next": reverse("subscriptions"),
        **choices(None),
    }
    return render(request, "notifications/subscriptions.html", context)


@require_POST
def subscribe(request: ViewerRequest) -> HttpResponse:
    """Watch something; back to where the form was."""
    user, viewer = _user(request), request.viewer
    with refusals_said(request):
        about = _about(request, viewer)
        row, new = subscribing.subscribe(user, viewer, about, _wish(request, about.subject))
        what = "You watch this now" if new else "Changed how you are told"
        messages.success(request, f"{what}: {row.title}.")
    return redirect(safe_next(request, reverse("subscriptions")))


@require_http_methods(["GET", "HEAD", "POST"])
def subscription(request: ViewerRequest, pk: int) -> HttpResponse:
    """One, to be changed."""
    row = _one(request, pk)
    if request.method == "POST":
        try:
            subscribing.change(row, _wish(request, row.subject))
        except RequestError as refused:
            messages.error(request, str(refused))
            return redirect("subscription", pk=pk)
        messages.success(request, f"Changed how you are told: {row.title}.")
        return redirect("subscriptions")
    return render(request, "notifications/subscription.html", {"row": row, **choices(row)})


@require_POST
def end(request: ViewerRequest, pk: int) -> HttpResponse:
    row = _one(request, pk)
    subscribing.end(row)
    messages.success(request, f"You no longer watch this: {row.title}.")
    return redirect(safe_next(request, reverse("subscriptions")))


@require_POST
def test(request: ViewerRequest, pk: int) -> HttpResponse:
    row = _one(request, pk)
    notify_test(row)
    by = ", ".join(CHANNELS[name].label.lower() for name in row.told_by) or "no channel: choose one first"
    messages.success(request, f"A test message is on its way: {by}.")
    return redirect("subscriptions")


def _about(request: ViewerRequest, viewer: Viewer) -> subjects.NamedSubject:
    given = request.POST
    subject = given.get("subject", "")
    if subject == SubjectKind.OPERATOR:
        return subjects.operator(given.get("operator", ""), *_place(given.get("at", "")))
    if subject == SubjectKind.JOB:
        return subjects.job(viewer, number_in(given.get("job", "")) or 0)
    if subject == SubjectKind.MODEL:
        return subjects.model(viewer, number_in(given.get("model", "")) or 0)
    if subject == SubjectKind.FILTER:
        return subjects.operators_that(given)
    if subject == SubjectKind.SERVICE:
        return subjects.service(viewer)
    if subject == SubjectKind.ACCOUNT:
        return subjects.account(viewer)
    raise RequestError(
        "Say what to watch: an operator, a job, a model, a filter, the service or an account.",
        where="subject",
    )


def _place(text: str) -> tuple[str, str]:
    """``<target>-<setting>`` as operators' pages name a place, as keys; empty: anywhere."""
    target, _, setting = text.partition("-")
    if not text:
        return "", ""
    found = (
        Target.objects.filter(pk=number_in(target) or 0).values_list("key", flat=True).first(),
        Setting.objects.filter(pk=number_in(setting) or 0).values_list("key", flat=True).first(),
    )
    return found[0] or "unknown", found[1] or "unknown"


def _wish(request: ViewerRequest, subject: str) -> subscribing.Wish:
    given = request.POST
    events, channels = given.getlist("event"), given.getlist("channel")
    return subscribing.wish(subject, events, channels, given.get("digest", "at_once"), _user(request))


def _one(request: ViewerRequest, pk: int) -> Subscription:
    rows = selectors.subscriptions(_user(request)).select_related("operator").defer("operator__graph")
    return get_object_or_404(rows, pk=pk)


def _events(row: Subscription) -> str:
    return ", ".join(one.value.removesuffix("_changed").title() for one in row.happenings)


def _channels(row: Subscription) -> str:
    names = ", ".join(channel_label(name) for name in row.told_by)
    return names or format_html('<span class="faint">{}</span>', "switched off")


_ACTIONS = """<div class="row-actions">
  <a class="button small" href="{}">Change{}</a>
  <form method="post" action="{}">{}<button class="button small">Test{}</button></form>
  <form method="post" action="{}">{}<button class="button small danger">End{}</button></form>
</div>"""


def _table(rows: list[Subscription], request: ViewerRequest) -> Table:
    viewer = request.viewer

    def kind(row: Subscription) -> str:
        everywhere = ", all organisations" if row.organisation_id is None and viewer.sees_all else ""
        return f"{row.get_subject_display().lower()}{everywhere}"

    @cache  # an export asks for none
    def token() -> SafeString:
        return csrf_input(request)

    def actions(row: Subscription) -> SafeString:
        # Somebody watches hundreds: a template for each would be most of the page's time.
        what = filled('<span class="visually-hidden"> {}</span>', row.title)
        change, test, end = (address(f"subscription{verb}", row.pk) for verb in ("", "-test", "-end"))
        return filled(_ACTIONS, change, what, test, token(), what, end, token(), what)

    columns = (
        Column("title", "What", link=page("subscription"), css="wide-text lead"),
        Column("subject", "Kind", show=kind, under="title"),
        Column("events", "Told of", value=lambda row: ", ".join(row.happenings), show=_events),
        Column("channels", "How", value=lambda row: ", ".join(row.told_by), show=_channels),
        Column("digest", "How often", show=lambda row: row.get_digest_display()),
        Column("created_at", "Since", "when", css="muted"),
        Column(
            "actions",
            "Actions",
            "actions",
            show=actions,
            only="page",
            room_px=188,
        ),
    )
    return Table("subscriptions", "Subscriptions", columns, rows, css="stacks")


def _user(request: ViewerRequest) -> Any:
    return request.user
