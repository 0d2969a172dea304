"""Billing's forms: people write amounts in units of the currency, rows keep millionths."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.utils import timezone

from catalog.models import Organisation
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.conditions import CONDITIONS, NAMES, PriceCondition
from dashboard.billing.models import Mode, Plan, PriceRule
from dashboard.billing.pricelist import MOST_PRIORITY

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
    """Units of the currency, with at most six digits after the point; kept as whole millionths. ``nothing``:
    what an empty field means."""

    def __init__(self, *, least: int = 0, nothing: int | None = None, **options: Any) -> None:
        most = Decimal(MOST_MICROS) / 1_000_000
        super().__init__(min_value=least, max_value=most, decimal_places=6, max_digits=16, **options)
        self.widget.attrs["inputmode"] = "decimal"
        self.nothing = nothing

    def clean(self, value: Any) -> Any:
        units = super().clean(value)
        return self.nothing if units is None else int(units * 1_000_000)

    def prepare_value(self, value: Any) -> Any:
        return units(value) if isinstance(value, int) else value


def units(micros: int | None) -> str:
    """Millionths as somebody writes them: ``0.01``."""
    if micros is None:
        return ""
    text = f"{Decimal(micros) / 1_000_000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class Tiers(forms.CharField):
    """Lines of hit, price a hit, price a second saved; kept as a list."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        lines = (super().to_python(value) or "").splitlines()
        return [_tier(parts) for line in lines if (parts := line.split())]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(_tier_text, value)) if isinstance(value, list) else value


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]
    """A price rule, or the next version of one: once it is valid, ``instance`` is the draft."""

    mode = forms.ChoiceField(choices=_MODES)
    charges_default = forms.BooleanField(
        label="Charge the default too",
        required=False,
        help_text="Else a hit that serves only the default, what a job has anyway, is free.",
    )
    currency = forms.ChoiceField(choices=[(name, name) for name in CURRENCIES])
    per_hit_micros = Amount(label="Price a hit", required=False, nothing=0)
    per_saved_second_micros = Amount(label="Price a second saved", required=False, nothing=0)
    tiers = Tiers(
        required=False,
        help_text="One a line: from which hit of a month, price a hit, price a second saved. "
        "“1001 0.005” halves a price of 0.01 after a thousand hits.",
    )
    cap_month_micros = Amount(label="At most, a month", required=False, help_text="Empty: no cap.")
    cap_operator_month_micros = Amount(
        label="At most, a month and operator", required=False, help_text="Empty: no cap."
    )
    priority = forms.IntegerField(
        initial=0,
        min_value=-MOST_PRIORITY,
        max_value=MOST_PRIORITY,
        help_text="Of several that match, the highest counts; then the most particular.",
    )
    from_at = forms.DateTimeField(
        label="From (UTC)",
        required=False,
        help_text="Empty: at once.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    class Meta:
        model = PriceRule
        fields = [
            "name",
            "organisation",
            *NAMES,
            "mode",
            "charges_default",
            "currency",
            "per_hit_micros",
            "per_saved_second_micros",
            "tiers",
            "cap_month_micros",
            "cap_operator_month_micros",
            "priority",
            "from_at",
            "note",
        ]
        help_texts = {
            "name": "What people call it.",
            "note": "Why, for who reads the history.",
            **{one.name: one.hint for one in CONDITIONS},
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        organisations: Any = self.fields["organisation"]
        organisations.queryset = Organisation.objects.order_by("name")
        organisations.empty_label = "All organisations"
        self.fields["from_at"].widget.attrs["min"] = f"{timezone.now():%Y-%m-%dT%H:%M}"
        for one in CONDITIONS:
            self._offer(one)

    def _offer(self, condition: PriceCondition) -> None:
        """What there is to choose from; of a version before, also what there is no more."""
        field: Any = self.fields[condition.name]
        if condition.known is None:
            field.choices = [("", "Any"), *((one, one.capitalize()) for one, _ in field.choices if one)]
            return
        known = list(condition.known())
        before = self.initial.get(condition.name) or ""
        gone = [(before, f"{before} (there is none)")] if before and before not in known else []
        choices = [("", "Any"), *((one, one) for one in known), *gone]
        self.fields[condition.name] = forms.ChoiceField(
            label=field.label, choices=choices, required=False, help_text=field.help_text
        )

    def add_prefix(self, field_name: str) -> str:
        # Amounts are written in units: their addresses on the page do not say otherwise.
        return super().add_prefix(field_name.removesuffix("_micros"))

    @property
    def conditions(self) -> list[Any]:
        return [self[name] for name in NAMES]


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


def _tier_text(tier: dict[str, int]) -> str:
    saved = units(tier.get("per_saved_second_micros") or None)
    return f"{tier['from_hit']} {units(tier['per_hit_micros'])} {saved}".rstrip()


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
        label="Credit limit",
        required=False,
        nothing=0,
        help_text="How far below zero a postpaid plan may go.",
    )
