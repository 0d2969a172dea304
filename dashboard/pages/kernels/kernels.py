"""Pages of hand-written kernels: the list, submitting and editing, a version's evidence, and decisions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.charging import Terms
from catalog.models import Organisation
from catalog.registry import default_organisation
from dashboard.pages.kernels import selectors as rows
from dashboard.pages.kernels.forms import KernelForm, allowed_flags, filled_from
from dashboard.web.asked import takes
from dashboard.web.charts.drawing import METHODS
from dashboard.web.highlighting import highlighted
from dashboard.web.live import Part
from dashboard.web.paging import asked_page
from dashboard.web.requests import ViewerRequest
from opatlas.errors import CallerError
from tuning.failures.reasons import reason_of
from tuning.kernels import selectors, services
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import Kernel, KernelVersion, VersionState

PAGE_SIZE = 50
EVALUATIONS_DRAWN = 8
_LEXERS = {"c": "c", "c++": "cpp", "cuda": "cuda"}
MOVING = (VersionState.SUBMITTED, VersionState.BUILDING)
DECISIONS: dict[str, Callable[..., KernelVersion]] = {
    "approve": services.approve,
    "evaluate": services.evaluate_again,
    "reject": services.reject,
    "revoke": services.revoke,
}
_SAID = {
    "approve": "approved: it enters the contest of every operator that it matches",
    "evaluate": "queued for another evaluation",
    "reject": "rejected",
    "revoke": "revoked: what it led falls back to the next best",
}


@require_safe
def kernels(request: ViewerRequest) -> HttpResponse:
    page = asked_page(request, Paginator(selectors.kernels_seen(_sight(request)), PAGE_SIZE))
    context = {
        "page": page,
        "wins": rows.wins(list(page.object_list)),
        "waiting": selectors.waiting_for(_user(request)),
    }
    return render(request, "kernels/kernels.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def submit(request: ViewerRequest) -> HttpResponse:
    """A new kernel. A name that is taken is refused here: an edit is made on the kernel's own page."""
    organisation = _organisation(request)
    if organisation is None:
        raise PermissionDenied("Kernels are submitted by operators, approvers and admins of an organisation.")
    takes(request, "example")
    form = KernelForm(
        request.POST if request.method == "POST" else None,
        initial={"example": request.GET.get("example", "")},
    )
    if request.method == "POST":
        form.full_clean()
        name = form.cleaned_data.get("name")
        if name and Kernel.objects.filter(organisation=organisation, name=name).exists():
            form.refuse("There is a kernel of this name: edit that one, or take another name.", "name")
        if form.is_valid() and (version := _submitted(request, form, None, organisation)):
            return redirect("kernel-version", version.kernel_id, version.number)
    return _form(request, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: ViewerRequest, pk: int) -> HttpResponse:
    """Another version of a kernel; it takes the place of the one before and voids its approval."""
    kernel = _kernel(request, pk)
    viewer = request.viewer
    if why_not := services.may_edit(_user(request), kernel):
        raise PermissionDenied(why_not)
    if not viewer.sees_all and not viewer.roles.get(kernel.organisation_id):
        raise PermissionDenied(f"You may not change what {kernel.organisation} owns: ask its administrator.")
    current = kernel.current
    if current is None:
        raise Http404("The kernel has no version.")
    data = {**request.POST.dict(), "name": kernel.name} if request.method == "POST" else None
    form = KernelForm(data, initial=filled_from(current))
    form.fields["name"].disabled = True
    if (
        data is not None
        and form.is_valid()
        and (version := _submitted(request, form, kernel, kernel.organisation))
    ):
        return redirect("kernel-version", version.kernel_id, version.number)
    return _form(request, form, current)


@require_safe
def kernel(request: ViewerRequest, pk: int) -> HttpResponse:
    """The newest version that may be seen."""
    found = _kernel(request, pk)
    return redirect("kernel-version", pk, found.latest_number)  # type: ignore[attr-defined]


@require_safe
def version(request: ViewerRequest, pk: int, number: int) -> HttpResponse:
    return _evidence(request, _version(request, pk, number))


@require_safe
def standing(request: ViewerRequest, pk: int, number: int) -> HttpResponse:
    """How the version does in the contests that it entered: a part of its page."""
    found = _version(request, pk, number)
    standing = _standing(found, whole=not _withheld(request, found))
    return render(request, "kernels/_kernel_standing.html", standing)


@require_POST
def decide(request: ViewerRequest, pk: int, number: int, verb: str) -> HttpResponse:
    """Approve, reject, revoke, or evaluate again, with a reason. If that is impossible, the page says so and
    keeps the reason and the ticks."""
    found = _version(request, pk, number)
    if verb not in DECISIONS:
        raise Http404(f"There is no decision {verb!r}.")
    looked_at = dict(one.partition(":")[::2] for one in request.POST.getlist("looked_at"))
    more = {"looked_at": looked_at} if verb == "approve" else {}
    try:
        DECISIONS[verb](found, user=_user(request), reason=request.POST.get("reason", ""), **more)
    except CallerError as error:
        found.refresh_from_db()
        status = getattr(error, "status", 400)
        said = {"refused": str(error), "reason": request.POST.get("reason", ""), "ticked": looked_at}
        return _evidence(request, found, said, status)
    messages.success(request, f"{found.label} is {_SAID[verb]}.")
    return redirect("kernel-version", pk, number)


def _evidence(
    request: ViewerRequest, found: KernelVersion, said: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    user = _user(request)
    moving = found.state in MOVING
    terms = _withheld(request, found)
    context = {
        **_evaluations(found, whole=not terms),
        **({} if terms else _texts(found, _sight(request))),
        **_standing(found, whole=not terms),
        **({} if terms else _dossier(found, (said or {}).get("ticked", {}))),
        **({"terms": terms, "build_log": ""} if terms else {}),
        "kernel": found.kernel,
        "version": found,
        "steps": rows.steps(found),
        "moving": moving,
        "why_not": services.may_decide(user, found),
        "may_ask_again": not services.may_edit(user, found.kernel) and not services.why_not_again(found),
        "history": list(selectors.history_of(found.kernel, _sight(request))),
        "methods": METHODS,
        **(said or {}),
    }
    path = reverse("kernel-version", args=(found.kernel_id, found.number))
    part = Part(request, "kernels/_kernel_evidence.html", context, path=path, every_s=2 if moving else None)
    if request.htmx:
        return part.response()
    context |= {
        "live": part.html,
        "versions": list(
            found.kernel.versions.filter(_sight(request).versions())
            .order_by("-number")
            .only("number", "state", "kernel_id")
        ),
        "may_edit": not services.may_edit(user, found.kernel),
    }
    return render(request, "kernels/kernel.html", context, status=402 if terms and status == 200 else status)


def _withheld(request: ViewerRequest, found: KernelVersion) -> Terms | None:
    """Why its source is hidden from the viewer. The page's row has nothing of it either then."""
    terms = selectors.source_withheld(found, _sight(request), request.viewer.payer)
    if terms:
        selectors.leave_out(found)
    return terms


def _evaluations(found: KernelVersion, whole: bool) -> dict[str, Any]:
    """``whole``: with compilers' messages, which quote the source."""
    evaluations = list(selectors.evaluations_of(found))
    for one in () if whole else evaluations:
        one.detail, one.log_tail = reason_of(one.detail), ""
    timed = [one for one in evaluations if one.ratio_to_default is not None]
    against = rows.against_incumbents(timed)
    logs = [one.log_tail for one in evaluations if one.log_tail.strip()]
    return {
        "evaluations": evaluations,
        "timed": timed,
        "drawn": [(one, rows.chart(one)) for one in evaluations if one.times][:EVALUATIONS_DRAWN],
        "build_log": logs[-1] if logs else "",
        "fastest": max(timed, key=lambda one: one.ratio_to_default or 0.0, default=None),
        "raced": len(against),
        "verdicts": Counter(one.verdict for one in against.values()),
        "against": against,
        "worst": max(
            (one for one in evaluations if one.max_error is not None),
            key=lambda one: (one.max_error or 0.0) / (one.tolerance or 1.0),
            default=None,
        ),
    }


def _texts(found: KernelVersion, sight: selectors.Sight) -> dict[str, Any]:
    diff = selectors.source_diff(found, sight)
    return {
        "diff": highlighted(diff, "diff") if diff else None,
        "source": highlighted(found.source, _LEXERS[found.language]),
        "pattern": highlighted(json.dumps(found.pattern, indent=2), "json"),
        "launch": highlighted(json.dumps(found.launch, indent=2), "json") if found.launch else None,
    }


def _dossier(found: KernelVersion, ticked: dict[str, str]) -> dict[str, Any]:
    """The evidence for an approver beside results and times, piece by piece."""
    dossier = Dossier(found)
    return {
        "risks": dossier.risks,
        "tries": dossier.tries,
        "inspections": [rows.inspected(one) for one in dossier.inspections],
        "pieces": rows.pieces(dossier, ticked),
    }


def _standing(found: KernelVersion, whole: bool) -> dict[str, Any]:
    standings = selectors.version_standings(found) if found.approved_at else []
    if not whole:
        standings = [replace(one, detail=reason_of(one.detail)) for one in standings]
    return {"version": found, "standings": standings}


def _submitted(
    request: ViewerRequest, form: KernelForm, edited: Kernel | None, organisation: Organisation
) -> KernelVersion | None:
    """The new version; None if the form now shows errors."""
    submission = form.submission(edited.name if edited else None)
    try:
        return services.submit(submission, user=_user(request), organisation=organisation)
    except CallerError as error:
        form.refuse(str(error), getattr(error, "where", ""))
        return None


def _form(request: ViewerRequest, form: KernelForm, edited: KernelVersion | None) -> HttpResponse:
    refused = 400 if request.method == "POST" else 200
    context = {"form": form, "edited": edited, "flags": allowed_flags()}
    return render(request, "kernels/kernel_form.html", context, status=refused)


def _kernel(request: ViewerRequest, pk: int) -> Kernel:
    return get_object_or_404(selectors.kernels_seen(_sight(request)), pk=pk)


def _version(request: ViewerRequest, pk: int, number: int) -> KernelVersion:
    found = selectors.versions_seen(_sight(request))
    # By its id: a lookup by a relation hands a number beyond 64 bits to the database.
    return get_object_or_404(found, kernel__id=pk, number=number)


def _sight(request: ViewerRequest) -> selectors.Sight:
    return selectors.sight_of(request.user, request.viewer)


def _organisation(request: ViewerRequest) -> Organisation | None:
    """Whose this person's kernels are; None where no role allows any. A superuser without an organisation
    submits for the service."""
    viewer = request.viewer
    if not viewer.may_submit:
        return None
    mine = viewer.submits_for
    return Organisation.objects.get(pk=mine) if mine is not None else default_organisation()


def _user(request: ViewerRequest) -> User:
    assert isinstance(request.user, User)  # the login middleware lets nobody else in
    return request.user
