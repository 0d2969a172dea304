"""Agreements on further uses: made when a hit is charged to a job with a limit, and billed when its client
reports uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from catalog.best.revoked import ENTRY_LIFE_S
from catalog.best.served import Hit
from catalog.charging import AgreedUses, Payer
from catalog.errors import RequestError, Unknown
from catalog.models import Usage
from catalog.people import audit
from catalog.upsert import insert_or
from catalog.usage.journal_line import JournalHit
from dashboard.billing.accounts import default_currency, locked
from dashboard.billing.desk import Desk, month_of
from dashboard.billing.models import JobSpending, UseAgreement
from dashboard.billing.recording import Charge, record_charges

KEPT = timedelta(days=7)
"""How long after its end uses may still be reported, by the next process if one was killed."""


def agree(payer: Payer, desk: Desk, now: datetime) -> dict[str, AgreedUses]:
    """Agreements for what was charged here, by operator key; an equal earlier one is prolonged."""
    if payer.limit is None or not desk.charges:
        return {}
    _spend(payer, payer.limit.micros, desk, now)
    until = now + timedelta(seconds=ENTRY_LIFE_S)
    covered = [(charge, *further) for charge in desk.charges if (further := desk.further(charge))[1] > 0]
    wanted = [_draft(payer, charge, payer.limit.micros, until) for charge, *_ in covered]
    known = {
        _said(row): row
        for row in UseAgreement.objects.filter(
            organisation=payer.organisation_id,
            job=payer.job,
            implementation__in=[draft.implementation_id for draft in wanted],
        )
    }
    rows = [known.get(_said(draft), draft) for draft in wanted]
    UseAgreement.objects.filter(pk__in=[row.pk for row in rows if row.pk]).update(valid_until=until)
    UseAgreement.objects.bulk_create([row for row in rows if not row.pk], batch_size=50)
    return {
        charge.hit.key: AgreedUses(
            row.reference, per_use, uses, desk.left(charge.rule), round(until.timestamp(), 3)
        )
        for row, (charge, per_use, uses) in zip(rows, covered, strict=True)
        if isinstance(charge.hit, Hit)
    }


def bill_uses(
    payer: Payer, uses: Mapping[str, int], record: Callable[[Sequence[JournalHit]], Sequence[Usage]]
) -> int | None:
    """See :meth:`catalog.charging.Charging.bill_uses`."""
    now = timezone.now()
    rows = UseAgreement.objects.filter(
        reference__in=list(uses),
        organisation=payer.organisation_id,
        job=payer.job,
        valid_until__gt=now - KEPT,
    )
    related = rows.select_related("rule", "implementation__operator").defer("implementation__operator__graph")
    agreements = list(related.order_by("pk"))
    if not agreements:
        return None
    account = locked(payer.organisation_id, agreements[0].rule.currency)
    desk = Desk(account, payer, now, [(one, one.rule) for one in agreements], spent_micros(payer))
    for one in agreements:
        desk.take_uses(one, uses[one.reference])
    usages = record([_hit(one, uses[one.reference]) for one in agreements])
    record_charges(account, now, month_of(now), desk.charges, usages, payer.key)
    _spend(payer, agreements[-1].limit_micros, desk, now)
    return min(desk.left_under(one) for one in agreements)


def end_spending(number: int, owned: Q, by: Mapping[str, Any]) -> JobSpending:
    """End a job's limit and its agreements; returns the row. ``owned``: whose rows may be ended; ``by``: who
    does it, as ``audit.record`` takes it. Unreported uses are not charged. Raises :class:`Unknown` if there
    is no such row, :class:`RequestError` if it has ended."""
    found = JobSpending.objects.filter(owned, pk=number)
    with transaction.atomic():
        row = found.first()
        if row is None:
            raise Unknown("There is no such spend limit.", where="id")
        locked(row.organisation_id, default_currency())  # first of all, as whoever charges does
        row = found.get()
        if row.ended_at is not None:
            raise RequestError("This spend limit has ended already.", where="id")
        row.ended_at, row.ended_as = timezone.now(), row.pk
        row.save(update_fields=["ended_at", "ended_as"])
        UseAgreement.objects.filter(organisation=row.organisation_id, job=row.job).delete()
        detail = {name: getattr(row, name) for name in ("limit_micros", "spent_micros", "uses")}
        audit.record(
            "billing.spending.end", subject=row.job, organisation=row.organisation_id, detail=detail, **by
        )
    return row


def forget_old_agreements() -> int:
    """The courier's chore."""
    return UseAgreement.objects.filter(valid_until__lt=timezone.now() - KEPT).delete()[0]


def _draft(payer: Payer, charge: Charge, limit_micros: int, until: datetime) -> UseAgreement:
    hit = charge.hit
    return UseAgreement(
        organisation_id=payer.organisation_id,
        job=payer.job,
        implementation_id=hit.implementation_id,
        rule_id=charge.rule.pk,
        limit_micros=limit_micros,
        calls=charge.calls,
        default_us=hit.default_us,
        median_us=hit.median_us,
        is_default=hit.is_default,
        valid_until=until,
    )


def _said(row: UseAgreement) -> tuple[object, ...]:
    """All that it is about."""
    names = ("implementation_id", "rule_id", "limit_micros", "calls", "default_us", "median_us", "is_default")
    return tuple(getattr(row, name) for name in names)


def _hit(agreement: UseAgreement, uses: int) -> JournalHit:
    return JournalHit(
        agreement.operator_id,
        agreement.implementation_id,
        agreement.route,
        agreement.method,
        agreement.median_us,
        agreement.default_us,
        uses * agreement.calls,
        agreement.is_default,
        lookups=uses,
    )


def spent_micros(payer: Payer) -> int:
    """What this job has spent under its limits so far."""
    mine = JobSpending.objects.filter(organisation=payer.organisation_id, job=payer.job, ended_as=0)
    return mine.values_list("spent_micros", flat=True).first() or 0


def _spend(payer: Payer, limit_micros: int, desk: Desk, now: datetime) -> None:
    insert_or(
        JobSpending,
        [
            {
                "organisation_id": payer.organisation_id,
                "job": payer.job,
                "ended_as": 0,
                "limit_micros": limit_micros,
                "spent_micros": desk.spent_micros,
                "uses": sum(charge.uses for charge in desk.charges),
                "last_at": now,
            }
        ],
        unique=["organisation_id", "job", "ended_as"],
        updates={
            "limit_micros": "new.limit_micros",
            "spent_micros": "old.spent_micros + new.spent_micros",
            "uses": "old.uses + new.uses",
            "last_at": "new.last_at",
        },
    )
