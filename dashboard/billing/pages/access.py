"""Who may see whose bills."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404

from catalog.models import Organisation
from catalog.viewing import BILL
from dashboard.web.requests import ViewerRequest


def runs(request: ViewerRequest) -> bool:
    """Whether this person sets prices and credit for the whole service."""
    return request.viewer.may_price


def check_runs(request: ViewerRequest) -> None:
    if not runs(request):
        raise PermissionDenied("Only the organisation that runs the service sets prices and credit.")


def check_bills(request: ViewerRequest) -> None:
    """Bills are for the billing role, of what is looked at now."""
    if not request.viewer.may(BILL, request.viewer.focus):
        raise PermissionDenied("Bills need the billing role: ask an administrator of your organisation.")


def organisation_or_404(request: ViewerRequest, pk: int) -> Organisation:
    """One that this person may see the bills of; anything else is not there."""
    row = Organisation.objects.filter(pk=pk).first() if pk < 2**63 else None
    if row is None or not request.viewer.may(BILL, pk):
        raise Http404("There is no organisation with this number.")
    return row


def by(request: ViewerRequest) -> dict[str, Any]:
    """Who does it, as the audit log takes it: the services write it down, so the middleware need not."""
    from catalog.people import audit

    audit.note(request, skip=True)
    return {"user": request.user, "request": request}
