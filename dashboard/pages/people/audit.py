"""The audit log: who did what, when, from where."""

from __future__ import annotations

import json

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.models import AuditEntry
from catalog.people import audited
from catalog.timerange import RANGES
from catalog.viewing import ADMINISTER
from dashboard.web.asked import takes, text_of
from dashboard.web.paging import asked_page
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported, read

PAGE_SIZE = 100
EXPORTED = 10_000


def _detail(one: AuditEntry) -> str:
    return json.dumps(one.detail, sort_keys=True, ensure_ascii=False) if one.detail else ""


_COLUMNS = (
    Column("at", "When", "when"),
    Column("actor", "Who"),
    Column("action", "What", "code", room_px=170),
    Column("subject", "To what"),
    Column("organisation", "Organisation", value=lambda one: read(one, "organisation.name") or ""),
    Column("detail", "Detail", value=_detail, room_px=140),
    Column("address", "From", "code"),
    Column("request_id", "Request", "code", room_px=266),
)


@require_safe
def audit_log(request: ViewerRequest) -> HttpResponse:
    viewer = request.viewer
    if not (viewer.may(ADMINISTER) or any(ADMINISTER in allowed for allowed in viewer.roles.values())):
        raise PermissionDenied("Only administrators see the audit log.")
    takes(request, "actor", "action")
    during = range_of(request, "7d")
    actor, action = (text_of(request, name, 100) for name in ("actor", "action"))
    rows = audited.narrowed(audited.entries(viewer), actor=actor, action=action, during=during)
    page = asked_page(request, Paginator(rows, PAGE_SIZE))
    every = rows[:EXPORTED].iterator() if "export" in request.GET else None
    table = Table(
        "audit",
        "Audit log",
        _COLUMNS,
        list(page.object_list),
        empty="Nothing was done in this time.",
        every=every,
    )
    if (answer := exported(request, table)) is not None:
        return answer
    context = {"table": table, "page": page, "range": during, "ranges": RANGES, "actor": actor,
               "action": action}  # fmt: skip
    return render(request, "people/audit.html", context)
