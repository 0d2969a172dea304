"""Price rules: listed, tried on last month, added, changed by a next version, ended; and those that apply
to an organisation."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.describing import ErrorSerializer, in_path
from catalog.api.endpoint import operation
from catalog.api.shapes import ModelAnswer, shape
from dashboard.billing import pricelist, selectors, trying, words
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.api.base import ORGANISATION, BillingView, PricingView, by
from dashboard.billing.conditions import NAMES
from dashboard.billing.models import PriceRule
from dashboard.billing.preview import OrganisationPreview, Preview
from dashboard.billing.pricelist import MOST_HITS, MOST_PRIORITY, MOST_TIERS

_FIELDS = (
    "name",
    "organisation",
    *NAMES,
    "mode",
    "charges_default",
    "currency",
    "priority",
    "per_hit_micros",
    "per_saved_second_micros",
    "tiers",
    "cap_month_micros",
    "cap_operator_month_micros",
    "from_at",
    "until_at",
)
_LINE = in_path("line", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "The rule, in all its versions.")


class TierSerializer(serializers.Serializer[Any]):
    from_hit = serializers.IntegerField(min_value=2, max_value=MOST_HITS)
    per_hit_micros = serializers.IntegerField(min_value=0, max_value=MOST_MICROS)
    per_saved_second_micros = serializers.IntegerField(required=False, min_value=0, max_value=MOST_MICROS)


_AMOUNT = {"min_value": 0, "max_value": MOST_MICROS}


class RuleRequestSerializer(serializers.ModelSerializer[PriceRule]):
    """A price rule to add, or the next version of one."""

    currency = serializers.ChoiceField(choices=CURRENCIES)
    organisation = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=2**63 - 1,
        source="organisation_id",
        help_text="Only this one's hits.",
    )
    tiers = serializers.ListField(child=TierSerializer(), required=False, max_length=MOST_TIERS)
    dry_run = serializers.BooleanField(
        required=False, help_text="Only say what it would have cost last month (200); nothing is changed."
    )
    confirm = serializers.CharField(
        required=False,
        max_length=200,
        help_text="What trying the very same price answered as `confirm`, at most an hour ago.",
    )

    class Meta:
        model = PriceRule
        fields = [*_FIELDS, "note", "dry_run", "confirm"]
        extra_kwargs = {
            "charges_default": {
                "help_text": "Charge also a hit that serves the default itself, what the caller has anyway."
            },
            "priority": {"min_value": -MOST_PRIORITY, "max_value": MOST_PRIORITY},
            "per_hit_micros": _AMOUNT,
            "per_saved_second_micros": _AMOUNT,
            "cap_month_micros": _AMOUNT,
            "cap_operator_month_micros": _AMOUNT,
            "from_at": {"required": False, "allow_null": True},
        }


class RuleAnswer(ModelAnswer):
    """One version of a price rule. ``line`` names the rule in all its versions."""

    words = serializers.SerializerMethodField(help_text="The rule in a sentence.")
    tiers = TierSerializer(many=True)

    class Meta:
        model = PriceRule
        fields = ["id", "line", "version", "name", "words", *_FIELDS[1:]]

    def get_words(self, row: PriceRule) -> str:
        return words.sentence(row)


_OrganisationAnswer = shape(OrganisationPreview, charged_micros="micros")
_PreviewAnswer = shape(
    Preview, "organisations", "is_estimate", charged_micros="micros", using=[_OrganisationAnswer]
)
TriedAnswer = shape(trying.TriedPrice, "confirm", without=["digest"], using=[_PreviewAnswer])


class NotConfirmedSerializer(ErrorSerializer):
    tried = TriedAnswer(required=False, help_text="Comes where nothing but its `confirm` was missing.")


_TAKEN_OR_TRIED = {
    200: OpenApiResponse(TriedAnswer, description="Tried on last month (`dry_run`): nothing was changed."),
    409: OpenApiResponse(
        NotConfirmedSerializer, description="Not confirmed: `tried` is what must be seen before it counts."
    ),
}


class RulesView(PricingView):
    @operation(RuleAnswer, name="billing_rules", many=True)
    def get(self, request: Request) -> list[PriceRule]:
        """Every price rule, those that ended too."""
        return list(selectors.rules(ended=True)[:1000])

    @operation(
        RuleAnswer,
        name="billing_rule_add",
        status=201,
        takes=RuleRequestSerializer,
        responses=_TAKEN_OR_TRIED,
    )
    def post(self, request: Request) -> PriceRule | Response:
        """Add a price rule.

        It counts only once it was seen what it would have cost: with `dry_run` that is answered, without
        `confirm` refused and answered (409); sent again with the `confirm` of that answer it is in force."""
        return _taken(self, request, None)


class RuleView(PricingView):
    @operation(RuleAnswer, name="billing_rule", many=True, parameters=[_LINE])
    def get(self, request: Request, line: UUID) -> list[PriceRule]:
        """A price rule's versions, the newest first."""
        return list(pricelist.history(line))

    @operation(
        RuleAnswer,
        name="billing_rule_change",
        status=201,
        parameters=[_LINE],
        takes=RuleRequestSerializer,
        responses=_TAKEN_OR_TRIED,
    )
    def post(self, request: Request, line: UUID) -> PriceRule | Response:
        """Add the next version of a price rule; the one before ends when it begins.

        It is tried and confirmed as a new one is."""
        return _taken(self, request, pricelist.history(line)[0])


def _taken(view: PricingView, request: Request, last: PriceRule | None) -> PriceRule | Response:
    """The price in force, or only tried."""
    sent = view.sent(RuleRequestSerializer)
    dry_run, confirm = sent.pop("dry_run", False), sent.pop("confirm", "")
    draft, who = PriceRule(**sent), by(request)
    if dry_run:
        return Response(TriedAnswer(trying.try_on_last_month(draft, last)).data)
    try:
        return trying.put_in_force(draft, last, confirm, who)
    except trying.NotConfirmed as error:
        error.details = {"tried": TriedAnswer(error.tried).data}
        raise


class EndRuleView(PricingView):
    @operation(RuleAnswer, name="billing_rule_end", parameters=[_LINE])
    def post(self, request: Request, line: UUID) -> PriceRule:
        """End a price rule now."""
        return pricelist.end(line, by(request))


class PricesView(BillingView):
    @operation(RuleAnswer, name="billing_prices", many=True, parameters=[ORGANISATION], fails=[404])
    def get(self, request: Request) -> list[PriceRule]:
        """The prices that apply to an organisation, in the order in which they are tried."""
        return selectors.prices_of(self.organisation(request).pk)


urlpatterns = [
    path("billing/prices", PricesView.as_view(), name="billing-prices"),
    path("billing/rules", RulesView.as_view(), name="billing-rule-list"),
    path("billing/rules/<uuid:line>", RuleView.as_view(), name="billing-rule-versions"),
    path("billing/rules/<uuid:line>/end", EndRuleView.as_view(), name="billing-rule-ending"),
]
