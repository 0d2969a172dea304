"""Billing's forms: people write amounts in units of the currency, rows keep millionths."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms

from catalog.models import Method, Organisation
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.models import Mode, Plan, PriceRule
from dashboard.billing.pricelist import MOST_PRIORITY, Draft

_MODES = [
    (Mode.PROMPT, "Charge and prompt to pay"),
    (Mode.WITHHOLD, "Withhold until credit or a plan covers it"),
    (Mode.FREE, "Free: an exception"),
]
_PLANS = [
    (Plan.NONE, "None: credit alone"),
    (Plan.PREPAID, "Prepaid: hits cost nothing more"),
    (Plan.POSTPAID, "Postpaid: down to the credit limit"),
]


class Amount(forms.DecimalField):
    """Units of the currency, with at most six digits after the point; cleaned to whole millionths."""

    def __init__(self, *, least: int = 0, **options: Any) -> None:
        most = Decimal(MOST_MICROS) / 1_000_000
        super().__init__(min_value=least, max_value=most, decimal_places=6, max_digits=16, **options)
        self.widget.attrs["inputmode"] = "decimal"

    def clean(self, value: Any) -> Any:
        units = super().clean(value)
        return None if units is None else int(units * 1_000_000)


def units(micros: int | None) -> str:
    """Millionths as somebody writes them: ``0.01``."""
    if micros is None:
        return ""
    text = f"{Decimal(micros) / 1_000_000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class RuleForm(forms.Form):
    """A price rule, or the next version of one."""

    name = forms.CharField(max_length=100, help_text="What people call it.")
    organisation = forms.ModelChoiceField(
        Organisation.objects.order_by("name"), required=False, empty_label="All organisations"
    )
    method = forms.ChoiceField(choices=[("", "Any"), *Method.choices], required=False)
    route = forms.CharField(max_length=40, required=False, help_text="Such as tvm; empty: any.")
    op_type = forms.CharField(
        label="Op type", max_length=100, required=False, help_text="Such as Conv or Conv+Relu; empty: any."
    )
    scope = forms.ChoiceField(
        choices=[("", "Any"), ("shared", "Shared"), ("private", "Private")],
        required=False,
        help_text="Private: the organisation's own entries.",
    )
    mode = forms.ChoiceField(choices=_MODES)
    currency = forms.ChoiceField(choices=[(name, name) for name in CURRENCIES])
    per_hit = Amount(label="Price a hit", required=False)
    per_saved_second = Amount(label="Price a second saved", required=False)
    tiers = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        required=False,
        help_text="One a line: from which hit of a month, price a hit, price a second saved. "
        "“1001 0.005” halves a price of 0.01 after a thousand hits.",
    )
    cap_month = Amount(label="At most, a month", required=False, help_text="Empty: no cap.")
    cap_operator_month = Amount(
        label="At most, a month and operator", required=False, help_text="Empty: no cap."
    )
    priority = forms.IntegerField(
        initial=0,
        min_value=-MOST_PRIORITY,
        max_value=MOST_PRIORITY,
        help_text="Of several that match, the highest counts; then the most particular.",
    )
    from_at = forms.DateTimeField(
        label="From (UTC)", required=False, help_text="Such as 2026-12-01 00:00; empty: at once."
    )
    note = forms.CharField(max_length=300, required=False, help_text="Why, for who reads the history.")

    def clean_tiers(self) -> list[dict[str, int]]:
        tiers = []
        for line in self.cleaned_data["tiers"].splitlines():
            if parts := line.split():
                tiers.append(_tier(parts))
        return tiers

    def draft(self) -> Draft:
        """What was filled in; call it once the form is valid."""
        given = self.cleaned_data
        return Draft(
            name=given["name"],
            currency=given["currency"],
            organisation_id=given["organisation"].pk if given["organisation"] else None,
            method=given["method"],
            route=given["route"],
            op_type=given["op_type"],
            scope=given["scope"],
            mode=given["mode"],
            priority=given["priority"],
            per_hit_micros=given["per_hit"] or 0,
            per_saved_second_micros=given["per_saved_second"] or 0,
            tiers=given["tiers"],
            cap_month_micros=given["cap_month"],
            cap_operator_month_micros=given["cap_operator_month"],
            from_at=given["from_at"],
            note=given["note"],
        )


def _tier(parts: list[str]) -> dict[str, int]:
    wrong = forms.ValidationError("A tier is a hit's number and a price: 1001 0.005")
    if len(parts) not in (2, 3) or not (parts[0].isascii() and parts[0].isdigit()) or len(parts[0]) > 13:
        raise wrong
    try:
        amounts = [Decimal(part) * 1_000_000 for part in parts[1:]]
    except InvalidOperation as error:
        raise wrong from error
    if any(not amount.is_finite() or amount < 0 or amount % 1 or amount > MOST_MICROS for amount in amounts):
        raise wrong
    names = ("per_hit_micros", "per_saved_second_micros")
    return {"from_hit": int(parts[0])} | {
        name: int(amount) for name, amount in zip(names, amounts, strict=False)
    }


def filled_in(row: PriceRule) -> dict[str, Any]:
    """A version as the form shows it: what the next one begins with."""
    tiers = [
        " ".join(
            [
                str(one["from_hit"]),
                units(one["per_hit_micros"]),
                units(one.get("per_saved_second_micros") or None),
            ]
        )
        for one in row.tiers
    ]
    names = ("name", "organisation", "method", "route", "op_type", "scope", "mode", "currency", "priority")
    return {name: getattr(row, name) for name in names} | {
        "per_hit": units(row.per_hit_micros),
        "per_saved_second": units(row.per_saved_second_micros or None),
        "tiers": "\n".join(line.rstrip() for line in tiers),
        "cap_month": units(row.cap_month_micros),
        "cap_operator_month": units(row.cap_operator_month_micros),
    }


class CreditForm(forms.Form):
    """Credit by hand; below zero a correction."""

    amount = Amount(least=-(MOST_MICROS // 1_000_000), help_text="Below zero: a correction.")
    reason = forms.CharField(max_length=300, help_text="Kept in the ledger and the audit log.")


class PlanForm(forms.Form):
    """What covers an organisation's hits beside its credit."""

    plan = forms.ChoiceField(choices=_PLANS)
    until = forms.DateTimeField(
        label="Until (UTC)", required=False, help_text="Such as 2026-12-31; empty: until it is changed."
    )
    credit_limit = Amount(
        label="Credit limit", required=False, help_text="How far below zero a postpaid plan may go."
    )
