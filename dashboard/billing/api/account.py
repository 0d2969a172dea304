"""An organisation's account, ledger, usage and prices."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.describing import errors, query
from catalog.api.pagination import bounded
from catalog.errors import RequestError
from catalog.models import Method
from catalog.timerange import RANGES, parse_range
from dashboard.billing import accounts, selectors
from dashboard.billing.api import serializers as shapes
from dashboard.billing.api.views.base import MAX_ID, ORGANISATION, BillingView
from dashboard.billing.api.views.rules import rule_row
from dashboard.billing.models import Kind
from dashboard.billing.selectors import LedgerFilters
from dashboard.conf import conf

_RANGE = [
    query("range", "The last …; 30d unless given.", enum=list(RANGES)),
    query("since", "In place of a range: from this time on (ISO 8601)."),
    query("until", "With since: to this time, exclusive."),
]


class AccountView(BillingView):
    @extend_schema(
        operation_id="billing_account",
        tags=["billing"],
        summary="An organisation's account: credit, plan, forecast",
        parameters=[ORGANISATION],
        responses={200: shapes.AccountSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        row = self.organisation(request)
        owned = Q(organisation=row.pk)
        account = selectors.account_of(row.pk)
        return Response(
            shapes.AccountSerializer(
                {
                    "organisation": row.name,
                    "reference": account.reference if account else "",
                    "currency": account.currency if account else accounts.default_currency(),
                    "balance_micros": account.balance_micros if account else 0,
                    "plan": account.plan if account else "none",
                    "plan_until": account.plan_until if account else None,
                    "credit_limit_micros": account.credit_limit_micros if account else 0,
                    "forecast": selectors.forecast(owned),
                    "drift_micros": selectors.drift(owned),
                    "pay_url": conf().pay_url,
                }
            ).data
        )


class LedgerView(BillingView):
    @extend_schema(
        operation_id="billing_ledger",
        tags=["billing"],
        summary="The ledger, the newest entry first",
        parameters=[
            ORGANISATION,
            query("kind", "Only these entries.", enum=list(Kind.values)),
            query("method", "Only charges of this method.", enum=list(Method.values)),
            query("since", "From this time on (ISO 8601)."),
            query("until", "With since: to this time, exclusive."),
            OpenApiParameter(
                "before", {"type": "integer", "minimum": 1, "maximum": MAX_ID}, description="Older than this."
            ),
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 200}),
        ],
        responses={200: shapes.LedgerSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        given = request.query_params
        chosen = parse_range(given, "1y") if given.get("since") or given.get("until") else None
        filters = LedgerFilters(
            _choice(given, "kind", Kind.values),
            _choice(given, "method", Method.values),
            chosen.since if chosen else None,
            chosen.until if chosen else None,
            bounded(request, "before", 0, 1, MAX_ID) or None,
        )
        limit = bounded(request, "limit", 50, 1, 200)
        rows = list(selectors.ledger(self.owned(request), filters)[: limit + 1])
        more = len(rows) > limit
        rows = rows[:limit]
        return Response(
            {
                "next": _next(request, rows[-1].pk) if more else None,
                "results": shapes.EntrySerializer([selectors.entry_row(row) for row in rows], many=True).data,
            }
        )


class UsageView(BillingView):
    @extend_schema(
        operation_id="billing_usage",
        tags=["billing"],
        summary="What was charged, by day and method, and what was withheld",
        description="Of the whole days (UTC) that the range touches.",
        parameters=[ORGANISATION, *_RANGE],
        responses={200: shapes.UsageSumsSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        owned = self.owned(request)
        first, last = selectors.days_of(parse_range(request.query_params, "30d"))
        return Response(
            shapes.UsageSumsSerializer(
                {
                    "first": first,
                    "last": last,
                    "totals": selectors.totals(owned, first, last),
                    "days": selectors.by_day(owned, first, last),
                    "withheld": selectors.withheld_lately(owned, first, last),
                }
            ).data
        )


class PricesView(BillingView):
    @extend_schema(
        operation_id="billing_prices",
        tags=["billing"],
        summary="The prices that apply to an organisation, in the order in which they are tried",
        parameters=[ORGANISATION],
        responses={200: shapes.RuleSerializer(many=True), **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        rows = selectors.prices_of(self.organisation(request).pk)
        return Response(shapes.RuleSerializer([rule_row(row) for row in rows], many=True).data)


def _choice(given: Any, name: str, values: Any) -> str:
    text = given.get(name, "")
    if text and text not in values:
        raise RequestError(f"{name} is one of {', '.join(values)}.", where=name)
    return str(text)


def _next(request: Request, before: int) -> str:
    given = request.query_params.copy()
    given["before"] = str(before)
    return f"{request.path}?{given.urlencode()}"
