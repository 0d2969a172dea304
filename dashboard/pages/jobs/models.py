"""Pages of models: upload one (ONNX or an operator list), see which operators are known and what that is
worth."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.default_names import default_name
from catalog.models import MissState, Model, Organisation, Target
from catalog.registry import default_organisation
from catalog.selectors.jobs import WITHHELD
from catalog.selectors.listing import STATUS_OF_MISS
from catalog.viewing import Viewer
from dashboard.pages.jobs import tables
from dashboard.pages.jobs.plans import plan_card
from dashboard.pages.jobs.timelines import timeline_card, trace_asked
from dashboard.pages.jobs.uploads import on_their_way
from dashboard.web import wording
from dashboard.web.asked import takes
from dashboard.web.charts import models as model_charts
from dashboard.web.charts.drawing import METHODS, shortened
from dashboard.web.live import Part
from dashboard.web.paging import asked_page, exportable, page_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import exported
from opatlas.errors import OpatlasError
from tuning import ingest
from tuning.models import Exploration, State
from tuning.statistics.models import coverage as coverage_of
from tuning.statistics.models import saved_us
from tuning.uploads.intake import UploadWish, receive
from tuning.uploads.models import Upload

ROWS_SHOWN = 100
"""Rows of a report on the page, the most expensive operators first; the export has all."""
NARROW_ROWS = 12
"""Rows on a narrow screen before somebody asks for all."""

MAX_BYTES = 128 << 20
CHART_ROWS = 24
SAMPLE_NAME = "ResNet-50 (sample)"
_DIM = re.compile(r"\s*([A-Za-z_][\w.\-/:]*)\s*=\s*([1-9]\d{0,8})\s*")


class ModelForm(forms.Form):
    """A model file and what it takes to understand it."""

    file = forms.FileField(
        label="ONNX model or operator list",
        help_text="An .onnx file of up to 128 MB (weights are not needed), or operator records as JSON.",
    )
    name = forms.CharField(
        label="Name", max_length=200, required=False, help_text="The file's name otherwise."
    )
    dims = forms.CharField(
        label="Symbolic dimensions",
        required=False,
        help_text="Where the model has any: <code>batch=1, seq=128</code>",
    )
    target = forms.ModelChoiceField(
        Target.objects.none(), label="Target", required=False, empty_label="One that a worker serves now"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        served_first = Target.objects.order_by("-served_until", "capability").defer("description")
        self.fields["target"].queryset = served_first  # type: ignore[attr-defined]

    def clean_file(self) -> Any:
        given = self.cleaned_data["file"]
        if given.size > MAX_BYTES:
            raise forms.ValidationError(
                f"The file has {given.size:,} bytes; at most {MAX_BYTES:,} can be read."
            )
        return given

    def clean_dims(self) -> dict[str, int]:
        dims = {}
        for part in filter(str.strip, self.cleaned_data["dims"].split(",")):
            match = _DIM.fullmatch(part)
            if match is None:
                raise forms.ValidationError(
                    f"“{part.strip()}” is no dimension; it looks like batch=1, seq=128."
                )
            dims[match[1]] = int(match[2])
        return dims


@require_http_methods(["GET", "HEAD", "POST"])
def models(request: ViewerRequest) -> HttpResponse:
    form = ModelForm(request.POST or None, request.FILES or None)
    viewer = request.viewer
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data["file"]
        try:
            row = _take_in(
                given.read,
                form.cleaned_data["name"] or given.name,
                viewer,
                target=form.cleaned_data["target"],
                dims=form.cleaned_data["dims"],
            )
        except OpatlasError as error:
            form.add_error(None, str(error))
        else:
            return redirect("upload", row.pk)
    found = Model.objects.select_related("target", "setting").defer("target__description")
    found = found.filter(viewer.owned()).order_by("-created_at", "-pk")
    counted = found.annotate(operator_count=Count("operators"))
    page = page_of(request, counted)
    table = tables.models_table(list(page.object_list), exportable(counted))
    if request.method != "POST" and (answer := exported(request, table)) is not None:
        return answer
    refused = 400 if request.method == "POST" else 200
    context = {"form": form, "page": page, "table": table, "uploads": on_their_way(viewer)}
    return render(request, "jobs/models.html", context, status=refused)


@require_POST
def sample(request: ViewerRequest) -> HttpResponse:
    """Take the sample ResNet-50 apart: one click from an empty catalogue to a report."""
    try:
        row = _take_in(BytesIO(ingest.sample_graph("resnet50")).read, SAMPLE_NAME, request.viewer)
    except OpatlasError as error:
        messages.error(request, str(error))
        return redirect("models")
    return redirect("upload", row.pk)


@require_safe
def model(request: ViewerRequest, pk: int) -> HttpResponse:
    """The report; htmx asks for its figures again while operators are still explored."""
    owned = Model.objects.filter(request.viewer.owned())
    row = get_object_or_404(owned.select_related("target", "setting", "organisation"), pk=pk)
    report = ingest.model_report(row)
    totals = report.totals
    states = _states(report)
    coverage = coverage_of(report, states)
    missing = tables.missing_table(coverage)
    page = asked_page(request, Paginator(report.rows, ROWS_SHOWN))
    table = tables.model_operators_table(list(page.object_list), report.rows, states, NARROW_ROWS)
    takes(request, "passes")
    passes = request.GET.get("passes", "")
    plan, run = plan_card(report, passes), timeline_card(row)
    if (answer := trace_asked(request.GET, run)) is not None:
        return answer
    told = (run.table, run.rows) if run is not None else ()
    if (answer := exported(request, table, missing, plan.table, *told)) is not None:
        return answer
    pending = sum(state in ("exploring", "waiting") for state in states.values())
    timed = [one for one in report.rows if one.default_us is not None]
    context = {
        "model": row,
        "report": report,
        "totals": totals,
        "coverage": coverage,
        "missing": missing,
        "plan": plan,
        "run": run,
        "host": request.build_absolute_uri("/").rstrip("/"),
        "saved_us": saved_us(report),
        "page": page,
        "table": table,
        "first_rows": NARROW_ROWS,
        "parts": _parts(timed),
        "chart": model_charts.model_time([_bar(one) for one in timed[:CHART_ROWS]]) if timed else None,
        "chart_rows": min(len(timed), CHART_ROWS),
        "timed": len(timed),
        "pending": pending,
        "moving": bool(pending) or _explored_now(row),
        "served": row.target.served_until is not None and row.target.served_until > timezone.now(),
    }
    moving = context["moving"] and context["served"]
    asked = {"page": page.number if page.number > 1 else "", "passes": passes}
    query = urlencode({name: value for name, value in asked.items() if value})
    path = f"{request.path}?{query}" if query else request.path
    part = Part(request, "jobs/_model_report.html", context, path=path, every_s=4 if moving else None)
    if request.htmx:
        return part.response()
    return render(request, "jobs/model.html", context | {"live": part.html})


def _take_in(read: Callable[[int], bytes], name: str, viewer: Viewer, **wishes: Any) -> Upload:
    """For the organisation that the viewer looks at; the host's own if that is all of them."""
    owner = default_organisation()
    if viewer.focus is not None:
        owner = Organisation.objects.get(pk=viewer.focus)
    wish = UploadWish(name=ingest.checked_name(name), **wishes)
    return receive(read, wish, owner, None, MAX_BYTES)


def _states(report: ingest.ModelReport) -> dict[int, str]:
    """Operator → the state of its miss, for those whose exploration has no result yet."""
    return {
        one.operator.pk: STATUS_OF_MISS[MissState(one.miss_state)]
        for one in report.rows
        if one.miss_state not in ("", MissState.EXPLORED) and one.status != WITHHELD
    }


def _explored_now(row: Model) -> bool:
    explorations = Exploration.objects.filter(
        operator__models__model=row, target=row.target_id, setting=row.setting_id
    )
    return explorations.filter(state__in=(State.RUNNING, State.QUEUED)).exists()


def _parts(timed: list) -> list[dict[str, Any]]:
    """The model's default time as 100 %: the remaining time by method, and the saved time."""
    whole = sum(one.default_us * one.calls for one in timed)
    if not whole:
        return []
    left: dict[str, float] = {}
    for one in timed:
        now_us = one.default_us if one.median_us is None else min(one.median_us, one.default_us)
        left[one.method or "none"] = left.get(one.method or "none", 0.0) + now_us * one.calls
    made, start = [], 0.0
    saved = max(whole - sum(left.values()), 0.0)
    for method in (*METHODS, "none", "saved"):
        us = saved if method == "saved" else left.get(method, 0.0)
        if us:
            share = us / whole
            made.append(
                {"method": method, "us": us, "share": share, "start": start * 100, "width": share * 100}
            )
            start += share
    return made


def _bar(one: Any) -> model_charts.Bar:
    now_us = one.default_us if one.median_us is None else min(one.median_us, one.default_us)
    name = one.operator.summary
    via = f"{one.route}: {one.label}" if one.route else default_name()
    return model_charts.Bar(
        name=shortened(name, 58),
        method=one.method or "",
        now_us=now_us * one.calls,
        saved_us=(one.default_us - now_us) * one.calls,
        hover=f"{name}<br>{one.calls} calls × {wording.duration_us(now_us)} ({via})",
    )
