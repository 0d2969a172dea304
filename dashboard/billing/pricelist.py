"""The list of prices: rules are added, replaced by a next version, and ended; none is edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import Organisation
from catalog.nearest import meant
from catalog.people import audit
from dashboard.billing import rules
from dashboard.billing.accounts import MOST_MICROS, check_currency
from dashboard.billing.conditions import CONDITIONS, NAMES, PriceCondition
from dashboard.billing.models import Account, Mode, PriceRule

MOST_TIERS = 20
MOST_HITS = 10**12
MOST_PRIORITY = 1000
WHILE_TYPED = timedelta(minutes=5)
"""A moment this recent counts as now: it was typed, and then the costs were looked at."""


def check(draft: PriceRule) -> PriceRule:
    """The draft, tidied; raises :class:`RequestError` with one sentence and the field's name."""
    draft.name = " ".join(draft.name.split())
    if not 0 < len(draft.name) <= 100:
        raise RequestError("A rule needs a name of at most 100 characters.", where="name")
    check_currency(draft.currency)
    for where in ("mode", "note", *NAMES):
        _check_text(draft, where)
    for condition in CONDITIONS:
        _check_known(condition, getattr(draft, condition.name))
    if not isinstance(draft.charges_default, bool):
        raise RequestError("charges_default is true or false.", where="charges_default")
    _within(draft.priority, -MOST_PRIORITY, MOST_PRIORITY, "priority")
    for where in ("per_hit_micros", "per_saved_second_micros"):
        _within(getattr(draft, where), 0, MOST_MICROS, where)
    for where in ("cap_month_micros", "cap_operator_month_micros"):
        if getattr(draft, where) is not None:
            _within(getattr(draft, where), 0, MOST_MICROS, where)
    _check_tiers(draft.tiers)
    _check_sold(draft)
    if draft.organisation_id is not None:
        if not Organisation.objects.filter(pk=draft.organisation_id).exists():
            raise RequestError("There is no organisation with this number.", where="organisation")
        _check_account(draft, draft.organisation_id)
    _check_moments(draft, timezone.now())
    return draft


def _check_sold(draft: PriceRule) -> None:
    """Paying for one hit buys what it served for good, and callers report the time saved: such a price needs
    a price a hit."""
    first = {"per_hit_micros": draft.per_hit_micros, "per_saved_second_micros": draft.per_saved_second_micros}
    for tier in (first, *draft.tiers):
        if draft.mode == Mode.WITHHOLD and tier.get("per_saved_second_micros") and not tier["per_hit_micros"]:
            raise RequestError(
                "What is withheld is sold by the hit: time saved alone may come to a millionth. Give each "
                "tier that has a price a second a price a hit too.",
                where="per_hit_micros" if tier is first else "tiers",
            )


def _check_moments(draft: PriceRule, now: datetime) -> None:
    if draft.from_at and draft.from_at < now - WHILE_TYPED:
        raise RequestError(
            "A price begins now or later: what was served before keeps the price of then.", where="from_at"
        )
    if draft.until_at and draft.until_at <= (draft.from_at or now):
        raise RequestError("A rule ends after it begins.", where="until_at")


def _check_account(draft: PriceRule, organisation_id: int) -> None:
    """A rule for one organisation is in the currency of its account: in another it would never apply."""
    account = Account.objects.filter(organisation_id=organisation_id).first()
    if account and account.currency != draft.currency:
        raise RequestError(f"This organisation's account is kept in {account.currency}.", where="currency")


def add(draft: PriceRule, by: Mapping[str, Any]) -> PriceRule:
    """A new rule, in force from ``from_at``. ``by`` is what ``audit.record`` takes of who did it."""
    return _write(check(draft), by, "billing.rule.add")


def change(last: PriceRule, draft: PriceRule, by: Mapping[str, Any]) -> PriceRule:
    """The next version of a rule: the one before, ``last``, ends when it begins."""
    draft = check(draft)
    draft.from_at = max(draft.from_at or timezone.now(), last.from_at)
    with transaction.atomic():
        if not _end_row(last, draft.from_at):  # since it was read
            check_open(history(last.line)[0])
            raise RequestError(f"{last} is no longer the newest version: read it again.", where="line")
        draft.line, draft.version = last.line, last.version + 1
        return _write(draft, by, "billing.rule.change")


def check_open(last: PriceRule) -> None:
    """Raises :class:`RequestError` for a rule that has ended or will end: nothing can follow it."""
    if last.until_at is not None:
        raise RequestError("This rule has ended: add a new one.", where="line")


def end(line: UUID, by: Mapping[str, Any], at: datetime | None = None) -> PriceRule:
    """End a rule now, or at a moment to come."""
    with transaction.atomic():
        last = _last(line)
        if not _end_row(last, max(at or timezone.now(), last.from_at)):
            raise RequestError("This rule has ended already.", where="line")
        audit.record("billing.rule.end", subject=str(last), detail={"rule": last.pk}, **by)
    transaction.on_commit(rules.forget)
    return PriceRule.objects.get(pk=last.pk)


def history(line: UUID) -> list[PriceRule]:
    """Every version, the newest first; raises :class:`Unknown`."""
    rows = list(PriceRule.objects.filter(line=line).select_related("organisation").order_by("-version"))
    if not rows:
        raise Unknown("There is no such price rule.", where="line")
    return rows


def _write(row: PriceRule, by: Mapping[str, Any], action: str) -> PriceRule:
    row.from_at = row.from_at or timezone.now()
    row.created_by = (by.get("actor") or str(by.get("user") or by.get("api_key") or "the service"))[:200]
    with transaction.atomic():
        row.save()
        audit.record(
            action, subject=str(row), organisation=row.organisation_id, detail={"rule": row.pk}, **by
        )
    transaction.on_commit(rules.forget)
    return row


def _last(line: UUID) -> PriceRule:
    row = PriceRule.objects.select_for_update().filter(line=line).order_by("-version").first()
    if row is None:
        raise Unknown("There is no such price rule.", where="line")
    return row


def _end_row(row: PriceRule, at: datetime) -> bool:
    """Whether this call ended it. A version with a later end cannot be ended again."""
    return PriceRule.objects.filter(pk=row.pk, until_at=None).update(until_at=at) == 1


def _check_tiers(tiers: Sequence[Mapping[str, int]]) -> None:
    if len(tiers) > MOST_TIERS:
        raise RequestError(f"A rule has at most {MOST_TIERS} tiers.", where="tiers")
    before = 1
    for number, tier in enumerate(tiers):
        where = f"tiers[{number}]"
        if not tier.keys() <= {"from_hit", "per_hit_micros", "per_saved_second_micros"} or not (
            {"from_hit", "per_hit_micros"} <= tier.keys()
        ):
            raise RequestError(
                "A tier has from_hit and per_hit_micros, and may have per_saved_second_micros.", where=where
            )
        _within(tier["from_hit"], before + 1, MOST_HITS, f"{where}.from_hit")
        _within(tier["per_hit_micros"], 0, MOST_MICROS, f"{where}.per_hit_micros")
        _within(tier.get("per_saved_second_micros", 0), 0, MOST_MICROS, f"{where}.per_saved_second_micros")
        before = tier["from_hit"]


def _check_text(draft: PriceRule, where: str) -> None:
    """By the field's choices, else by its length."""
    field: Any = PriceRule._meta.get_field(where)
    text = getattr(draft, where)
    values = [*([""] if field.blank else []), *(value for value, _ in field.choices or ())]
    if field.choices and text not in values:
        raise RequestError(f"{where} is one of {', '.join(v or 'nothing' for v in values)}.", where=where)
    if len(text) > field.max_length or not text.isprintable():
        raise RequestError(f"{where} has at most {field.max_length} printable characters.", where=where)


def _check_known(condition: PriceCondition, value: str) -> None:
    """A rule for what does not exist would silently charge nothing. Of a fused type each part counts."""
    if not value or condition.known is None:
        return
    known = condition.known()
    missing = next((part for part in value.split("+") if part not in known), None)
    if value in known or missing is None:
        return
    raise RequestError(
        f"There is no {condition.name} {missing!r}: {meant(missing, known)}", where=condition.name
    )


def _within(value: object, low: int, high: int, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{where} is a whole number from {low} to {high}.", where=where)
