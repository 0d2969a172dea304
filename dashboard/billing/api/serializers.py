"""Shapes of billing's requests and answers. Amounts are whole millionths of the currency."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from catalog.models import Method
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.models import Kind, Mode, Plan
from dashboard.billing.pricelist import MOST_HITS, MOST_PRIORITY, MOST_TIERS

SCOPES = ("shared", "private")


class ForecastSerializer(serializers.Serializer[Any]):
    so_far_micros = serializers.IntegerField()
    per_day_micros = serializers.FloatField()
    days_left = serializers.FloatField()
    micros = serializers.IntegerField(help_text="What this month will have been charged by its end.")


class AccountSerializer(serializers.Serializer[Any]):
    """An organisation's account. ``reference`` is what a payment names; empty before the first."""

    organisation = serializers.CharField()
    reference = serializers.CharField(allow_blank=True)
    currency = serializers.CharField()
    balance_micros = serializers.IntegerField(help_text="Credit; below zero what is owed.")
    plan = serializers.ChoiceField(choices=Plan.choices)
    plan_until = serializers.DateTimeField(allow_null=True)
    credit_limit_micros = serializers.IntegerField()
    forecast = ForecastSerializer()
    drift_micros = serializers.IntegerField(help_text="Balance minus the ledger's sum: always 0.")
    pay_url = serializers.CharField(allow_blank=True)


class EntrySerializer(serializers.Serializer[Any]):
    """One ledger entry. Of a charge: its usage row, operator, method, price rule."""

    id = serializers.IntegerField()
    organisation = serializers.CharField()
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=Kind.choices)
    amount_micros = serializers.IntegerField()
    currency = serializers.CharField()
    balance_after_micros = serializers.IntegerField()
    usage = serializers.IntegerField(allow_null=True)
    operator = serializers.CharField(allow_blank=True)
    job = serializers.CharField(allow_blank=True)
    method = serializers.CharField(allow_blank=True)
    route = serializers.CharField(allow_blank=True)
    rule = serializers.IntegerField(allow_null=True)
    list_micros = serializers.IntegerField(help_text="The price before caps and plans.")
    reason = serializers.CharField(allow_blank=True)
    actor = serializers.CharField(allow_blank=True)


class LedgerSerializer(serializers.Serializer[Any]):
    """A page of the ledger, the newest first; ``next`` is the address of the entries before."""

    next = serializers.CharField(allow_null=True)
    results = EntrySerializer(many=True)


class MoneySerializer(serializers.Serializer[Any]):
    currency = serializers.CharField(allow_null=True)
    hits_billed = serializers.IntegerField()
    charged_micros = serializers.IntegerField()
    saved_us = serializers.FloatField()
    credited_micros = serializers.IntegerField()
    adjusted_micros = serializers.IntegerField()
    refunded_micros = serializers.IntegerField()
    saved_s_per_unit = serializers.FloatField(allow_null=True)


class DaySumSerializer(serializers.Serializer[Any]):
    day = serializers.DateField()
    method = serializers.ChoiceField(choices=Method.choices)
    hits_billed = serializers.IntegerField()
    charged_micros = serializers.IntegerField()
    saved_us = serializers.FloatField()


class WithheldSumSerializer(serializers.Serializer[Any]):
    """An implementation that was asked for and withheld."""

    organisation = serializers.CharField()
    operator = serializers.CharField(source="operator_key")
    implementation = serializers.IntegerField()
    method = serializers.ChoiceField(choices=Method.choices)
    route = serializers.CharField()
    times = serializers.IntegerField()
    price_micros = serializers.IntegerField()
    currency = serializers.CharField(allow_null=True)
    last_at = serializers.DateTimeField()


class UsageSumsSerializer(serializers.Serializer[Any]):
    """Charges of whole days (UTC)."""

    first = serializers.DateField()
    last = serializers.DateField()
    totals = MoneySerializer(many=True)
    days = DaySumSerializer(many=True)
    withheld = WithheldSumSerializer(many=True)


class TierSerializer(serializers.Serializer[Any]):
    from_hit = serializers.IntegerField(min_value=2, max_value=MOST_HITS)
    per_hit_micros = serializers.IntegerField(min_value=0, max_value=MOST_MICROS)
    per_saved_second_micros = serializers.IntegerField(required=False, min_value=0, max_value=MOST_MICROS)


class RuleRequestSerializer(serializers.Serializer[Any]):
    """A price rule to add, or the next version of one."""

    name = serializers.CharField(max_length=100)
    currency = serializers.ChoiceField(choices=CURRENCIES)
    organisation = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=2**63 - 1, help_text="Only this one's hits."
    )
    method = serializers.ChoiceField(choices=Method.choices, required=False, allow_blank=True)
    route = serializers.CharField(required=False, allow_blank=True, max_length=40)
    op_type = serializers.CharField(required=False, allow_blank=True, max_length=100)
    scope = serializers.ChoiceField(choices=SCOPES, required=False, allow_blank=True)
    mode = serializers.ChoiceField(choices=Mode.choices, required=False)
    priority = serializers.IntegerField(required=False, min_value=-MOST_PRIORITY, max_value=MOST_PRIORITY)
    per_hit_micros = serializers.IntegerField(required=False, min_value=0, max_value=MOST_MICROS)
    per_saved_second_micros = serializers.IntegerField(required=False, min_value=0, max_value=MOST_MICROS)
    tiers = serializers.ListField(child=TierSerializer(), required=False, max_length=MOST_TIERS)
    cap_month_micros = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=MOST_MICROS
    )
    cap_operator_month_micros = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=MOST_MICROS
    )
    from_at = serializers.DateTimeField(required=False, allow_null=True)
    until_at = serializers.DateTimeField(required=False, allow_null=True)
    note = serializers.CharField(required=False, allow_blank=True, max_length=300)


class RuleSerializer(serializers.Serializer[Any]):
    """One version of a price rule. ``line`` names the rule in all its versions."""

    id = serializers.IntegerField(source="pk")
    line = serializers.UUIDField()
    version = serializers.IntegerField()
    name = serializers.CharField()
    words = serializers.CharField(help_text="The rule in a sentence.")
    organisation = serializers.IntegerField(source="organisation_id", allow_null=True)
    method = serializers.CharField(allow_blank=True)
    route = serializers.CharField(allow_blank=True)
    op_type = serializers.CharField(allow_blank=True)
    scope = serializers.CharField(allow_blank=True)
    mode = serializers.ChoiceField(choices=Mode.choices)
    currency = serializers.CharField()
    priority = serializers.IntegerField()
    per_hit_micros = serializers.IntegerField()
    per_saved_second_micros = serializers.IntegerField()
    tiers = TierSerializer(many=True)
    cap_month_micros = serializers.IntegerField(allow_null=True)
    cap_operator_month_micros = serializers.IntegerField(allow_null=True)
    from_at = serializers.DateTimeField()
    until_at = serializers.DateTimeField(allow_null=True)


class CreditRequestSerializer(serializers.Serializer[Any]):
    """Credit by hand; below zero a correction."""

    organisation = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    amount_micros = serializers.IntegerField(min_value=-MOST_MICROS, max_value=MOST_MICROS)
    currency = serializers.ChoiceField(choices=CURRENCIES)
    reason = serializers.CharField(max_length=300)


class PaymentDataSerializer(serializers.Serializer[Any]):
    account = serializers.CharField(max_length=40, help_text="The account's reference: acct_…")
    amount_micros = serializers.IntegerField(min_value=1, max_value=MOST_MICROS)
    currency = serializers.CharField(min_length=3, max_length=3)
    reference = serializers.CharField(required=False, max_length=200, help_text="The payment's, for people.")


class PaymentSerializer(serializers.Serializer[Any]):
    type = serializers.ChoiceField(choices=["payment.succeeded", "payment.refunded"])
    data = PaymentDataSerializer()  # type: ignore[assignment]


class PaymentAnswerSerializer(serializers.Serializer[Any]):
    entry = serializers.IntegerField(help_text="The ledger entry.")
    repeated = serializers.BooleanField(help_text="The event was known: nothing was added.")
    balance_micros = serializers.IntegerField(help_text="After that entry.")
