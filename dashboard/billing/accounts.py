"""Accounts and their ledger: every movement of money, one transaction each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import Organisation
from catalog.people import audit
from catalog.upsert import insert_or
from dashboard.billing.models import Account, Kind, LedgerDay, LedgerEntry, Plan
from dashboard.conf import conf

MOST_MICROS = 10**15
"""The largest movement (a thousand million units)."""

CURRENCIES = (
    "EUR",
    "USD",
    "GBP",
    "CHF",
    "JPY",
    "CNY",
    "INR",
    "SEK",
    "NOK",
    "DKK",
    "PLN",
    "CZK",
    "CAD",
    "AUD",
)


class RefundTooLarge(RequestError):
    """More than is left of the payment."""

    status = 409


@dataclass(frozen=True)
class Movement:
    """Money that moves other than by a hit. ``event_id`` with its provider makes it happen once. A refund
    names its ``payment`` by the provider's event id."""

    kind: str
    amount_micros: int
    reason: str
    actor: str
    provider: str = ""
    event_id: str = ""
    event_sha256: str = ""
    payment: str = ""


def locked(organisation_id: int, currency: str) -> Account:
    """The organisation's account, made if there is none yet, and locked until the transaction ends."""
    rows = Account.objects.select_for_update().filter(organisation_id=organisation_id)
    account = rows.first()
    if account is None:
        # Whoever is first decides the currency; the other finds the row.
        made = Account(organisation_id=organisation_id, currency=currency)
        Account.objects.bulk_create([made], ignore_conflicts=True)
        account = rows.get()
    return account


def limit_micros(account: Account, now: datetime) -> int:
    """How far below zero withheld hits may take the balance now."""
    return account.credit_limit_micros if account.plan == Plan.POSTPAID and plan_runs(account, now) else 0


def plan_runs(account: Account, now: datetime) -> bool:
    return account.plan != Plan.NONE and (account.plan_until is None or now < account.plan_until)


def move(organisation_id: int, currency: str, movement: Movement) -> LedgerEntry:
    """Add one entry other than a charge, and tell the organisation's webhooks of credit. Raises
    :class:`RequestError` if the account has another currency, the amount is impossible, or a refund names no
    payment or exceeds what is left of it."""
    if not 0 < abs(movement.amount_micros) <= MOST_MICROS:
        raise RequestError("An amount is not nothing, and at most a thousand million.", where="amount")
    with transaction.atomic():
        account = locked(organisation_id, currency)
        if account.currency != currency:
            raise RequestError(f"This account is kept in {account.currency}.", where="currency")
        after = account.balance_micros + movement.amount_micros
        entry = LedgerEntry(
            organisation_id=organisation_id,
            at=timezone.now(),
            kind=movement.kind,
            amount_micros=movement.amount_micros,
            currency=currency,
            balance_after_micros=after,
            reason=movement.reason[:300],
            actor=movement.actor[:200],
            provider=movement.provider,
            event_id=movement.event_id,
            event_sha256=movement.event_sha256,
            refund_of=_payment_of(movement, organisation_id) if movement.kind == Kind.REFUND else None,
        )
        entry.save()
        Account.objects.filter(pk=account.pk).update(balance_micros=after)
        add_days(organisation_id, [entry], [0.0])
        if movement.kind == Kind.CREDIT:
            tell_of_credit(account, entry)
    return entry


def _payment_of(refund: Movement, organisation_id: int) -> LedgerEntry:
    """The payment that a refund returns. The account is locked, so that two refunds cannot share it."""
    payment = LedgerEntry.objects.filter(
        organisation_id=organisation_id, kind=Kind.CREDIT, provider=refund.provider, event_id=refund.payment
    ).first()
    if payment is None or not refund.provider:
        raise Unknown(
            "A refund names the webhook-id of its payment, which came to this account by the same provider.",
            where="data.payment",
        )
    taken = payment.refunds.aggregate(micros=Sum("amount_micros"))["micros"] or 0
    left = payment.amount_micros + taken
    if -refund.amount_micros > left:
        raise RefundTooLarge(f"Of this payment {left} are left to refund.", where="data.amount_micros")
    return payment


def add_days(organisation_id: int, entries: Sequence[LedgerEntry], saved_us: Sequence[float]) -> None:
    """Count entries in the sums that pages read, in the transaction that adds them."""
    sums: dict[tuple[Any, str, str], list[Any]] = {}
    for entry, saved in zip(entries, saved_us, strict=True):
        key = (entry.at.astimezone(UTC).date(), str(entry.kind), entry.method)
        counted = sums.setdefault(key, [0, 0, 0.0])
        counted[0] += 1
        counted[1] += entry.amount_micros
        counted[2] += saved
    names = ("entries", "amount_micros", "saved_us")
    insert_or(
        LedgerDay,
        [
            {"organisation_id": organisation_id, "day": day, "kind": kind, "method": method}
            | dict(zip(names, counted, strict=True))
            for (day, kind, method), counted in sorted(sums.items())
        ],
        unique=["organisation_id", "day", "kind", "method"],
        updates={name: f"old.{name} + new.{name}" for name in names},
    )


def tell_of_credit(account: Account, entry: LedgerEntry) -> None:
    post_event(
        entry.organisation_id,
        "credit.added",
        {
            "account": account.reference,
            "entry": entry.pk,
            "amount_micros": entry.amount_micros,
            "currency": entry.currency,
            "balance_micros": entry.balance_after_micros,
            "reason": entry.reason,
        },
        key=f"credit.added:{entry.pk}",
    )


def post_event(organisation_id: int, event_type: str, data: Mapping[str, Any], *, key: str) -> None:
    """Put an event into the webhooks' outbox: it leaves when the caller's transaction commits."""
    from dashboard.webhooks.sending import send

    send(organisation_id, event_type, data, key=key)


def give_credit(
    organisation: Organisation, amount_micros: int, reason: str, *, currency: str, by: Mapping[str, Any]
) -> LedgerEntry:
    """Credit (or, below zero, a correction) by hand, with a reason, in the audit log. ``by``: who did it, as
    :func:`catalog.people.audit.record` takes it: user, api_key, request, actor."""
    reason = " ".join(reason.split())
    if not reason:
        raise RequestError("Say why: credit by hand needs a reason.", where="reason")
    kind = Kind.CREDIT if amount_micros > 0 else Kind.ADJUSTMENT
    who = by.get("actor") or str(by.get("user") or by.get("api_key") or "the service")
    with transaction.atomic():
        entry = move(organisation.pk, check_currency(currency), Movement(kind, amount_micros, reason, who))
        audit.record(
            f"billing.{kind}",
            subject=organisation.name,
            organisation=organisation,
            detail={
                "amount_micros": amount_micros,
                "currency": currency,
                "reason": reason,
                "entry": entry.pk,
            },
            **by,
        )
    return entry


def set_plan(
    organisation: Organisation,
    plan: str,
    until: datetime | None,
    credit_limit_micros: int,
    *,
    currency: str,
    by: Mapping[str, Any],
) -> Account:
    """Give an organisation a plan until a date (None: until it is changed)."""
    if plan not in Plan.values:
        raise RequestError(f"A plan is one of {', '.join(Plan.values)}.", where="plan")
    if not 0 <= credit_limit_micros <= MOST_MICROS:
        raise RequestError("A credit limit is from 0 to a thousand million.", where="credit_limit")
    with transaction.atomic():
        account = locked(organisation.pk, check_currency(currency))
        account.plan, account.plan_until, account.credit_limit_micros = plan, until, credit_limit_micros
        account.save(update_fields=["plan", "plan_until", "credit_limit_micros"])
        audit.record(
            "billing.plan",
            subject=organisation.name,
            organisation=organisation,
            detail={
                "plan": plan,
                "until": until.isoformat() if until else None,
                "credit_limit_micros": credit_limit_micros,
            },
            **by,
        )
    return account


def account_named(reference: str) -> Account:
    account = Account.objects.filter(reference=reference).first() if "\0" not in reference else None
    if account is None:
        raise Unknown("There is no account with this reference.", where="data.account")
    return account


def open_account(organisation_id: int, currency: str = "") -> Account:
    """The organisation's account, made if needed: a page must say where to pay."""
    account = Account.objects.filter(organisation_id=organisation_id).first()
    if account is None:
        with transaction.atomic():
            account = locked(organisation_id, currency or default_currency())
    return account


def default_currency() -> str:
    return conf().currency


def check_currency(currency: str) -> str:
    if currency not in CURRENCIES:
        raise RequestError(f"A currency is one of {', '.join(CURRENCIES)}.", where="currency")
    return currency
