"""What every figure means and how it is counted."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.figures import GROUPS
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported

_COLUMNS = (
    Column("name", "Name", "code"),
    Column("title", "Figure"),
    Column("unit", "In"),
    Column("meaning", "Meaning"),
    Column("formula", "Counted as"),
    Column("source", "From"),
)


@require_safe
def definitions(request: ViewerRequest) -> HttpResponse:
    rows = [figure for _, figures in GROUPS for figure in figures]
    table = Table("definitions", "Definitions", _COLUMNS, rows)
    if (answer := exported(request, table)) is not None:
        return answer
    groups = [(title, figures) for title, figures in GROUPS if figures]
    return render(request, "overview/definitions.html", {"groups": groups, "table": table})
