"""Whose rows a key may ask for, and who may set prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.pagination import bounded
from catalog.errors import Unknown
from catalog.models import Organisation
from catalog.people import audit
from catalog.viewing import BILL, Viewer, viewer_of_key

MAX_ID = 2**63 - 1
ORGANISATION = OpenApiParameter(
    "organisation",
    {"type": "integer", "minimum": 1, "maximum": MAX_ID},
    description="Whose, by number; only who runs the service may name another than its own.",
)


class BillingView(APIView):
    """Needs the scope ``billing``. A key sees its own organisation; one of the host organisation, all."""

    required_scope = "billing"

    def viewer(self, request: Request) -> Viewer:
        return viewer_of_key(key_of(request))

    def owned(self, request: Request) -> Q:
        """Whose rows: those of ``?organisation=``, or what the key may see."""
        viewer = self.viewer(request)
        number = bounded(request, "organisation", 0, 1, MAX_ID)
        if not number:
            return viewer.owned()
        if not viewer.sees_all and number != viewer.focus:
            raise Unknown("There is no organisation with this number.", where="organisation")
        return Q(organisation=number)

    def organisation(self, request: Request) -> Organisation:
        """The one that is meant: ``?organisation=``, or the key's own."""
        number = bounded(request, "organisation", 0, 1, MAX_ID) or key_of(request).organisation_id
        viewer = self.viewer(request)
        row = Organisation.objects.filter(pk=number).first()
        if row is None or not (viewer.sees_all or number == viewer.focus):
            raise Unknown("There is no organisation with this number.", where="organisation")
        return row

    def check_runs(self, request: Request) -> None:
        """Prices and credit are the host's to give."""
        if not self.viewer(request).may(BILL):
            raise PermissionDenied("Only the organisation that runs the service sets prices and credit.")


def by(request: Request) -> Mapping[str, Any]:
    """Who does it, as the audit log takes it: the services write it down, so the middleware need not."""
    audit.note(request._request, skip=True)
    return {"api_key": key_of(request), "request": request._request}
