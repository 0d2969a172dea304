"""An organisation's account, its ledger, and what it was charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any

from django.db.models import Q
from django.urls import path
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.describing import query, time_range
from catalog.api.endpoint import MAX_ID, operation
from catalog.api.pagination import bounded
from catalog.api.shapes import shape
from catalog.errors import RequestError
from catalog.models import Method
from catalog.timerange import parse_range
from dashboard.billing import accounts, selectors
from dashboard.billing.api.base import ORGANISATION, BillingView
from dashboard.billing.models import Account, Kind, Plan
from dashboard.billing.selectors import LedgerFilters
from dashboard.conf import conf


@dataclass(frozen=True)
class AccountState:
    """An organisation's account. ``reference`` is what a payment names; empty before the first."""

    organisation: str
    reference: str
    currency: str
    balance_micros: Annotated[int, "Credit; below zero what is owed."]
    plan: Plan
    plan_until: datetime | None
    credit_limit_micros: int
    forecast: selectors.Forecast
    drift_micros: Annotated[int, "Balance minus the ledger's sum: always 0."]
    pay_url: str


class EntrySerializer(serializers.Serializer[Any]):
    """One ledger entry. Of a charge: its usage row, operator, method, price rule."""

    id = serializers.IntegerField()
    organisation = serializers.CharField(source="organisation.name")
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=Kind.choices)
    amount_micros = serializers.IntegerField()
    currency = serializers.CharField()
    balance_after_micros = serializers.IntegerField()
    usage = serializers.IntegerField(allow_null=True, source="usage_number")
    operator = serializers.CharField(allow_blank=True, source="operator_key")
    job = serializers.CharField(allow_blank=True, source="job_name")
    key = serializers.CharField(
        allow_null=True, source="key_prefix", help_text="Prefix of the API key that asked; null: not noted."
    )
    method = serializers.CharField(allow_blank=True)
    route = serializers.CharField(allow_blank=True)
    rule = serializers.IntegerField(allow_null=True, source="rule_id")
    list_micros = serializers.IntegerField(help_text="The price before caps and plans.")
    agreement = serializers.CharField(
        allow_blank=True, help_text="Of uses that a client reported: under which agreement."
    )
    uses = serializers.IntegerField(help_text="Of a charge: so many uses of its usage row were covered.")
    refund_of = serializers.IntegerField(
        allow_null=True, source="refund_of_id", help_text="Of a refund: its payment's entry."
    )
    reason = serializers.CharField(allow_blank=True)
    actor = serializers.CharField(allow_blank=True)


class LedgerSerializer(serializers.Serializer[Any]):
    """A page of the ledger, the newest first; ``next`` is the address of the entries before."""

    next = serializers.CharField(allow_null=True)
    results = EntrySerializer(many=True)


@dataclass(frozen=True)
class UsageSums:
    """Charges of whole days (UTC)."""

    first: date
    last: date
    totals: Sequence[selectors.Money]
    days: Sequence[selectors.DaySum]
    withheld: Sequence[selectors.WithheldSum]


ForecastAnswer = shape(selectors.Forecast, "micros")
MoneyAnswer = shape(selectors.Money, "saved_s_per_unit", currency=serializers.CharField(allow_null=True))
DaySumAnswer = shape(selectors.DaySum, method=serializers.ChoiceField(Method.choices))
WithheldAnswer = shape(
    selectors.WithheldSum, method=serializers.ChoiceField(Method.choices), without=["summary"]
)


class AccountView(BillingView):
    @operation(
        shape(AccountState, using=[ForecastAnswer]),
        name="billing_account",
        parameters=[ORGANISATION],
        fails=[404],
    )
    def get(self, request: Request) -> AccountState:
        """An organisation's account: credit, plan, forecast."""
        row = self.organisation(request)
        owned = Q(organisation=row.pk)
        account = selectors.account_of(row.pk) or Account.none(accounts.default_currency())
        return AccountState(
            organisation=row.name,
            reference=account.reference,
            currency=account.currency,
            balance_micros=account.balance_micros,
            plan=Plan(account.plan),
            plan_until=account.plan_until,
            credit_limit_micros=account.credit_limit_micros,
            forecast=selectors.forecast(owned),
            drift_micros=selectors.drift(owned),
            pay_url=conf().pay_url,
        )


class LedgerView(BillingView):
    @operation(
        LedgerSerializer,
        name="billing_ledger",
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
        fails=[404],
    )
    def get(self, request: Request) -> dict[str, Any]:
        """The ledger, the newest entry first."""
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
        return {
            "next": _next(request, rows[-1].pk) if more else None,
            "results": rows,
        }


class UsageView(BillingView):
    @operation(
        shape(UsageSums, using=[MoneyAnswer, DaySumAnswer, WithheldAnswer]),
        name="billing_usage",
        parameters=[ORGANISATION, *time_range("30d")],
        fails=[404],
    )
    def get(self, request: Request) -> UsageSums:
        """What was charged, by day and method, and what was withheld.

        Of the whole days (UTC) that the range touches."""
        owned = self.owned(request)
        first, last = selectors.days_of(parse_range(request.query_params, "30d"))
        return UsageSums(
            first,
            last,
            totals=selectors.totals(owned, first, last),
            days=selectors.by_day(owned, first, last),
            withheld=selectors.withheld_lately(owned, first, last),
        )


def _choice(given: Any, name: str, values: Any) -> str:
    text = given.get(name, "")
    if text and text not in values:
        raise RequestError(f"{name} is one of {', '.join(values)}.", where=name)
    return str(text)


def _next(request: Request, before: int) -> str:
    given = request.query_params.copy()
    given["before"] = str(before)
    return f"{request.path}?{given.urlencode()}"


urlpatterns = [
    path("billing/account", AccountView.as_view(), name="billing-account"),
    path("billing/ledger", LedgerView.as_view(), name="billing-ledger-list"),
    path("billing/usage", UsageView.as_view(), name="billing-usage"),
]
