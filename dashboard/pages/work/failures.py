"""Failures as issues: failed trials by cause, compilers' messages, and trying them again."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import Unknown
from catalog.viewing import Viewer
from dashboard.web.asked import one_of, sort_of, takes, text_of
from dashboard.web.paging import answer_of, exportable, page_of
from dashboard.web.requests import ViewerRequest, refusals_said
from dashboard.web.tables import Column, Table, exported, exports, operator_column, page
from tuning.conf import conf
from tuning.failures import again, selectors
from tuning.failures.forgetting import forgotten
from tuning.failures.selectors import FailureFilters
from tuning.models import FailureGroup, FailurePlace, Trial
from tuning.queue.permissions import NotAllowed
from tuning.withheld import shown_trials

LINES_SHOWN = 12
"""Lines of a message that are shown; the rest is folded."""


@dataclass(frozen=True)
class FailedWords:
    """The output of one trial of a group."""

    title: str
    trial: Trial

    @property
    def is_long(self) -> bool:
        said = self.trial.detail
        return said.count("\n") >= LINES_SHOWN or len(said) > LINES_SHOWN * 120


def _routes(row: FailureGroup | FailurePlace) -> str:
    return ", ".join(row.routes)


_GROUPS = (
    Column("reason", "Cause", link=page("failure"), css="wide-text lead break"),
    Column("routes", "Routes", value=_routes, under="reason"),
    Column("status", "What happened", "badge", label="What happened"),
    Column("trials", "Trials", "count", sort="trials"),
    Column("operators", "Operators", "count", sort="operators"),
    Column("first_at", "First seen", "when", sort="first"),
    Column("last_at", "Last seen", "when", sort="last"),
    *exports("id", "scope"),
)
_PLACES = (
    operator_column("operator", of="exploration.operator"),
    Column("capability", "Where", "code", "exploration.target.capability"),
    Column("routes", "Routes", value=_routes),
    Column("trials", "Trials", "count"),
    Column("last_at", "Last seen", "when"),
    Column("state", "Exploration", "badge", "exploration.state", link=page("exploration", "exploration_id")),
)


@require_safe
def failures(request: ViewerRequest) -> HttpResponse:
    """Every cause, the latest seen first."""
    takes(request, "q", "status", "sort")
    asked = FailureFilters(
        q=text_of(request),
        status=one_of(request, "status", selectors.STATUSES),
        sort=sort_of(request, selectors.SORTS, "-last"),
    )
    found = selectors.groups(request.viewer, asked)
    shown = page_of(request, found)
    every = exportable(found) if "export" in request.GET else None
    table = Table("failures", "Failures by cause", _GROUPS, list(shown.object_list), every=every)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "table": table,
        "page": shown,
        "filters": asked,
        "narrowed": bool(asked.q or asked.status),
        "kept_days": conf().failures_days,
        "kept_most": conf().failures_most,
        "forgotten": forgotten(request.viewer),
        "statuses": [(name, name.replace("_", " ")) for name in selectors.STATUSES],
    }
    return answer_of(request, "work/failures.html", "work/_failures_results.html", context)


@require_safe
def failure(request: ViewerRequest, pk: int) -> HttpResponse:
    """One cause: the message, and whom it struck."""
    group = _found(request, pk)
    found = selectors.places(group)
    shown = page_of(request, found)
    every = exportable(found) if "export" in request.GET else None
    table = Table("places", "Whom it struck", _PLACES, list(shown.object_list), every=every)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "group": group,
        "words": _words(group, request.viewer),
        "table": table,
        "page": shown,
        "may_try": again.may_try(request.viewer, group),
    }
    return answer_of(request, "work/failure.html", "work/_failure_places.html", context)


def _words(group: FailureGroup, viewer: Viewer) -> list[FailedWords]:
    """Of the latest trial and of the first, if they are kept and differ."""
    shown_trials(viewer, again.trials_of(group))
    trials = {"The latest": group.latest, "The first": group.first if group.first != group.latest else None}
    return [FailedWords(title, trial) for title, trial in trials.items() if trial is not None]


@require_POST
def try_again(request: ViewerRequest, pk: int) -> HttpResponse:
    """Have the group's candidates tried again, through the queues."""
    with refusals_said(request):
        try:
            came = again.try_again(request.viewer, pk, request.user.get_username())
        except NotAllowed as error:
            raise PermissionDenied(str(error)) from error
        except Unknown as error:
            raise Http404(str(error)) from error
        again.audit(request, _found(request, pk), came)
        said = f"{came.asked} exploration{'' if came.asked == 1 else 's'} will try this again"
        messages.success(
            request, f"{said}; {came.left} more can be asked later." if came.left else f"{said}."
        )
    return redirect("failure", pk)


def _found(request: ViewerRequest, pk: int) -> FailureGroup:
    try:
        return again.found(request.viewer, pk)
    except Unknown as error:
        raise Http404(str(error)) from error
