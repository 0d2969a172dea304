"""Whose rows a key may ask for, who may set prices, and the shapes that several resources show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from catalog.api.authentication import Needs, key_of
from catalog.api.endpoint import MAX_ID, RestView
from catalog.api.pagination import bounded
from catalog.errors import Unknown
from catalog.models import Organisation
from catalog.people import audit
from catalog.viewing import BILL

ORGANISATION = OpenApiParameter(
    "organisation",
    {"type": "integer", "minimum": 1, "maximum": MAX_ID},
    description="Whose, by number; only who runs the service may name another than its own.",
)


class BillingView(RestView):
    """Needs the scope ``billing``. A key sees its own organisation; one of the host organisation, all."""

    needs = Needs("billing")

    def owned(self, request: Request) -> Q:
        """Whose rows: those of ``?organisation=``, or what the key may see."""
        viewer = self.viewer
        number = bounded(request, "organisation", 0, 1, MAX_ID)
        if not number:
            return viewer.owned()
        if not viewer.sees_all and number != viewer.focus:
            raise Unknown("There is no organisation with this number.", where="organisation")
        return Q(organisation=number)

    def organisation(self, request: Request) -> Organisation:
        """The one that is meant: ``?organisation=``, or the key's own."""
        number = bounded(request, "organisation", 0, 1, MAX_ID) or self.key.organisation_id
        viewer = self.viewer
        row = Organisation.objects.filter(pk=number).first()
        if row is None or not (viewer.sees_all or number == viewer.focus):
            raise Unknown("There is no organisation with this number.", where="organisation")
        return row


class PricingView(BillingView):
    """Prices and credit are the host's to give."""

    needs = Needs(
        "billing",
        everywhere=BILL,
        refusal="Only the organisation that runs the service sets prices and credit.",
    )


def by(request: Request) -> Mapping[str, Any]:
    """Who does it, as the audit log takes it: the services write it down, so the middleware need not."""
    audit.note(request._request, skip=True)
    return {"api_key": key_of(request), "request": request._request}
