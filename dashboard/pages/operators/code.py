"""The code of one implementation: to read, to copy, to download; not where it is withheld until paid."""

from __future__ import annotations

from typing import Any

from django.http import FileResponse, Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from catalog.best.artifacts import file_path
from catalog.best.vouching import check_whole
from catalog.charging import withheld
from catalog.errors import StoreError
from catalog.models import Implementation
from dashboard.pages.operators import code_selector as reading
from dashboard.pages.operators.assembly import machine_code
from dashboard.web.asked import say_unknown, takes
from dashboard.web.requests import ViewerRequest, number_in

OTHERS_SHOWN = 100
_SUFFIXES = {"schedule": "txt", "source": "txt", "machine_code": "txt", "recipe": "json", "manifest": "json"}


@require_safe
def code(request: ViewerRequest, key: str, implementation_id: int) -> HttpResponse:
    """Source, schedule, machine code, recipe, manifest, files: a part of the operator's page, or a page."""
    row = _found(request, key, implementation_id)
    terms = withheld(_organisation(request), row)
    context = {
        "operator": row.operator,
        "implementation": row,
        "measurement": row.measurements.defer("samples_us").order_by("-created_at", "-pk").first(),
        "terms": terms,
        "texts": [] if terms else reading.texts(row),
        "machine_code": None if terms else machine_code(row),
        "descriptions": [] if terms else reading.descriptions(row),
        "files": [] if terms else reading.files(row),
    }
    if not request.htmx:
        context |= _compared(request, row, key, may_read=not terms)
    template = "operators/_operator_code.html" if request.htmx else "operators/operator_code.html"
    # What htmx asks for is a part of a page that has its own status; alone, withheld code is 402.
    status = 402 if terms and not request.htmx else 200
    response = render(request, template, context, status=status)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _compared(request: ViewerRequest, row: Implementation, key: str, may_read: bool) -> dict[str, Any]:
    """The other implementations, and the difference to the one that is asked for, unless it is withheld."""
    seen = Implementation.objects.filter(request.viewer.shown(), operator__key=key).exclude(pk=row.pk)
    seen = seen.select_related("environment").order_by("method", "route", "label", "pk")
    others = list(seen[:OTHERS_SHOWN])
    takes(request, "against")
    number = number_in(request.GET.get("against", ""))
    if number is None:
        say_unknown(request, "against", " of this operator", "implementation")
    if number is None or not may_read:
        return {"others": others if may_read else []}
    other = _found(request, key, number)
    held = withheld(_organisation(request), other)
    differences = [] if held else reading.difference(row, other)
    return {"others": others, "other": other, "other_held": held, "differences": differences}


@require_safe
def raw(request: ViewerRequest, key: str, implementation_id: int, part: str) -> HttpResponse:
    """One text as it is, whole, as a download."""
    row = _found(request, key, implementation_id)
    if terms := withheld(_organisation(request), row):
        return HttpResponse(terms.sentence, status=402, content_type="text/plain; charset=utf-8")
    text = reading.raw(row, part)
    if not text:
        raise Http404(f"This implementation has no {part}.")
    answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
    name = f"{row.route}-{row.pk}-{part}.{_SUFFIXES[part]}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@require_safe
def held_file(
    request: ViewerRequest, key: str, implementation_id: int, name: str
) -> HttpResponse | FileResponse:
    """One of the artifact's files, as a download."""
    row = _found(request, key, implementation_id)
    if terms := withheld(_organisation(request), row):
        return HttpResponse(terms.sentence, status=402, content_type="text/plain; charset=utf-8")
    sha256 = row.artifact.manifest.get("files", {}).get(name)
    if sha256 is None:
        raise Http404("The artifact has no file by this name.")
    try:
        check_whole(row.artifact, name)
    except StoreError as error:
        return HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    opened = file_path(sha256).open("rb")
    return FileResponse(opened, as_attachment=True, filename=name, content_type="application/octet-stream")


def _found(request: ViewerRequest, key: str, number: int) -> Implementation:
    seen = Implementation.objects.filter(request.viewer.shown(), operator__key=key)
    return get_object_or_404(
        seen.select_related("operator", "artifact", "environment", "machine_code"), pk=min(number, 2**63 - 1)
    )


def _organisation(request: ViewerRequest) -> int | None:
    payer: int | None = request.viewer.payer
    return payer
