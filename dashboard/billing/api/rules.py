"""Price rules: listed, added, changed by a next version, ended."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.describing import errors, path
from dashboard.billing import pricelist, selectors, words
from dashboard.billing.api import serializers as shapes
from dashboard.billing.api.views.base import BillingView, by
from dashboard.billing.models import PriceRule
from dashboard.billing.rules import rule_of

_LINE = path("line", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "The rule, in all its versions.")


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
        row = pricelist.add(_draft(request), by(request))
        return Response(shapes.RuleSerializer(rule_row(row)).data, status=201)


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
        row = pricelist.change(line, _draft(request), by(request))
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
        return Response(shapes.RuleSerializer(rule_row(pricelist.end(line, by(request)))).data)


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
