"""Incoming payments, in the Standard Webhooks form: signed, once for each event, in a narrow time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction

from catalog.errors import RequestError, SystemFault, Unknown
from catalog.people import audit
from dashboard.billing.accounts import MOST_MICROS, Movement, RefundTooLarge, account_named, move
from dashboard.billing.models import Kind, LedgerEntry
from dashboard.conf import conf

TOLERANCE_S = 300
"""How far a message's time may be from ours."""

KINDS = {"payment.succeeded": Kind.CREDIT, "payment.refunded": Kind.REFUND}
_EVENT_ID = re.compile(r"[!-~]{1,200}")
_PROVIDER = re.compile(r"[a-z0-9_-]{1,40}")


class NotSigned(RequestError):
    """A message whose signature, or whose time, does not count."""

    status = 401


class Conflict(RequestError):
    """An event id that came before, with another content."""

    status = 409


@dataclass(frozen=True)
class Received:
    """What came of a message. ``repeated``: the event was known, and nothing was added."""

    entry: LedgerEntry
    repeated: bool


def secrets_of(provider: str) -> list[bytes]:
    """A provider's signing secrets (several during a rotation); raises :class:`Unknown`."""
    pairs = (item.partition("=") for item in conf().payment_secrets)
    found = [_key(secret.strip()) for name, _, secret in pairs if name.strip() == provider]
    if not _PROVIDER.fullmatch(provider) or not found:
        raise Unknown("No payment provider has this name here.", where="provider")
    return found


def sign(key: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message: ``v1,`` and base64 of HMAC-SHA-256."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def verify(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: float | None = None) -> str:
    """The event's id, if one of the keys signed this message lately; raises :class:`NotSigned`."""
    event_id = headers.get("webhook-id", "")
    stamp = headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split()[:16]
    if not _EVENT_ID.fullmatch(event_id) or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise NotSigned("A payment needs the headers webhook-id, webhook-timestamp and webhook-signature.")
    wanted = [sign(key, event_id, int(stamp), body).encode() for key in keys]
    pairs = [(one.encode("utf-8", "replace"), right) for one in given for right in wanted]
    # All are compared, so that time tells nothing.
    if not sum(hmac.compare_digest(one, right) for one, right in pairs):
        raise NotSigned("The signature is not ours: sign id.timestamp.body with this provider's secret.")
    if abs((time.time() if now is None else now) - int(stamp)) > TOLERANCE_S:
        raise NotSigned(f"The message's time is more than {TOLERANCE_S} s from ours: send it again.")
    return event_id


def receive(provider: str, event_id: str, body: bytes, document: Any) -> Received:
    """Add a payment that was verified; the same event again adds nothing, whoever is first."""
    digest = hashlib.sha256(body).hexdigest()
    known = LedgerEntry.objects.filter(provider=provider, event_id=event_id).first()
    if known is not None:
        return _again(known, digest)
    account, currency, movement = _parse(document, provider, event_id, digest)
    try:
        with transaction.atomic():
            entry = move(account_named(account).organisation_id, currency, movement)
            audit.record(
                "billing.payment",
                subject=movement.reason,
                actor=f"payments of {provider}",
                organisation=entry.organisation_id,
                detail={"entry": entry.pk, "amount_micros": entry.amount_micros, "event": event_id},
            )
            return Received(entry, False)
    except (IntegrityError, RefundTooLarge):
        # The same event, at the same time: the other one may have added it.
        known = LedgerEntry.objects.filter(provider=provider, event_id=event_id).first()
        if known is None:
            raise
        return _again(known, digest)


def _again(known: LedgerEntry, digest: str) -> Received:
    if known.event_sha256 != digest:
        raise Conflict("This event came before with another content: nothing was added.", where="webhook-id")
    return Received(known, True)


def _parse(document: Any, provider: str, event_id: str, digest: str) -> tuple[str, str, Movement]:
    """Account reference, currency, movement."""
    if not isinstance(document, dict) or document.get("type") not in KINDS:
        raise RequestError(f"type is one of {', '.join(KINDS)}.", where="type")
    data = document.get("data")
    if not isinstance(data, dict):
        raise RequestError("data has account, amount_micros and currency.", where="data")
    account, currency, amount = (data.get(name) for name in ("account", "currency", "amount_micros"))
    if not isinstance(account, str) or not 0 < len(account) <= 40:
        raise RequestError("account is the account's reference: acct_…", where="data.account")
    if not isinstance(currency, str) or len(currency) != 3:
        raise RequestError("currency is three letters: EUR.", where="data.currency")
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 < amount <= MOST_MICROS:
        raise RequestError(
            f"amount_micros is a whole number of millionths, from 1 to {MOST_MICROS}.",
            where="data.amount_micros",
        )
    reference = data.get("reference", "")
    if not isinstance(reference, str) or len(reference) > 200:
        raise RequestError("reference is a text of at most 200 characters.", where="data.reference")
    kind = KINDS[document["type"]]
    payment = _payment(data) if kind == Kind.REFUND else ""
    what = f"Refund of {payment}" if payment else "Payment"
    reason = f"{what} by {provider}" + (f": {reference}" if reference else "")
    signed = amount if kind == Kind.CREDIT else -amount
    return account, currency, Movement(kind, signed, reason, provider, provider, event_id, digest, payment)


def _payment(data: Mapping[str, Any]) -> str:
    """Which payment a refund is of."""
    payment = data.get("payment")
    if not isinstance(payment, str) or not _EVENT_ID.fullmatch(payment):
        raise RequestError(
            "A refund names its payment: payment is the webhook-id of that event.", where="data.payment"
        )
    return payment


def _key(secret: str) -> bytes:
    """The bytes of a ``whsec_…``."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SystemFault("OPATLAS_PAYMENT_SECRETS has a secret that is no base64.") from error
