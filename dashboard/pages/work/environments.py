"""Environments: which versions count on which target, declaring others, and what became of the bests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from catalog.best.damage import damaged
from catalog.best.scrubbing import scrub_pass
from catalog.models import Implementation, Target
from catalog.viewing import OPERATE
from dashboard.web.requests import ViewerRequest
from opatlas.errors import CallerError
from tuning.environments import declaring, revalidation
from tuning.environments import known as environments
from tuning.models import Revalidation, RevalidationVerdict, Worker

SHOWN = 12
BESTS_SHOWN = 40

# Verdict → the state whose mark it has (dashboard.templatetags.opatlas.badge).
MARKS = {
    RevalidationVerdict.WAITING: "waiting",
    RevalidationVerdict.RESTORED: "done",
    RevalidationVerdict.BETTER: "ok",
    RevalidationVerdict.SAME: "unknown",
    RevalidationVerdict.WORSE: "noisy",
    RevalidationVerdict.FAILED: "failed",
}


@dataclass(frozen=True)
class Run:
    """One declaration with what came of it so far."""

    row: Revalidation
    report: revalidation.RevalidationReport
    bests: list[tuple[revalidation.Revalidated, str]]  # with the mark of each one's verdict


@require_safe
def environments_page(request: ViewerRequest) -> HttpResponse:
    rows = list(Revalidation.objects.select_related("target", "before", "after").order_by("-pk")[:SHOWN])
    limits = {
        row.pk: BESTS_SHOWN if number == 0 or row.finished_at is None else 8
        for number, row in enumerate(rows)
    }
    reports = revalidation.reports(limits, request.viewer.scopes)
    context = {
        "standings": environments.route_environments(),
        "runs": [_run(row, reports[row.pk]) for row in rows],
        "store": _store(request.viewer.scopes),
    }
    return render(request, "work/environments.html", context)


@require_POST
def declare(request: ViewerRequest) -> HttpResponse:
    """Declare what a worker brings (one route, or all), or an environment by its digest."""
    if not request.viewer.may(OPERATE):
        raise PermissionDenied("Only operators of the service declare environments.")
    given, by = request.POST, request.user.get_username()
    try:
        if worker := given.get("worker"):
            routes = [given["route"]] if given.get("route") else None
            found = get_object_or_404(Worker.objects.select_related("target"), name=worker)
            rows = declaring.declare_worker(found, by, routes)
        else:
            target = get_object_or_404(Target, key=given.get("target", ""))
            row = declaring.declare_known(target, given.get("route", ""), given.get("environment", ""), by)
            rows = [row] if row else []
    except CallerError as error:
        messages.error(request, str(error))
    else:
        for row in rows:
            messages.success(request, f"Declared: {row}. {revalidation.report(row, limit=0)}.")
        if not rows:
            messages.info(request, "Declared already: nothing was changed.")
    return redirect("environments")


def _store(scopes: Collection[str] | None) -> dict[str, object]:
    """How many artifacts are damaged, those that the viewer may see, and how far comparing has come."""
    rows = Implementation.objects.filter(artifact__in=damaged(), revoked_at=None, failed_at=None)
    seen = rows if scopes is None else rows.filter(scope__in=scopes)
    related = ("artifact", "operator", "target")
    shown = seen.select_related(*related).defer("operator__graph", "source", "schedule")
    return {
        "count": seen.values("artifact").distinct().count(),
        "damaged": shown.order_by("artifact__damaged_at", "pk")[:SHOWN],
        "scrubbed": scrub_pass(),
    }


def _run(row: Revalidation, report: revalidation.RevalidationReport) -> Run:
    return Run(row, report, [(one, MARKS[RevalidationVerdict(one.verdict)]) for one in report.rows])
