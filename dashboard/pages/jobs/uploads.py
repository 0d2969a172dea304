"""An upload in progress: how far it is, its result, and a button that stops it."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from catalog.viewing import Viewer
from dashboard.web.live import Part
from dashboard.web.requests import ViewerRequest
from tuning.models import Worker
from tuning.queue.clock import alive
from tuning.uploads import intake
from tuning.uploads.models import OPEN, Upload, UploadState

SHOWN = 8


@require_safe
def upload(request: ViewerRequest, pk: int) -> HttpResponse:
    """Progress, asked for again by htmx until it has ended; a model that is done leads to its report."""
    row = get_object_or_404(_seen(request.viewer), pk=pk)
    if row.state == UploadState.DONE and row.model_id is not None:
        return _leads_to(request, reverse("model", args=[row.model_id]))
    context = {
        "upload": row,
        "share": 100 * row.operators_done // row.operators_total if row.operators_total else 0,
        "served": Worker.objects.filter(alive()).exists(),
        "before": _seen(request.viewer).filter(state=UploadState.WAITING, pk__lt=row.pk).count(),
    }
    part = Part(request, "jobs/_upload.html", context, path=request.path, every_s=1 if row.is_open else None)
    if request.htmx:
        return part.response()
    return render(request, "jobs/upload.html", context | {"live": part.html})


@require_POST
def cancel(request: ViewerRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(_seen(request.viewer), pk=pk)
    intake.cancel(row)
    return redirect("upload", row.pk)


def on_their_way(viewer: Viewer) -> list[Upload]:
    """Those that have not become a model: open ones, and the latest that were refused or given up."""
    unread = (*OPEN, UploadState.REFUSED, UploadState.DEAD)
    return list(_seen(viewer).filter(state__in=unread).order_by("-pk")[:SHOWN])


def _seen(viewer: Viewer) -> QuerySet[Upload]:
    return Upload.objects.filter(viewer.owned())


def _leads_to(request: ViewerRequest, address: str) -> HttpResponse:
    return HttpResponse(headers={"HX-Redirect": address}) if request.htmx else redirect(address)
