"""The list of prices: rules are added, replaced by a next version, and ended; none is ever edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import Method, Organisation
from catalog.people import audit
from dashboard.billing import rules
from dashboard.billing.accounts import MOST_MICROS, check_currency
from dashboard.billing.models import Account, Mode, PriceRule

MOST_TIERS = 20
MOST_HITS = 10**12
MOST_PRIORITY = 1000


@dataclass(frozen=True)
class Draft:
    """A price rule that is not in force yet. Amounts in millionths; tiers by rising ``from_hit``, from 2."""

    name: str
    currency: str
    organisation_id: int | None = None
    method: str = ""
    route: str = ""
    op_type: str = ""
    scope: str = ""
    mode: str = Mode.PROMPT
    priority: int = 0
    per_hit_micros: int = 0
    per_saved_second_micros: int = 0
    tiers: Sequence[Mapping[str, int]] = ()
    cap_month_micros: int | None = None
    cap_operator_month_micros: int | None = None
    from_at: datetime | None = None  # None: at once
    until_at: datetime | None = None
    note: str = ""


def check(draft: Draft) -> Draft:
    """The draft, tidied; raises :class:`RequestError` with one sentence and the field's name."""
    name = " ".join(draft.name.split())
    if not 0 < len(name) <= 100:
        raise RequestError("A rule needs a name of at most 100 characters.", where="name")
    check_currency(draft.currency)
    _one_of(draft.method, ("", *Method.values), "method")
    _one_of(draft.mode, Mode.values, "mode")
    _one_of(draft.scope, ("", "shared", "private"), "scope")
    for where, most in (("route", 40), ("op_type", 100), ("note", 300)):
        text = getattr(draft, where)
        if len(text) > most or not text.isprintable():
            raise RequestError(f"{where} has at most {most} printable characters.", where=where)
    _within(draft.priority, -MOST_PRIORITY, MOST_PRIORITY, "priority")
    for where in ("per_hit_micros", "per_saved_second_micros"):
        _within(getattr(draft, where), 0, MOST_MICROS, where)
    for where in ("cap_month_micros", "cap_operator_month_micros"):
        if getattr(draft, where) is not None:
            _within(getattr(draft, where), 0, MOST_MICROS, where)
    _check_tiers(draft.tiers)
    if (
        draft.organisation_id is not None
        and not Organisation.objects.filter(pk=draft.organisation_id).exists()
    ):
        raise RequestError("There is no organisation with this number.", where="organisation")
    _check_account(draft)
    if draft.from_at and draft.until_at and draft.until_at <= draft.from_at:
        raise RequestError("A rule ends after it begins.", where="until_at")
    return replace(draft, name=name)


def _check_account(draft: Draft) -> None:
    """A rule for one organisation is in the currency of its account: in another it would never apply."""
    if draft.organisation_id is not None:
        kept = Account.objects.filter(organisation_id=draft.organisation_id).values_list(
            "currency", flat=True
        )
        if (currency := kept.first()) and currency != draft.currency:
            raise RequestError(f"This organisation's account is kept in {currency}.", where="currency")


def add(draft: Draft, by: Mapping[str, Any]) -> PriceRule:
    """A new rule, in force from ``from_at``. ``by`` is what ``audit.record`` takes of who did it."""
    return _write(check(draft), uuid4(), 1, by, "billing.rule.add")


def change(line: UUID, draft: Draft, by: Mapping[str, Any]) -> PriceRule:
    """The next version of a rule: the one before ends when it begins."""
    draft = check(draft)
    with transaction.atomic():
        last = _last(line)
        begins = max(draft.from_at or timezone.now(), last.from_at)
        if not _end_row(last, begins):
            raise RequestError("This rule has ended: add a new one.", where="line")
        return _write(replace(draft, from_at=begins), line, last.version + 1, by, "billing.rule.change")


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


def _write(draft: Draft, line: UUID, version: int, by: Mapping[str, Any], action: str) -> PriceRule:
    who = by.get("actor") or str(by.get("user") or by.get("api_key") or "the service")
    values = asdict(draft) | {
        "from_at": draft.from_at or timezone.now(),
        "tiers": [dict(t) for t in draft.tiers],
    }
    row = PriceRule(**values, line=line, version=version, created_by=who[:200])
    with transaction.atomic():
        row.save()
        audit.record(
            action, subject=str(row), organisation=draft.organisation_id, detail={"rule": row.pk}, **by
        )
    transaction.on_commit(rules.forget)
    return row


def _last(line: UUID) -> PriceRule:
    row = PriceRule.objects.select_for_update().filter(line=line).order_by("-version").first()
    if row is None:
        raise Unknown("There is no such price rule.", where="line")
    return row


def _end_row(row: PriceRule, at: datetime) -> bool:
    """Whether it was this call that ended it. A version that is to end later may not be ended again."""
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


def _one_of(value: str, values: Sequence[str], where: str) -> None:
    if value not in values:
        raise RequestError(f"{where} is one of {', '.join(v or 'nothing' for v in values)}.", where=where)


def _within(value: object, low: int, high: int, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{where} is a whole number from {low} to {high}.", where=where)
