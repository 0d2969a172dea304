"""Alerts: the list, one with its history, and what people do to it."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import Unknown
from dashboard.notifications.alerts import selectors, steering
from dashboard.notifications.alerts.selectors import AlertFilters
from dashboard.notifications.alerts.steering import MUTES, AlertOrder, NotYours
from dashboard.notifications.models import ALERTING, Alert, AlertDeed, AlertState
from dashboard.web.asked import check_names, one_of
from dashboard.web.paging import answer_of, exportable, page_of
from dashboard.web.requests import ViewerRequest, number_in, refusals_said
from dashboard.web.tables import Column, Table, exported, exports, page

STATES = (*AlertState.values, "muted")
DEEDS_SHOWN = 200
_PAST = {"acknowledge": "You see to it now.", "mute": "Changed who is told.", "resolve": "It is resolved."}


def _by(row: AlertDeed) -> str:
    return row.by or "the service"


_ALERTS = (
    Column("text", "What", "name", link=page("alert")),
    Column("rule", "Rule", show=lambda row: row.get_rule_display(), under="text"),
    Column("severity", "How bad", "badge", label="How bad"),
    Column("standing", "State", "badge", label="State"),
    Column("acknowledged_by", "", only="page", under="standing", say="by {}"),
    Column("fired_at", "Since", "when"),
    Column("resolved_at", "Resolved", "when", spare=True),
    *exports("id", "cause", "state", "muted_until"),
)
_HISTORY = (
    Column("at", "When", "when"),
    Column("what", "What", "badge"),
    Column("by", "Who", value=_by),
    Column("detail", "Why"),
)


@require_safe
def alerts(request: ViewerRequest) -> HttpResponse:
    """What is wrong now, and what was."""
    check_names(request, "state", "rule")
    asked = AlertFilters(
        one_of(request, "state", STATES), one_of(request, "rule", [one.value for one in ALERTING])
    )
    found = selectors.alerts(request.viewer, asked)
    shown = page_of(request, found)
    every = exportable(found) if "export" in request.GET else None
    table = Table("alerts", "Alerts", _ALERTS, list(shown.object_list), every=every)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "table": table,
        "page": shown,
        "asked": asked,
        "narrowed": bool(asked.state or asked.rule),
        "states": STATES,
        "rules": [(one.value, one.label) for one in ALERTING],
        "firing": selectors.firing(request.viewer),
    }
    return answer_of(request, "notifications/alerts.html", "notifications/_alerts_results.html", context)


@require_safe
def alert(request: ViewerRequest, pk: int) -> HttpResponse:
    """One alert: what is known of it, what can be done, and who did what."""
    row = get_object_or_404(Alert.objects.filter(selectors.visible(request.viewer)), pk=pk)
    table = Table("history", "History", _HISTORY, list(selectors.history(row)[:DEEDS_SHOWN]))
    if (answer := exported(request, table)) is not None:
        return answer
    facts = [(name.replace("_", " "), _said(value)) for name, value in row.facts.items() if name != "since"]
    context = {
        "alert": row,
        "table": table,
        "facts": facts,
        "may_steer": steering.may_steer(request.viewer, row),
        "mutes": MUTES,
    }
    return render(request, "notifications/alert.html", context)


@require_POST
def act(request: ViewerRequest, pk: int, verb: str) -> HttpResponse:
    """Acknowledge, mute or resolve one."""
    if verb not in steering.VERBS:
        raise Http404(f"There is no action {verb[:40]!r}.")
    reason = request.POST.get("reason", "").replace("\0", "").strip()[:200]
    for_s = number_in(request.POST.get("for_s", "")) or 0
    order = AlertOrder(verb, request.user.get_username(), reason, for_s)
    with refusals_said(request):
        try:
            row = steering.act(request.viewer, pk, order)
        except NotYours as error:
            raise PermissionDenied(str(error)) from error
        except Unknown as error:
            raise Http404(str(error)) from error
        steering.audit(request, row, order)
        messages.success(request, _PAST[verb])
    return redirect("alert", pk)


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
