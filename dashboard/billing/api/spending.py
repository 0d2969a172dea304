"""What jobs spent under the limits that they set; one that is over is ended."""

from __future__ import annotations

from django.db.models import Q
from django.urls import path
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import MAX_ID, operation
from catalog.api.pagination import bounded
from catalog.api.shapes import shape
from catalog.errors import Unknown
from dashboard.billing import agreements, selectors
from dashboard.billing.api.base import ORGANISATION, BillingView, by

SpendingAnswer = shape(selectors.SpendingSum, "left_micros", currency=serializers.CharField(allow_null=True))


class SpendingView(BillingView):
    @operation(
        SpendingAnswer,
        name="billing_spending",
        many=True,
        parameters=[
            ORGANISATION,
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 200}),
        ],
        fails=[404],
    )
    def get(self, request: Request) -> list[selectors.SpendingSum]:
        """Jobs that set a spend limit, the latest first, with those that were ended."""
        return selectors.spendings(self.owned(request), bounded(request, "limit", 50, 1, 200))


class EndSpendingView(BillingView):
    @operation(SpendingAnswer, name="billing_spending_end", fails=[404])
    def post(self, request: Request, number: int) -> selectors.SpendingSum:
        """End a job's spend limit, and what was agreed on under it.

        A later job of that name begins with a new one. What its clients had not reported by then is not
        charged."""
        if number > MAX_ID:
            raise Unknown("There is no such spend limit.", where="id")
        ended = agreements.end_spending(number, self.viewer.owned(), by(request))
        return selectors.spendings(Q(pk=ended.pk))[0]


urlpatterns = [
    path("billing/spending", SpendingView.as_view(), name="billing-spending"),
    path("billing/spending/<row_id:number>/end", EndSpendingView.as_view(), name="billing-spending-ending"),
]
