"""Billing over REST: account, ledger, usage, prices, rules, credit, and incoming payments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors, header, path, query
from catalog.api.pagination import bounded
from catalog.api.parsers import BoundedJSONParser, parse_json
from catalog.api.serializers import ErrorSerializer
from catalog.errors import RequestError, TooLarge, Unknown
from catalog.models import Method, Organisation
from catalog.services import audit
from catalog.timerange import RANGES, parse_range
from catalog.viewing import BILL, Viewer, viewer_of_key
from dashboard.billing import accounts, payments, pricelist, selectors, words
from dashboard.billing.api import serializers as shapes
from dashboard.billing.models import Kind, PriceRule
from dashboard.billing.rules import rule_of
from dashboard.billing.selectors import LedgerFilters

MAX_ID = 2**63 - 1
_ORGANISATION = OpenApiParameter(
    "organisation",
    {"type": "integer", "minimum": 1, "maximum": MAX_ID},
    description="Whose, by number; only who runs the service may name another than its own.",
)
_RANGE = [
    query("range", "The last …; 30d unless given.", enum=list(RANGES)),
    query("since", "In place of a range: from this time on (ISO 8601)."),
    query("until", "With since: to this time, exclusive."),
]


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


def _by(request: Request) -> Mapping[str, Any]:
    """Who does it, as the audit log takes it: the services write it down, so the middleware need not."""
    audit.note(request._request, skip=True)
    return {"api_key": key_of(request), "request": request._request}


class AccountView(BillingView):
    @extend_schema(
        operation_id="billing_account",
        tags=["billing"],
        summary="An organisation's account: credit, plan, forecast",
        parameters=[_ORGANISATION],
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
                    "pay_url": settings.OPATLAS_PAY_URL,
                }
            ).data
        )


class LedgerView(BillingView):
    @extend_schema(
        operation_id="billing_ledger",
        tags=["billing"],
        summary="The ledger, the newest entry first",
        parameters=[
            _ORGANISATION,
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
        parameters=[_ORGANISATION, *_RANGE],
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
        parameters=[_ORGANISATION],
        responses={200: shapes.RuleSerializer(many=True), **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        rows = selectors.prices_of(self.organisation(request).pk)
        return Response(shapes.RuleSerializer([rule_row(row) for row in rows], many=True).data)


class RulesView(BillingView):
    @extend_schema(
        operation_id="billing_rules",
        tags=["billing"],
        summary="Every price rule, those that ended too",
        responses={200: shapes.RuleSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request) -> Response:
        self.check_runs(request)
        rows = selectors.rules(ended=True)[:1000]
        return Response(shapes.RuleSerializer([rule_row(row) for row in rows], many=True).data)

    @extend_schema(
        operation_id="billing_rule_add",
        tags=["billing"],
        summary="Add a price rule",
        request=shapes.RuleRequestSerializer,
        responses={201: shapes.RuleSerializer, **errors(400)},
    )
    def post(self, request: Request) -> Response:
        self.check_runs(request)
        row = pricelist.add(_draft(request), _by(request))
        return Response(shapes.RuleSerializer(rule_row(row)).data, status=201)


_LINE = path("line", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "The rule, in all its versions.")


class RuleView(BillingView):
    @extend_schema(
        operation_id="billing_rule",
        tags=["billing"],
        summary="A price rule's versions, the newest first",
        parameters=[_LINE],
        responses={200: shapes.RuleSerializer(many=True), **errors(404)},
    )
    def get(self, request: Request, line: UUID) -> Response:
        self.check_runs(request)
        rows = [rule_row(row) for row in pricelist.history(line)]
        return Response(shapes.RuleSerializer(rows, many=True).data)

    @extend_schema(
        operation_id="billing_rule_change",
        tags=["billing"],
        summary="Add the next version of a price rule; the one before ends when it begins",
        parameters=[_LINE],
        request=shapes.RuleRequestSerializer,
        responses={201: shapes.RuleSerializer, **errors(400, 404)},
    )
    def post(self, request: Request, line: UUID) -> Response:
        self.check_runs(request)
        row = pricelist.change(line, _draft(request), _by(request))
        return Response(shapes.RuleSerializer(rule_row(row)).data, status=201)


class EndRuleView(BillingView):
    @extend_schema(
        operation_id="billing_rule_end",
        tags=["billing"],
        summary="End a price rule now",
        parameters=[_LINE],
        request=None,
        responses={200: shapes.RuleSerializer, **errors(400, 404)},
    )
    def post(self, request: Request, line: UUID) -> Response:
        self.check_runs(request)
        return Response(shapes.RuleSerializer(rule_row(pricelist.end(line, _by(request)))).data)


class CreditView(BillingView):
    @extend_schema(
        operation_id="billing_credit",
        tags=["billing"],
        summary="Give an organisation credit by hand, with a reason; below zero a correction",
        request=shapes.CreditRequestSerializer,
        responses={201: shapes.EntrySerializer, **errors(400, 404)},
    )
    def post(self, request: Request) -> Response:
        self.check_runs(request)
        asked = shapes.CreditRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        row = Organisation.objects.filter(pk=given["organisation"]).first()
        if row is None:
            raise Unknown("There is no organisation with this number.", where="organisation")
        entry = accounts.give_credit(
            row, given["amount_micros"], given["reason"], currency=given["currency"], by=_by(request)
        )
        return Response(shapes.EntrySerializer(selectors.entry_row(entry)).data, status=201)


class _Raw(BoundedJSONParser):
    """The body as it came: a signature is over its bytes."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        body = stream.read(self.max_bytes + 1)
        if len(body) > self.max_bytes:
            raise TooLarge(f"The body is larger than {self.max_bytes >> 10} KiB.")
        return body


class PaymentView(APIView):
    """No API key: the message itself is signed."""

    authentication_classes = []
    permission_classes = []
    parser_classes = [_Raw]

    @extend_schema(
        operation_id="billing_payment",
        tags=["billing"],
        summary="An incoming payment, signed by its provider",
        description=(
            "In the Standard Webhooks form: webhook-signature is `v1,` and the base64 of HMAC-SHA-256 over "
            "`id.timestamp.body` with the provider's secret. An event is booked once, however often it is "
            "sent; its time may be 5 minutes from ours."
        ),
        auth=[],
        parameters=[
            path("provider", "^[a-z0-9_-]{1,40}$", "Who reports: one that has a secret here."),
            header("webhook-id", "The event's id."),
            header("webhook-timestamp", "Seconds since 1970."),
            header("webhook-signature", "v1,… (several are separated by spaces)."),
        ],
        request=shapes.PaymentSerializer,
        responses={
            200: shapes.PaymentAnswerSerializer,
            **{
                status: OpenApiResponse(ErrorSerializer, description=what)
                for status, what in {
                    400: "The message is signed, and not understood.",
                    401: "The signature or the time does not count.",
                    404: "No such provider, or no such account.",
                    409: "The event came before with another content.",
                    413: "The body is too large.",
                    415: "The body must be JSON.",
                    503: "The service itself failed; try again in a moment.",
                }.items()
            },
        },
    )
    def post(self, request: Request, provider: str) -> Response:
        keys = payments.secrets_of(provider)
        body = request.data if isinstance(request.data, bytes) else b""
        event_id = payments.verify(keys, request.headers, body)
        audit.note(request._request, skip=True)  # the payment is written down with its entry
        got = payments.receive(provider, event_id, body, parse_json(body))
        return Response(
            {
                "entry": got.entry.pk,
                "repeated": got.repeated,
                "balance_micros": got.entry.balance_after_micros,
            }
        )


def rule_row(row: PriceRule) -> PriceRule:
    """The row with its sentence."""
    row.words = words.sentence(rule_of(row))  # type: ignore[attr-defined]
    return row


def _draft(request: Request) -> pricelist.Draft:
    asked = shapes.RuleRequestSerializer(data=request.data)
    asked.is_valid(raise_exception=True)
    given = dict(asked.validated_data)
    number = given.pop("organisation", None)
    return pricelist.Draft(**given, organisation_id=number)


def _choice(given: Any, name: str, values: Any) -> str:
    text = given.get(name, "")
    if text and text not in values:
        raise RequestError(f"{name} is one of {', '.join(values)}.", where=name)
    return str(text)


def _next(request: Request, before: int) -> str:
    given = request.query_params.copy()
    given["before"] = str(before)
    return f"{request.path}?{given.urlencode()}"
