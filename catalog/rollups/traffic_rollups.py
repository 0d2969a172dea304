"""Traffic rolled up: slots of hours and days, routes by day, and each operator's totals.

``refresh`` reads the marks, computes, writes, and clears the marks only where nobody marked again since they
were read. Statements run one by one, so that nobody waits for a long transaction; what is read too early is
made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Count, Exists, F, Max, Min, Model, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import TruncHour

from catalog import failpoints, models
from catalog.models import EVERYBODY, Grain
from catalog.steps import each
from catalog.usage import closing
from catalog.usage.stale import mark_stale

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_BATCH = 400
_SAVED_US = F("calls") * (F("default_us") - F("median_us"))
_SUMS = {
    name: Sum(name) for name in ("hits", "default_hits", "misses", "hit_calls", "miss_calls", "saved_us")
}
_DISTINCT = {
    "operators_asked": Count("operator", distinct=True),
    "operators_hit": Count("operator", distinct=True, filter=Q(hits__gt=0)),
}
"""Before the sums in a query: these take the name of what they sum up."""

_T = TypeVar("_T")


def refresh() -> bool:
    """Make every marked hour again, its day, and the operators asked for in it; False: nothing was marked.
    Marks of closed months (``catalog.usage.closing``) go: their rows say less than their rollups do."""
    marks = list(models.StaleHour.objects.order_by("hour"))
    if not marks:
        return False
    if marks[0].hour < (open_from := closing.closed_before()):
        models.StaleHour.objects.filter(hour__lt=open_from).delete()
        marks = [mark for mark in marks if mark.hour >= open_from]
    days: dict[datetime, list[datetime]] = defaultdict(list)
    for mark in marks:
        days[mark.hour.replace(hour=0)].append(mark.hour)
    operators: set[int] = set()

    def make(day: datetime) -> datetime:
        _make_hours(days[day])
        _make_day(day)
        asked = models.LookupTally.objects.filter(hour__in=days[day])
        operators.update(asked.values_list("operator_id", flat=True).distinct())
        return day

    made = set(each("rolling up a day", days, make))
    _make_totals(operators)
    for mark in marks:
        if mark.hour.replace(hour=0) in made:
            # Marked again meanwhile: what was read may lack those rows.
            models.StaleHour.objects.filter(pk=mark.pk, marks=mark.marks).delete()
    return bool(made)


def reuse() -> dict[str, dict[str, int]]:
    """Tenant → how jobs share operators (``catalog.selectors.statistics.ReuseFigures``)."""
    rows = models.OperatorTotal.objects.filter(jobs__gt=0).values("tenant")
    sums: Any = rows.annotate(
        operators=Count("pk"), job_operators=Sum("jobs"), shared=Count("pk", filter=Q(jobs__gte=2))
    ).order_by()
    return {row.pop("tenant"): dict(row) for row in sums}


def mark_everything() -> None:
    """Mark every hour that has a tally."""
    mark_stale(models.LookupTally.objects.values_list("hour", flat=True).distinct().order_by())


def drop_what_has_no_source() -> None:
    """Remove rollup rows whose tallies are gone (operators and organisations can be deleted), of months that
    are not closed."""
    open_from = closing.closed_before()
    hours = set(models.LookupTally.objects.values_list("hour", flat=True).distinct().order_by())
    days = {hour.replace(hour=0) for hour in hours}
    found: tuple[tuple[Any, set[datetime]], ...] = (
        (models.TrafficSlot.objects.filter(grain=Grain.HOUR), hours),
        (models.TrafficSlot.objects.filter(grain=Grain.DAY), days),
        (models.RouteSlot.objects.all(), days),
    )
    for rows, there in found:
        rows = rows.filter(start__gte=open_from)
        starts = rows.values_list("start", flat=True).distinct().order_by()
        for gone in _batches(sorted(set(starts) - there), _BATCH):
            rows.filter(start__in=gone).delete()
    tallies = models.LookupTally.objects.filter(operator=OuterRef("operator"))
    models.OperatorTotal.objects.filter(~Exists(tallies)).delete()


def tenant_of(organisation_id: int) -> str:
    """The ``tenant`` of one organisation's rows."""
    return f"org:{organisation_id}"


def _make_hours(hours: Sequence[datetime]) -> None:
    tallies = models.LookupTally.objects.filter(hour__in=hours)
    served = models.Usage.objects.filter(served_at__gte=hours[0], served_at__lt=hours[-1] + _HOUR)
    served = served.annotate(start=TruncHour("served_at")).filter(start__in=hours)
    slots = _slots(tallies.annotate(start=F("hour")), served)
    _replace(Grain.HOUR, hours, slots)


def _make_day(day: datetime) -> None:
    """Sums come from the day's hours, distinct counts from its rows."""
    found = models.TrafficSlot.objects.filter(grain=Grain.HOUR, start__gte=day, start__lt=day + _DAY)
    sums: Any = found.values("tenant").annotate(**_SUMS, reused_hits=Sum("reused_hits")).order_by()
    tallies = models.LookupTally.objects.filter(hour__gte=day, hour__lt=day + _DAY)
    counted: Any = tallies.values("organisation_id").annotate(**_DISTINCT).order_by()
    asked = {tenant_of(row.pop("organisation_id")): row for row in counted}
    asked[EVERYBODY] = tallies.aggregate(**_DISTINCT)
    served = models.Usage.objects.filter(served_at__gte=day, served_at__lt=day + _DAY)
    jobs = {
        tenant_of(row["organisation_id"]): row["n"]
        for row in served.values("organisation_id").annotate(n=Count("job", distinct=True)).order_by()
    }
    jobs[EVERYBODY] = sum(jobs.values())
    slots = [
        models.TrafficSlot(
            start=day,
            grain=Grain.DAY,
            jobs=jobs.get(row["tenant"], 0),
            **asked.get(row["tenant"], {}),
            **row,
        )
        for row in sums
    ]
    _replace(Grain.DAY, [day], slots)
    _make_routes(day, served)


def _slots(tallies: Any, served: Any) -> Iterator[models.TrafficSlot]:
    """Hours, by organisation and of all. A job is one organisation's, so that jobs add up."""
    more = {
        (row["start"], row["organisation_id"]): (row["n_jobs"], row["n_reused"] - row["n_own"])
        for row in _with_first_miss(served)
        .values("start", "organisation_id")
        .annotate(
            n_jobs=Count("job", distinct=True),
            n_reused=Sum("lookups", filter=Q(job__isnull=False, was_missed=True), default=0),
            n_own=Sum("lookups", filter=Q(missed_by=F("job")), default=0),
        )
        .order_by()
    }
    distinct = {row.pop("start"): row for row in tallies.values("start").annotate(**_DISTINCT).order_by()}
    everybody = {
        start: models.TrafficSlot(grain=Grain.HOUR, start=start, **counted)
        for start, counted in distinct.items()
    }
    for row in tallies.values("start", "organisation_id").annotate(**_DISTINCT, **_SUMS).order_by():
        organisation = row.pop("organisation_id")
        jobs, reused = more.get((row["start"], organisation), (0, 0))
        row |= {"jobs": jobs, "reused_hits": reused}
        yield models.TrafficSlot(grain=Grain.HOUR, tenant=tenant_of(organisation), **row)
        _add(everybody[row["start"]], row, (*_SUMS, "jobs", "reused_hits"))
    yield from everybody.values()


def _add(total: Model, row: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + row[name])


def _with_first_miss(served: QuerySet[models.Usage]) -> Any:
    """With whether the operator was ever missed, and the job that missed it first (none: it had no name)."""
    misses = models.Miss.objects.filter(operator=OuterRef("operator"))
    first = misses.order_by("first_asked_at", "pk").values("job")[:1]
    return served.annotate(was_missed=Exists(misses), missed_by=Subquery(first))


def _replace(grain: Grain, starts: Collection[datetime], slots: Iterable[models.TrafficSlot]) -> None:
    made = list(slots)
    with transaction.atomic():
        models.TrafficSlot.objects.filter(grain=grain, start__in=starts).delete()
        models.TrafficSlot.objects.bulk_create(made, batch_size=_BATCH)
        failpoints.at("rollup-writing")


def _make_routes(day: datetime, served: QuerySet[models.Usage]) -> None:
    slots: dict[tuple[str, str], models.RouteSlot] = {}
    sums = served.values("organisation_id", "route").annotate(
        method=Min("method"), hits=Sum("lookups"), saved_us=Sum(_SAVED_US), calls=Sum("calls")
    )
    for row in sums.order_by():
        for tenant in (EVERYBODY, tenant_of(row["organisation_id"])):
            slot = slots.setdefault(
                (tenant, row["route"]),
                models.RouteSlot(start=day, tenant=tenant, route=row["route"], method=row["method"]),
            )
            _add(slot, row, ("hits", "calls", "saved_us"))
    with transaction.atomic():
        models.RouteSlot.objects.filter(start=day).delete()
        models.RouteSlot.objects.bulk_create(slots.values(), batch_size=_BATCH)


def _make_totals(operators: Iterable[int]) -> None:
    for some in _batches(sorted(operators), _BATCH):
        made = _totals(some)
        with transaction.atomic():
            models.OperatorTotal.objects.filter(operator__in=some).delete()
            # An operator may have been deleted since it was read.
            there = set(models.Operator.objects.filter(pk__in=some).values_list("pk", flat=True))
            models.OperatorTotal.objects.bulk_create(
                [total for total in made if total.operator_id in there], batch_size=_BATCH
            )


def _totals(operators: Sequence[int]) -> list[models.OperatorTotal]:
    """Since the beginning: lookups from tallies, jobs from what jobs asked for."""
    jobs = {
        (row["operator_id"], row["job__organisation_id"]): row["n"]
        for row in models.JobOperator.objects.filter(operator__in=operators)
        .exclude(job__name="")
        .values("operator_id", "job__organisation_id")
        .annotate(n=Count("pk"))
        .order_by()
    }
    made: dict[tuple[int, str], models.OperatorTotal] = {}
    sums = models.LookupTally.objects.filter(operator__in=operators).values("operator_id", "organisation_id")
    for row in sums.annotate(
        hits=Sum("hits"),
        default_hits=Sum("default_hits"),
        misses=Sum("misses"),
        calls=Sum(F("hit_calls") + F("miss_calls")),
        saved_us=Sum("saved_us"),
        last=Max("hour"),
    ).order_by():
        operator, organisation = row["operator_id"], row["organisation_id"]
        for tenant in (EVERYBODY, tenant_of(organisation)):
            total = made.setdefault(
                (operator, tenant),
                models.OperatorTotal(operator_id=operator, tenant=tenant, last_at=row["last"]),
            )
            _add(total, row, ("hits", "default_hits", "misses", "calls", "saved_us"))
            total.jobs += jobs.get((operator, organisation), 0)
            total.last_at = max(total.last_at, row["last"])
    return list(made.values())


def _batches(rows: Iterable[_T], size: int) -> Iterator[list[_T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch
