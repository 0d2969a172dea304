"""Records what one lookup was charged and what was withheld from it, in the lookup's transaction, with the
account locked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from catalog import failpoints
from catalog.best.served import Hit
from catalog.models import Usage
from catalog.upsert import insert_or
from dashboard.billing import models
from dashboard.billing.accounts import add_days, post_event
from dashboard.billing.models import (
    Account,
    Kind,
    LedgerEntry,
    Mode,
    MonthCount,
    PriceRule,
    Purchase,
    UseAgreement,
)

FETCHED_WITHIN = timedelta(hours=1)
"""How long a job may take to load what it was served: minutes."""
_LATER = "CASE WHEN old.ends_at IS NULL THEN NULL ELSE new.ends_at END"


@dataclass(frozen=True, slots=True)
class Charge:
    """A served and charged hit, or the covered part of reported uses; the balance is what is left after it.
    ``opens``: it paid for the implementation itself."""

    hit: Hit | UseAgreement
    calls: float
    rule: PriceRule
    list_micros: int
    amount_micros: int
    balance_micros: int
    uses: int = 1
    opens: bool = False

    @property
    def saved_us(self) -> float:
        return self.calls * (self.hit.default_us - self.hit.median_us)

    @property
    def agreement(self) -> str:
        return self.hit.reference if isinstance(self.hit, UseAgreement) else ""


@dataclass(frozen=True, slots=True)
class WithheldHit:
    """A hit that is withheld."""

    hit: Hit
    rule: PriceRule
    price_micros: int


def record_charges(
    account: Account,
    now: datetime,
    month: date,
    charges: Sequence[Charge],
    usages: Sequence[Usage],
    key: str,
) -> None:
    """One ledger entry for each usage row, and the balance with them. ``key``: the prefix of the API key that
    asked; "": none."""
    entries = [
        _entry(account, now, charge, usage, key) for charge, usage in zip(charges, usages, strict=True)
    ]
    LedgerEntry.objects.bulk_create(entries, batch_size=50)
    Account.objects.filter(pk=account.pk).update(balance_micros=charges[-1].balance_micros)
    add_days(account.organisation_id, entries, [charge.saved_us for charge in charges])
    _count(account.organisation_id, month, charges)
    _note_purchases(account.organisation_id, now, charges)
    _tell_of_charges(account, entries, usages)
    failpoints.at("ledger-writing")


def _entry(account: Account, now: datetime, charge: Charge, usage: Usage, key: str) -> LedgerEntry:
    return LedgerEntry(
        organisation_id=account.organisation_id,
        at=now,
        kind=Kind.CHARGE,
        amount_micros=-charge.amount_micros,
        currency=account.currency,
        balance_after_micros=charge.balance_micros,
        usage_number=usage.pk,
        operator_key=charge.hit.key,
        job_name=usage.job.name if usage.job else "",
        key_prefix=key or None,
        rule_id=charge.rule.pk,
        list_micros=charge.list_micros,
        agreement=charge.agreement,
        uses=charge.uses,
        method=charge.hit.method,
        route=charge.hit.route,
    )


def _count(organisation_id: int, month: date, charges: Sequence[Charge]) -> None:
    sums: dict[tuple[Any, int], list[int]] = {}
    for charge in charges:
        capped = charge.rule.price.cap_operator_month_micros is not None
        for operator in (0, charge.hit.operator_id) if capped else (0,):
            counted = sums.setdefault((charge.rule.line, operator), [0, 0])
            counted[0] += charge.uses
            counted[1] += charge.amount_micros
    insert_or(
        MonthCount,
        [
            {
                "organisation_id": organisation_id,
                "line": line,
                "month": month,
                "operator_number": operator,
                "hits": hits,
                "amount_micros": amount,
            }
            for (line, operator), (hits, amount) in sorted(sums.items())
        ],
        unique=["organisation_id", "line", "month", "operator_number"],
        updates={name: f"old.{name} + new.{name}" for name in ("hits", "amount_micros")},
    )


def _note_purchases(organisation_id: int, now: datetime, charges: Sequence[Charge]) -> None:
    """A price a hit opens the implementation for ever, even if another price withholds it later. A withheld
    hit that was served for less is open until its job has fetched it. Reported uses open nothing: their hit
    did."""
    served = [one for one in charges if isinstance(one.hit, Hit)]
    paid = {one.hit.implementation_id for one in served if one.opens}
    free = {one.hit.implementation_id for one in served if one.rule.mode == Mode.WITHHOLD} - paid
    for numbers, ends_at, newest in ((paid, None, "new.ends_at"), (free, now + FETCHED_WITHIN, _LATER)):
        insert_or(
            Purchase,
            [
                {
                    "organisation_id": organisation_id,
                    "implementation_id": number,
                    "first_at": now,
                    "ends_at": ends_at,
                }
                for number in sorted(numbers)
            ],
            unique=["organisation_id", "implementation_id"],
            updates={"ends_at": newest},
        )


def _tell_of_charges(account: Account, entries: Sequence[LedgerEntry], usages: Sequence[Usage]) -> None:
    """One event for a lookup, however many hits it had."""
    post_event(
        account.organisation_id,
        "ledger.charged",
        {
            "account": account.reference,
            "currency": account.currency,
            "hits": len(entries),
            "amount_micros": -sum(entry.amount_micros for entry in entries),
            "balance_micros": entries[-1].balance_after_micros,
            "entries": [
                {
                    "entry": entry.pk,
                    "implementation": usage.implementation_id,
                    "method": entry.method,
                    "route": entry.route,
                    "calls": usage.calls,
                    "uses": entry.uses,
                    "amount_micros": -entry.amount_micros,
                    "rule": entry.rule_id,
                }
                for entry, usage in zip(entries, usages, strict=True)
            ],
        },
        key=f"ledger.charged:{entries[0].pk}",
    )


def record_held(account: Account, now: datetime, held: Sequence[WithheldHit]) -> None:
    """Count what was withheld today, and tell of what had not been withheld before today."""
    day = now.astimezone(UTC).date()
    by_number = {one.hit.implementation_id: one for one in held}
    known = set(
        models.Held.objects.filter(
            organisation_id=account.organisation_id, day=day, implementation__in=list(by_number)
        ).values_list("implementation_id", flat=True)
    )
    insert_or(
        models.Held,
        [
            {
                "organisation_id": account.organisation_id,
                "implementation_id": number,
                "day": day,
                "times": 1,
                "price_micros": one.price_micros,
                "last_at": now,
            }
            for number, one in sorted(by_number.items())
        ],
        unique=["organisation_id", "implementation_id", "day"],
        updates={
            "times": "old.times + 1",
            "price_micros": "new.price_micros",
            "last_at": "new.last_at",
        },
    )
    if fresh := sorted(by_number.keys() - known):
        _tell_of_held(account, [by_number[number] for number in fresh], day)


def _tell_of_held(account: Account, held: Sequence[WithheldHit], day: date) -> None:
    """One event for a lookup; an implementation is in one event a day."""
    post_event(
        account.organisation_id,
        "payment.required",
        {
            "account": account.reference,
            "currency": account.currency,
            "balance_micros": account.balance_micros,
            "items": [
                {
                    "operator": one.hit.key,
                    "implementation": one.hit.implementation_id,
                    "method": one.hit.method,
                    "route": one.hit.route,
                    "median_us": one.hit.median_us,
                    "default_us": one.hit.default_us,
                    "ratio_to_default": one.hit.ratio_to_default,
                    "price_micros": one.price_micros,
                    "rule": one.rule.pk,
                }
                for one in held
            ],
        },
        key=f"payment.required:{account.organisation_id}:{held[0].hit.implementation_id}:{day}",
    )
