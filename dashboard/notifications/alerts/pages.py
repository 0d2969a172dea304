"""Alerts: the list, one with its history, and what people do to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import Unknown
from dashboard.notifications.alerts import selectors, steering
from dashboard.notifications.alerts.selectors import AlertFilters
from dashboard.notifications.alerts.steering import MUTES, AlertOrder, NotYours
from dashboard.notifications.models import ALERTING, Alert, AlertDeed, AlertState
from dashboard.web import wording
from dashboard.web.asked import one_of, takes
from dashboard.web.paging import answer_of, exportable, page_of
from dashboard.web.requests import ViewerRequest, number_in, refusals_said
from dashboard.web.tables import Column, Table, exported, exports, page

STATES = (*AlertState.values, "muted")
DEEDS_SHOWN = 200
_PAST = {"acknowledge": "You see to it now.", "mute": "Changed who is told.", "resolve": "It is resolved."}


def _by(row: AlertDeed) -> str:
    return row.by or "the service"


_ALERTS = (
    Column("text", "What", link=page("alert"), css="wide-text lead break"),
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


_SAID_ELSEWHERE = {"since", "charged_for", "currency"}
"""An alert's own time, what stands in tables, and each amount's currency."""
_CHARGED_BY = {
    "operators": ("Operator", "Charged, by operator"),
    "jobs": ("Job", "Charged, by job"),
    "keys": ("API key", "Charged, by API key"),
}


@require_safe
def alerts(request: ViewerRequest) -> HttpResponse:
    """What is wrong now, and what was."""
    takes(request, "state", "rule")
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
        "firing": selectors.open_alerts(request.viewer).firing,
    }
    return answer_of(request, "notifications/alerts.html", "notifications/_alerts_results.html", context)


@require_safe
def alert(request: ViewerRequest, pk: int) -> HttpResponse:
    """One alert: what is known of it, what can be done, and who did what."""
    row = get_object_or_404(Alert.objects.filter(selectors.visible(request.viewer)), pk=pk)
    table = Table("history", "History", _HISTORY, list(selectors.history(row)[:DEEDS_SHOWN]))
    charged = list(_charged_tables(row))
    if (answer := exported(request, table, *charged)) is not None:
        return answer
    context = {
        "alert": row,
        "table": table,
        "facts": list(_facts(row)),
        "charged": charged,
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


def _facts(row: Alert) -> Iterator[tuple[str, str]]:
    """What is known, as people read it; amounts with their currency."""
    for name, value in row.facts.items():
        if name.endswith("_micros"):
            whole = round(value, -4)  # to the hundredth of a unit
            amount = wording.money(whole, row.facts.get("currency", ""))
            yield name.removesuffix("_micros").replace("_", " "), amount
        elif name not in _SAID_ELSEWHERE:
            title = "hardware" if name == "capability" else name.replace("_", " ")
            yield title, wording.state(value) if name == "status" else _said(value)


def _charged_tables(row: Alert) -> Iterator[Table]:
    """What a charge is made of, where the alert is of one."""
    currency = row.facts.get("currency", "")
    for name, (what, title) in _CHARGED_BY.items():
        lines = row.facts.get("charged_for", {}).get(name, [])
        whole = sum(line["micros"] for line in lines)
        rows = [line | {"currency": currency, "share": line["micros"] / whole} for line in lines]
        link = _operator if name == "operators" else None
        columns = (
            Column("id", only="export"),
            Column("name", what, link=link, css="wide-text lead break"),
            Column("uses", "Uses", "count", figure="uses_billed"),
            Column("micros", "Charged", "money", figure="charged"),
            Column("share", "Share", "percent"),
        )
        if rows:
            yield Table(name, title, columns, rows, css="stacks")


def _operator(line: Mapping[str, Any]) -> str:
    return reverse("operator", args=[line["id"]]) if line["id"] else ""


def _said(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
