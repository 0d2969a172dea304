"""Old usage: single hits are kept for some whole months, and only sums of older ones.

A month is closed once its hours are rolled up. Its Usage rows are deleted, the tallies of its hours become
its days', and its rollups are not made again, since their source is gone. Statements, totals, jobs' days and
hours of traffic stay. What arrives later (the journal of a machine that was away for months) is counted in
sums only. The courier does a little of it in each call, in short transactions, and can be killed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from catalog import failpoints
from catalog.conf import conf
from catalog.models import ClosedUsage, LookupTally, StaleHour, Usage
from catalog.upsert import add_up
from catalog.usage import partitions

BATCH = 500
_SURELY_OPEN = timedelta(days=27)
"""A month is closed after another whole month, at the earliest."""
_BETWEEN = timedelta(days=1)
EVER = datetime.min.replace(tzinfo=UTC)
TALLIED = ("hits", "default_hits", "neighbour_hits", "misses", "hit_calls", "miss_calls", "saved_us")
"""The counts of lookups, wherever they are summed."""


def closed_before() -> datetime:
    """The beginning of the first open month (UTC); ``EVER`` if none was closed yet."""
    return ClosedUsage.objects.values_list("before", flat=True).first() or EVER


def boundary(oldest: datetime) -> datetime:
    """The same, if ``oldest`` is old enough to need it: otherwise no statement."""
    return EVER if oldest > timezone.now() - _SURELY_OPEN else closed_before()


def keep_by_rule() -> None:
    """The chore: make table parts for months ahead, and close months that have passed."""
    now = timezone.now()
    partitions.make_ahead(now)
    close(now)
    forget_usage()
    sum_by_day()


def close(now: datetime) -> bool:
    """Close the oldest open month older than ``OPATLAS_USAGE_MONTHS`` whole months. False if there is none,
    if some of its hours are not rolled up, or within a day after another: a clock that is wrongly years ahead
    then costs one month's detail only."""
    last = partitions.month_after(now, -conf().usage_months)
    row = ClosedUsage.objects.first()
    if row is not None and (row.before >= last or abs(now - row.closed_at) < _BETWEEN):
        return False
    oldest = Usage.objects.aggregate(oldest=Min("served_at"))["oldest"] or now
    before = min(last, partitions.month_after(oldest, 1))
    if row is not None and before <= row.before:  # its rows are still being deleted
        return False
    with transaction.atomic():
        if StaleHour.objects.filter(hour__lt=before, hour__gte=row.before if row else EVER).exists():
            return False
        ClosedUsage.objects.update_or_create(pk=1, defaults={"before": before, "closed_at": now})
    return True


def forget_usage() -> int:
    """Delete some closed usage: a whole month if the table has parts, else a batch; returns how many rows
    were deleted one by one."""
    before = closed_before()
    partitions.drop_one(before)
    closed = Usage.objects.filter(served_at__lt=before).order_by("served_at").values_list("pk", flat=True)
    numbers = list(closed[:BATCH])
    failpoints.at("usage-forgetting")
    return Usage.objects.filter(pk__in=numbers, served_at__lt=before).delete()[0] if numbers else 0


def sum_by_day() -> int:
    """Turn some tallies of closed hours into their day's; returns how many."""
    row = ClosedUsage.objects.first()
    if row is None or (row.by_day_before is not None and row.by_day_before >= row.before):
        return 0
    found = LookupTally.objects.filter(hour__lt=row.before).order_by("hour", "pk")
    if row.by_day_before is not None:
        found = found.filter(hour__gte=row.by_day_before)
    with transaction.atomic():
        hours = list(found.exclude(hour__hour=0).select_for_update()[:BATCH])
        _add_to_days(hours)
        failpoints.at("tallies-summing")
    if len(hours) < BATCH:
        ClosedUsage.objects.filter(pk=row.pk, before=row.before).update(by_day_before=row.before)
    return len(hours)


def _add_to_days(hours: Sequence[LookupTally]) -> None:
    add_up(
        LookupTally,
        ("hour", "operator_id", "organisation_id"),
        TALLIED,
        (
            (
                (day_of(tally.hour), tally.operator_id, tally.organisation_id),
                {name: getattr(tally, name) for name in TALLIED},
            )
            for tally in hours
        ),
    )
    LookupTally.objects.filter(pk__in=[tally.pk for tally in hours]).delete()


def day_of(at: datetime) -> datetime:
    """The day's first moment (UTC)."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
