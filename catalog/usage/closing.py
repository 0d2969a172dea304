"""Old usage, by rule: hits one by one for some whole months; of what is older the sums alone.

A month is closed once its hours are rolled up: its Usage rows go, the tallies of its hours become its days',
and no rollup of it is made again, since what it would be made of is gone. Statements, totals, jobs' days and
hours of traffic stay as they were. What arrives later (a journal of a machine that was away for months) is
counted in sums and has no row of its own.

The courier's chore; each call does a little of each, in short transactions, and can be killed anywhere.
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
"""A month is closed after a whole month more, at the earliest."""
_BETWEEN = timedelta(days=1)
EVER = datetime.min.replace(tzinfo=UTC)
TALLIED = ("hits", "default_hits", "neighbour_hits", "misses", "hit_calls", "miss_calls", "saved_us")
"""What is counted of lookups, wherever it is added up."""


def closed_before() -> datetime:
    """The beginning of the first month (UTC) that is not closed; ``EVER`` where none was closed yet."""
    return ClosedUsage.objects.values_list("before", flat=True).first() or EVER


def boundary(oldest: datetime) -> datetime:
    """The same, for what is not older than ``oldest``: asks the database only where that is old enough."""
    return EVER if oldest > timezone.now() - _SURELY_OPEN else closed_before()


def keep_by_rule() -> None:
    """The chore: months ahead get their part of the table, months that have passed are closed."""
    now = timezone.now()
    partitions.make_ahead(now)
    close(now)
    forget_usage()
    sum_by_day()


def close(now: datetime) -> bool:
    """Close the oldest month that is not closed and older than ``OPATLAS_USAGE_MONTHS`` whole months; False
    where none is, where hours of it are not rolled up yet, and within a day after another: a clock that is
    years ahead for a while costs a month's detail, and not all of it."""
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
    """Some of what is closed: a month whole where the table has parts, else a batch of rows; how many rows
    were deleted one by one."""
    before = closed_before()
    partitions.drop_one(before)
    closed = Usage.objects.filter(served_at__lt=before).order_by("served_at").values_list("pk", flat=True)
    numbers = list(closed[:BATCH])
    failpoints.at("usage-forgetting")
    return Usage.objects.filter(pk__in=numbers, served_at__lt=before).delete()[0] if numbers else 0


def sum_by_day() -> int:
    """Some tallies of closed hours become their day's; how many."""
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
    """Its first moment (UTC)."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
