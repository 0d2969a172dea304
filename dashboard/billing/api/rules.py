"""Price rules: listed, added, changed by a next version, ended; and those that apply to an organisation."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.describing import in_path
from catalog.api.endpoint import operation
from catalog.api.shapes import ModelAnswer
from dashboard.billing import pricelist, selectors, words
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.api.base import ORGANISATION, BillingView, PricingView, by
from dashboard.billing.conditions import NAMES
from dashboard.billing.models import PriceRule
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

    class Meta:
        model = PriceRule
        fields = [*_FIELDS, "note"]
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


class RulesView(PricingView):
    @operation(RuleAnswer, name="billing_rules", many=True)
    def get(self, request: Request) -> list[PriceRule]:
        """Every price rule, those that ended too."""
        return list(selectors.rules(ended=True)[:1000])

    @operation(RuleAnswer, name="billing_rule_add", status=201, takes=RuleRequestSerializer)
    def post(self, request: Request) -> PriceRule:
        """Add a price rule."""
        return pricelist.add(PriceRule(**self.sent(RuleRequestSerializer)), by(request))


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
    )
    def post(self, request: Request, line: UUID) -> PriceRule:
        """Add the next version of a price rule; the one before ends when it begins."""
        return pricelist.change(line, PriceRule(**self.sent(RuleRequestSerializer)), by(request))


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
