"""The audit log as somebody may see it."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from catalog.models import AuditEntry
from catalog.timerange import TimeRange
from catalog.viewing import ADMINISTER, Viewer


def entries(viewer: Viewer) -> QuerySet[AuditEntry]:
    """For admins of the host all (or those of the organisation looked at), for a tenant's admin its own, for
    everybody else none; the latest first."""
    rows = AuditEntry.objects.select_related("organisation").order_by("-at", "-pk")
    if viewer.may(ADMINISTER):
        return rows if viewer.focus is None else rows.filter(organisation=viewer.focus)
    own = [number for number, allowed in viewer.roles.items() if ADMINISTER in allowed]
    if viewer.focus is not None:
        own = [number for number in own if number == viewer.focus]
    return rows.filter(organisation__in=own)


def narrowed(
    rows: QuerySet[AuditEntry], *, actor: str = "", action: str = "", during: TimeRange | None = None
) -> QuerySet[AuditEntry]:
    """Those whose actor contains, and whose action or subject contains, a text, within a time."""
    if actor:
        rows = rows.filter(actor__icontains=actor)
    if action:
        rows = rows.filter(Q(action__icontains=action) | Q(subject__icontains=action))
    if during is not None:
        rows = rows.filter(at__gte=during.since, at__lt=during.until)
    return rows
