"""Endpoints, what was sent to them, and what people do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.models import Organisation
from catalog.people import audit
from catalog.timerange import RANGES, parse_range
from dashboard.web.paging import answer_of, page_of
from dashboard.web.requests import ViewerRequest, refusals_said
from dashboard.web.tables import Column, Table, exported, exports, page
from dashboard.webhooks import endpoints, retention, selectors
from dashboard.webhooks.bodies import body_for
from dashboard.webhooks.models import BodyForm, DeliveryState, Endpoint, EventType
from dashboard.webhooks.pages.common import (
    check_may,
    deliveries_table,
    delivery_or_404,
    endpoint_or_404,
    shown,
)
from opatlas.errors import CallerError

TRIES_SHOWN = 200
MEANINGS = {
    EventType.EXPLORATION_ENDED: "an exploration ended",
    EventType.BEST_CHANGED: "the best implementation of an operator changed",
    EventType.IMPLEMENTATION_WITHDRAWN: "an implementation was revoked or found wrong",
    EventType.HIT_SERVED: "a lookup was a hit",
    EventType.WORKERS_SILENT: "a target's workers fell silent (told to who runs the service)",
    EventType.ROUTE_FAILING: "a route fails on every trial (told to who runs the service)",
    EventType.MACHINE_DISTURBED: "a machine is too disturbed to measure on (told to who runs the service)",
    EventType.QUEUE_OLD: "first results wait too long (told to who runs the service)",
    EventType.HITS_FALLING: "the hit rate falls (told to who runs the service)",
    EventType.BEST_REGRESSED: "what is served for an operator became slower",
    EventType.FAILURE_NEW: "something fails for a new cause",
    EventType.STEP_FAILING: "a step of the service fails, or left rows aside (told to who runs the service)",
    EventType.CREDIT_LOW: "your credit ends soon",
    EventType.SPENDING_SUDDEN: "you are charged far more than usual",
    EventType.ALERT_ACKNOWLEDGED: "somebody sees to an alert",
    EventType.ALERT_RESOLVED: "an alert is over",
    EventType.LEDGER_CHARGED: "hits were charged",
    EventType.CREDIT_ADDED: "a payment or credit came in",
    EventType.PAYMENT_REQUIRED: "a hit was withheld until it is paid",
}
"""What can be subscribed to, in words."""

Answer = Callable[[ViewerRequest, Endpoint], HttpResponse]


@require_safe
def webhooks(request: ViewerRequest) -> HttpResponse:
    return _list(request, check_may(request))


@require_http_methods(["GET", "HEAD", "POST"])
def create(request: ViewerRequest) -> HttpResponse:
    """The answer has the secret: it is kept nowhere that could show it again. Links on that answer that
    narrow or export its list lead here by GET, and on to the page."""
    organisation, given = check_may(request), request.POST
    if request.method != "POST":
        return redirect(f"{reverse('webhooks')}?{request.GET.urlencode()}")
    try:
        row, secret = endpoints.create(
            organisation,
            given.get("url", ""),
            description=given.get("description", ""),
            event_types=given.getlist("event_types"),
            form=given.get("form") or BodyForm.STANDARD,
            routing_key=given.get("routing_key", ""),
        )
    except CallerError as error:
        return _list(request, organisation, wrong=str(error), status=getattr(error, "status", 400))
    _note(request, "webhook.create", row)
    return _one(request, row, secret=secret)


@require_safe
def endpoint(request: ViewerRequest, pk: int) -> HttpResponse:
    return _one(request, endpoint_or_404(request, pk))


@require_http_methods(["GET", "HEAD", "POST"])
def act(request: ViewerRequest, pk: int, verb: str) -> HttpResponse:
    """Do one of ``ACTIONS``; what cannot be is said on the page, and nothing typed is lost. GET does nothing
    and leads to the page."""
    row = endpoint_or_404(request, pk)
    if verb not in ACTIONS:
        raise Http404(f"There is no action {verb!r}.")
    if request.method != "POST":
        return redirect(f"{reverse('webhook-endpoint', args=(pk,))}?{request.GET.urlencode()}")
    try:
        answer = ACTIONS[verb](request, row)
    except CallerError as error:
        row.refresh_from_db()
        return _one(request, row, wrong=str(error), status=getattr(error, "status", 400))
    _note(request, f"webhook.{verb}", row)
    return answer


_TRIES = (
    Column("at", "When", "when"),
    Column("status", "Answer"),
    Column("duration_ms", "Took, ms", "quantity"),
    Column("error", "What went wrong"),
    Column("excerpt", "Beginning of the answer", "code"),
)


@require_safe
def delivery(request: ViewerRequest, pk: int) -> HttpResponse:
    """One message to one endpoint: what is sent, and every try."""
    row = delivery_or_404(request, pk)
    tries = list(selectors.attempts(row)[:TRIES_SHOWN])
    table = Table("attempts", "Tries", _TRIES, tries, "It was not tried yet.")
    if (answer := exported(request, table)) is not None:
        return answer
    context = {"delivery": row, "table": table, "body": body_for(row.endpoint, row.message)}
    return render(request, "webhooks/webhook_delivery.html", context)


@require_POST
def replay(request: ViewerRequest, pk: int) -> HttpResponse:
    """Send one message again."""
    row = delivery_or_404(request, pk)
    with refusals_said(request):
        retention.replay(row)
        _note(request, "webhook.replay", row.endpoint, message=row.message.public_id)
        messages.success(request, "It is sent again, under its own id.")
    return redirect("webhook-delivery", pk)


def _types(one: selectors.EndpointStanding) -> str:
    return " ".join(one.endpoint.event_types) or "all"


def _chips(one: selectors.EndpointStanding) -> str:
    chips = format_html_join(
        " ", '<span class="chip">{}</span>', ([name] for name in one.endpoint.event_types)
    )
    return chips or format_html('<span class="muted">{}</span>', "all")


def _since(one: selectors.EndpointStanding) -> datetime | None:
    return None if one.endpoint.disabled_reason else one.endpoint.failing_since


def _table(rows: Sequence[selectors.EndpointStanding], several: bool) -> Table:
    """``several``: of more than one organisation."""
    others: Any = "" if several else "export"
    columns = (
        Column("url", "Address", "name", "endpoint.url", link=page("webhook-endpoint", "endpoint.pk")),
        Column("organisation", "Organisation", value="endpoint.organisation.name", only=others),
        Column("description", "What for", value="endpoint.description", under="url"),
        Column("event_types", "Events", value=_types, show=_chips, room_px=140),
        Column("state", "State", "badge", label="State"),
        Column("reason", value="endpoint.disabled_reason", under="state", only="page"),
        Column("since", "", "when", _since, say="since {}", under="state", only="page"),
        Column("pending", "Waiting", "count", figure="webhooks_waiting"),
        Column("failed", "Failed", "count", figure="webhooks_failed"),
        *exports("created_at", of="endpoint"),
        Column("test", "Actions", "actions", part="webhooks/_test.html", css="number", only="page"),
    )
    return Table("endpoints", "Endpoints", columns, rows, css="stacks")


def _list(
    request: ViewerRequest, organisation: Organisation, *, wrong: str = "", status: int = 200
) -> HttpResponse:
    viewer = request.viewer
    rows = selectors.endpoints(viewer)
    table = _table(rows, several=viewer.sees_all and viewer.focus is None)
    narrowed = shown(request)
    page = page_of(request, selectors.deliveries(viewer, narrowed))
    deliveries = deliveries_table(request, narrowed, page.object_list)
    if (answer := exported(request, deliveries, table)) is not None:
        return answer
    context = {
        "organisation": organisation,
        "endpoints": rows,
        "endpoints_table": table,
        "wrong": wrong,
        "given": request.POST,
        "chosen_types": request.POST.getlist("event_types"),
        "chosen_form": request.POST.get("form", ""),
        **_deliveries(narrowed, page, deliveries),
    }
    return _answer(request, "webhooks/webhooks.html", context, status)


def _one(
    request: ViewerRequest, row: Endpoint, *, secret: str = "", wrong: str = "", status: int = 200
) -> HttpResponse:
    narrowed = shown(request, row.pk)
    page = page_of(request, selectors.deliveries(request.viewer, narrowed))
    table = deliveries_table(request, narrowed, page.object_list, of_one=True)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "endpoint": row,
        "state": selectors.state_of(row),
        "secret": secret,
        "old_until": selectors.old_secret_until(row),
        "wrong": wrong,
        "given": request.POST if wrong else {},
        "chosen_types": request.POST.getlist("event_types") if wrong else row.event_types,
        "chosen_form": row.form,
        "filter_path": request.path,
        **_deliveries(narrowed, page, table),
    }
    return _answer(request, "webhooks/webhook_endpoint.html", context, status)


def _deliveries(narrowed: Any, page: Any, table: Table) -> dict[str, Any]:
    return {
        "narrowed": narrowed,
        "chosen": narrowed.during,
        "ranges": RANGES,
        "page": page,
        "table": table,
        "states": DeliveryState.values,
        "event_types": EventType.values,
        "meanings": MEANINGS.items(),
        "forms": BodyForm.choices,
    }


def _answer(request: ViewerRequest, template: str, context: dict[str, Any], status: int) -> HttpResponse:
    answer = answer_of(request, template, "webhooks/_webhook_deliveries.html", context)
    answer.status_code = status
    answer["Cache-Control"] = "no-store"  # it may have a secret
    return answer


def _edit(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    given = request.POST
    endpoints.change(
        row,
        url=given.get("url", row.url),
        description=given.get("description", ""),
        event_types=given.getlist("event_types"),
        form=given.get("form") or row.form,
        routing_key=given.get("routing_key", ""),
    )
    return _done(request, row, "Saved.")


def _rotate(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    return _one(request, row, secret=endpoints.rotate(row))


def _test(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    message = endpoints.test(row)
    return _done(request, row, f"A test is on its way: {message.public_id}.")


def _disable(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    endpoints.disable(row, request.POST.get("reason", "").strip()[:300] or "Disabled by hand.")
    return _done(request, row, "It gets nothing more; what waits is kept.")


def _enable(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    endpoints.enable(row)
    return _done(request, row, "It is sent to again, what waits first. Replay what it missed meanwhile.")


def _delete(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    Endpoint.objects.get(pk=row.pk).delete()
    messages.success(request, f"{row.url} was deleted.")
    return redirect("webhooks")


def _replay_since(request: ViewerRequest, row: Endpoint) -> HttpResponse:
    since = parse_range({"since": request.POST.get("since", "") or "nothing"}).since
    failed_only = bool(request.POST.get("failed_only"))
    count = retention.replay_since(row, since, failed_only=failed_only)
    return _done(request, row, f"{count} message{' is' if count == 1 else 's are'} sent again.")


def _done(request: ViewerRequest, row: Endpoint, said: str) -> HttpResponse:
    messages.success(request, said)
    return redirect("webhook-endpoint", row.pk)


ACTIONS: dict[str, Answer] = {
    "edit": _edit,
    "rotate": _rotate,
    "test": _test,
    "disable": _disable,
    "enable": _enable,
    "delete": _delete,
    "replay": _replay_since,
}


def _note(request: ViewerRequest, action: str, row: Endpoint, **detail: Any) -> None:
    audit.note(request, action=action, subject=row.url, organisation=row.organisation, detail=detail)
