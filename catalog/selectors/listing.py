"""Operators as a list: filtered, sorted, and the facts that go with one page of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum

from catalog import models

STATUSES = ("hit", "exploring", "waiting", "postponed", "discarded", "unsupported", "failed")
SORTS = ("recent", "name", "time", "speedup", "jobs", "asked")

# What people read → the states of a miss that it stands for.
_MISS_STATES = {
    "exploring": models.MissState.PROMOTED,
    "waiting": models.MissState.WAITING,
    "postponed": models.MissState.POSTPONED,
    "discarded": models.MissState.DISCARDED,
    "unsupported": models.MissState.UNSUPPORTED,
    "failed": models.MissState.FAILED,
}
STATUS_OF_MISS = {state: status for status, state in _MISS_STATES.items()}


@dataclass(frozen=True)
class Filters:
    """What a list of operators is narrowed to; an empty field narrows nothing. ``-`` sorts downwards."""

    q: str = ""
    op_type: str = ""
    dtype: str = ""
    status: str = ""
    method: str = ""
    target: str = ""
    sort: str = "-recent"

    @property
    def narrowed(self) -> bool:
        return any((self.q, self.op_type, self.dtype, self.status, self.method, self.target))


@dataclass(frozen=True)
class Row:
    """One operator of a list, with what is known of it."""

    operator: models.Operator
    status: str
    reason: str
    best: models.Best | None
    jobs: int
    models: int
    hits: int
    misses: int

    @property
    def asked(self) -> int:
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.asked if self.asked else None


def operators(filters: Filters, visible: Q) -> QuerySet[models.Operator]:
    """The operators that pass, in order. ``visible``: the scopes that bests and misses may come from."""
    found = models.Operator.objects.defer("graph")
    for word in filters.q.split():
        found = found.filter(Q(summary__icontains=word) | Q(key__startswith=word) | Q(op_type__iexact=word))
    if filters.op_type:
        found = found.filter(op_type=filters.op_type)
    if filters.dtype:
        found = found.filter(dtype=filters.dtype)
    bests = _winners(filters, visible).filter(operator=OuterRef("pk"))
    misses = models.Miss.objects.filter(visible, operator=OuterRef("pk"))
    if filters.target:
        misses = misses.filter(target__key=filters.target)
        found = found.filter(Exists(bests) | Exists(misses))
    if filters.method:
        found = found.filter(Exists(bests.filter(method=filters.method)))
    if filters.status == "hit":
        found = found.filter(Exists(bests))
    elif filters.status in _MISS_STATES:
        found = found.filter(~Exists(bests), Exists(misses.filter(state=_MISS_STATES[filters.status])))
    return _sorted(found, filters, bests)


def rows(page: Sequence[models.Operator], filters: Filters, visible: Q) -> list[Row]:
    """What is known of one page's operators: five queries, however many there are."""
    ids = [operator.pk for operator in page]
    bests: dict[int, models.Best] = {}
    # Several targets may know an operator: the fastest against its own default stands for them.
    for best in _winners(filters, visible).filter(operator__in=ids).order_by("ratio_to_default"):
        bests[best.operator_id] = best
    asked = models.Miss.objects.filter(visible, operator__in=ids).order_by("last_asked_at")
    if filters.target:
        asked = asked.filter(target__key=filters.target)
    misses = {miss.operator_id: miss for miss in asked}
    jobs = _counted(models.JobOperator.objects.filter(operator__in=ids))
    in_models = _counted(models.ModelOperator.objects.filter(operator__in=ids))
    tallies = {
        tally["operator"]: (tally["hits"], tally["misses"])
        for tally in models.LookupTally.objects.filter(operator__in=ids)
        .values("operator")
        .annotate(hits=Sum("hits"), misses=Sum("misses"))
        .order_by()
    }
    made = []
    for operator in page:
        won, miss = bests.get(operator.pk), misses.get(operator.pk)
        hits, missed = tallies.get(operator.pk, (0, 0))
        made.append(
            Row(
                operator=operator,
                status="hit" if won else _status_of(miss),
                reason=miss.reason if miss and not won else "",
                best=won,
                jobs=jobs.get(operator.pk, 0),
                models=in_models.get(operator.pk, 0),
                hits=hits,
                misses=missed,
            )
        )
    return made


def _status_of(miss: models.Miss | None) -> str:
    return "unknown" if miss is None else STATUS_OF_MISS.get(models.MissState(miss.state), "unknown")


def op_types() -> list[tuple[str, int]]:
    """Every operator type with how many operators have it, the commonest first."""
    counted = models.Operator.objects.values_list("op_type").annotate(n=Count("pk"))
    return [(op_type, n) for op_type, n in counted.order_by("-n", "op_type")]


def dtypes() -> list[str]:
    return list(models.Operator.objects.order_by("dtype").values_list("dtype", flat=True).distinct())


def _winners(filters: Filters, visible: Q) -> QuerySet[models.Best]:
    bests = models.Best.objects.filter(visible, rank=0)
    return bests.filter(target__key=filters.target) if filters.target else bests


def _counted(rows: QuerySet) -> dict[int, int]:
    return dict(rows.values_list("operator").annotate(n=Count("pk")).order_by())


def _sorted(
    found: QuerySet[models.Operator], filters: Filters, bests: QuerySet[models.Best]
) -> QuerySet[models.Operator]:
    descending, column = filters.sort.startswith("-"), filters.sort.removeprefix("-")
    if column == "name":
        return found.order_by("-summary" if descending else "summary", "pk")
    if column == "time":
        found = found.annotate(by=Subquery(bests.order_by("-ratio_to_default").values("median_us")[:1]))
    elif column == "speedup":
        found = found.annotate(
            by=Subquery(bests.order_by("-ratio_to_default").values("ratio_to_default")[:1])
        )
    elif column == "jobs":
        jobs = models.JobOperator.objects.filter(operator=OuterRef("pk")).order_by().values("operator")
        found = found.annotate(by=Subquery(jobs.annotate(n=Count("pk")).values("n")))
    elif column == "asked":
        tallies = models.LookupTally.objects.filter(operator=OuterRef("pk")).order_by().values("operator")
        found = found.annotate(by=Subquery(tallies.annotate(n=Sum(F("hits") + F("misses"))).values("n")))
    else:
        return found.order_by("-pk" if descending else "pk")
    order = F("by").desc(nulls_last=True) if descending else F("by").asc(nulls_last=True)
    return found.order_by(order, "-pk")
