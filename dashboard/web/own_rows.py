"""Whose rows a page is about: the organisation that somebody looks at, and what the person may do there."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied

from catalog.models import Membership, Organisation
from catalog.registry import default_organisation
from catalog.viewing import ADMINISTER
from dashboard.web.requests import ViewerRequest


def own_organisation(request: ViewerRequest) -> Organisation | None:
    """The organisation looked at; for somebody of the host who looks at all of them, the host; None for who
    belongs to none."""
    viewer = request.viewer
    if viewer.focus is not None:
        return Organisation.objects.filter(pk=viewer.focus).first()
    if not viewer.sees_all:
        return None
    homes = Membership.objects.filter(user=request.user.pk, organisation__host=True)
    home = homes.select_related("organisation").order_by("pk").first()
    return home.organisation if home else default_organisation()


def administered(request: ViewerRequest) -> Organisation:
    """The organisation looked at, for its admins and those of the whole service; 403 for everybody else."""
    organisation = own_organisation(request)
    if organisation is None or not request.viewer.may(ADMINISTER, organisation.pk):
        raise PermissionDenied("Only administrators of the organisation see and change this.")
    return organisation
