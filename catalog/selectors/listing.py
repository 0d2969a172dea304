"""Operators as a list: filtered, sorted, and the facts that go with one page of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from catalog import models
from catalog.search import Words
from catalog.selectors.jobs import WITHHELD
from catalog.selectors.parts import taken
from catalog.selectors.traffic import Lookups
from catalog.viewing import Viewer

STATUSES = ("hit", WITHHELD, "exploring", "waiting", "postponed", "discarded", "unsupported", "failed")
SORTS = ("recent", "name", "time", "speedup", "jobs", "asked", "saved")

# What people read → the states of a miss that it stands for.
_MISS_STATES = {
    "exploring": models.MissState.PROMOTED,
    "waiting": models.MissState.WAITING,
    "postponed": models.MissState.POSTPONED,
    "discarded": models.MissState.DISCARDED,
    "unsupported": models.MissState.UNSUPPORTED,
    "failed": models.MissState.FAILED,
}
_Ids = QuerySet[Any, int]
FEW = 50_000
"""Bests of a method that are gone through to find their operators; more are looked for one by one."""
STATUS_OF_MISS = {state: status for status, state in _MISS_STATES.items()}


@dataclass(frozen=True)
class OperatorFilters:
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
class ListedOperator(Lookups):
    """One operator of a list, with what is known of it."""

    operator: models.Operator
    status: str
    reason: str
    best: models.Best | None
    jobs: int
    models: int
    hits: int
    misses: int
    saved_us: float


class Found:
    """Operators that pass, in order: sliced, iterated, counted up to a bound. Never all of them in memory.

    In an order by what only some have (a time, lookups) the others come last, the newest first. These are two
    queries, each of which walks an index; one query for both would sort a quarter of a million rows.
    """

    def __init__(self, passing: QuerySet[models.Operator], parts: Sequence[_Ids]) -> None:
        self._passing, self._parts = passing, parts

    def count_up_to(self, bound: int) -> int:
        return self._passing.order_by()[:bound].count()

    def ids(self, start: int, stop: int) -> list[int]:
        """Numbers of the operators at these places."""
        return taken(self._parts, start, stop)

    def __getitem__(self, places: slice) -> list[models.Operator]:
        return by_ids(self.ids(places.start or 0, places.stop))

    def __iter__(self) -> Iterator[models.Operator]:
        return iter(self[0 : self.count_up_to(2**31)])


def by_ids(ids: Sequence[int]) -> list[models.Operator]:
    """These operators in this order; the graph, which is large, is left unread."""
    rows = models.Operator.objects.defer("graph").in_bulk(ids)
    return [rows[pk] for pk in ids if pk in rows]


def operators(filters: OperatorFilters, viewer: Viewer, withheld: Collection[int] = ()) -> Found:
    """The operators that pass, in order; bests and misses are those that the viewer may see. ``withheld``:
    operators whose best the viewer does not get until it is paid, asked for where a status goes by it."""
    named = narrowed(Words.of(filters.q), op_type=filters.op_type, dtype=filters.dtype)
    standing = _standing(filters, viewer, list(withheld))
    passing = named.filter(*(condition("pk") for condition in standing))
    return Found(passing, _sorted(named, passing, standing, filters, viewer))


def narrowed(words: Words, **columns: str) -> QuerySet[models.Operator]:
    """Operators that words find, with these values in these columns; an empty one narrows nothing."""
    wanted = {name: value for name, value in columns.items() if value}
    return models.Operator.objects.filter(words.condition(), **wanted)


# What must hold of the operator whose number is in a column.
_Condition = Callable[[str], Q]


def _standing(filters: OperatorFilters, viewer: Viewer, withheld: list[int]) -> list[_Condition]:
    """What the filters ask of an operator's bests and misses."""
    bests = winners(filters, viewer)
    misses = models.Miss.objects.filter(viewer.shown())
    known = _each(bests)
    found: list[_Condition] = []
    if filters.target:
        misses = misses.filter(target__key=filters.target)
        missed = _each(misses)
        found.append(lambda column: known(column) | missed(column))
    if filters.method:
        won = bests.filter(method=filters.method)
        found.append(_listed(won) if won[: FEW + 1].count() <= FEW else _each(won))
    if filters.status == "hit":
        found += [known, lambda column: ~Q((f"{column}__in", withheld))]
    elif filters.status == WITHHELD:
        found.append(lambda column: Q((f"{column}__in", withheld)))
    elif filters.status in _MISS_STATES:
        found.append(_listed(misses.filter(state=_MISS_STATES[filters.status])))
        found.append(lambda column: ~known(column))
    return found


def _each(rows: QuerySet[Any]) -> _Condition:
    """Has some of these rows, which are looked for operator by operator: where they are many, a page's fifty
    are soon found."""
    return lambda column: Q(Exists(rows.filter(operator=OuterRef(column))))


def _listed(rows: QuerySet[Any]) -> _Condition:
    """Has some of these rows, which are gone through first: where they are few, looking for them at every
    operator would take SQLite seconds."""
    return lambda column: Q((f"{column}__in", rows.values("operator")))


def rows(
    page: Sequence[models.Operator],
    filters: OperatorFilters,
    viewer: Viewer,
    withheld: Mapping[int, str] = {},
) -> list[ListedOperator]:
    """What is known of one page's operators: four queries, however many there are. ``withheld``: as in
    :func:`operators`, with the prices in words."""
    ids = [operator.pk for operator in page]
    won = winners(filters, viewer).filter(operator__in=ids).order_by("ratio_to_default", "pk")
    won = won.select_related("measurement").defer("measurement__samples_us")
    # Several targets may know an operator: the fastest against its own default stands for them.
    bests = {best.operator_id: best for best in won}
    asked = models.Miss.objects.filter(viewer.shown(), operator__in=ids).order_by("last_asked_at")
    if filters.target:
        asked = asked.filter(target__key=filters.target)
    misses = {miss.operator_id: miss for miss in asked}
    totals = {
        total.operator_id: total
        for total in models.OperatorTotal.objects.filter(operator__in=ids, tenant=viewer.tenant)
    }
    mine = viewer.owned("model__organisation") | Q(model__organisation=None)
    given = models.ModelOperator.objects.filter(mine, operator__in=ids)
    in_models = dict(given.values_list("operator").annotate(n=Count("pk")).order_by())
    nothing = models.OperatorTotal(saved_us=0.0)  # as exports write it
    made = []
    for operator in page:
        best, miss = bests.get(operator.pk), misses.get(operator.pk)
        total = totals.get(operator.pk, nothing)
        status, reason = ("hit", "") if best else _status_of(miss)
        if best and operator.pk in withheld:
            status, reason = WITHHELD, withheld[operator.pk]
        made.append(
            ListedOperator(
                operator=operator,
                status=status,
                reason=reason,
                best=best,
                jobs=total.jobs,
                models=in_models.get(operator.pk, 0),
                hits=total.hits,
                misses=total.misses,
                saved_us=total.saved_us,
            )
        )
    return made


def _status_of(miss: models.Miss | None) -> tuple[str, str]:
    """And its reason."""
    if miss is None:
        return "unknown", ""
    return STATUS_OF_MISS.get(models.MissState(miss.state), "unknown"), miss.reason


def kinds() -> tuple[list[tuple[str, int]], list[str]]:
    """Every operator type with how many operators have it, the commonest first; and every element type.

    From the facts noted with the standings, where there are any: counting a catalogue takes a while.
    """
    noted = models.Rollup.facts_of(models.STANDINGS)
    counted = noted["kinds"] if "kinds" in noted else counted_kinds()
    types: Counter[str] = Counter()
    for op_type, _, n in counted:
        types[op_type] += n
    by_count = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    return by_count, sorted({dtype for _, dtype, _ in counted})


def counted_kinds() -> list[list[Any]]:
    """[operator type, element type, how many], from the rows."""
    rows = models.Operator.objects.values_list("op_type", "dtype").annotate(n=Count("pk")).order_by()
    return [list(row) for row in rows]


def winners(filters: OperatorFilters, viewer: Viewer) -> QuerySet[models.Best]:
    """The fastest of every place that the filters leave, of those that the viewer may see."""
    bests = models.Best.objects.filter(viewer.shown(), rank=0)
    return bests.filter(target__key=filters.target) if filters.target else bests


_OF_TOTALS = {"jobs": "jobs", "saved": "saved_us", "asked": "asked"}
_OF_WINNERS = {"time": "median_us", "speedup": "ratio_to_default"}


def _sorted(
    named: QuerySet[models.Operator],
    passing: QuerySet[models.Operator],
    standing: Sequence[_Condition],
    filters: OperatorFilters,
    viewer: Viewer,
) -> list[_Ids]:
    """The parts of a list as operators' numbers, each in an order that an index has."""
    column, sign = filters.sort.removeprefix("-"), "-" if filters.sort.startswith("-") else ""
    if column in _OF_TOTALS:
        known: QuerySet[Any] = models.OperatorTotal.objects.filter(tenant=viewer.tenant)
        some = known.alias(asked=F("hits") + F("misses"))
        order = (f"{sign}{_OF_TOTALS[column]}", f"{sign}operator_id")
    elif column in _OF_WINNERS:
        known = winners(filters, viewer)
        some = foremost(known)
        # Ties go as the indexes have them.
        tie = sign if column == "speedup" else "" if sign else "-"
        order = (f"{sign}{_OF_WINNERS[column]}", f"{tie}operator_id")
    else:
        by_name = passing.order_by(f"{sign}summary" if column == "name" else f"{sign}pk", f"{sign}pk")
        return [by_name.values_list("pk", flat=True)]
    others = passing.filter(~Exists(known.filter(operator=OuterRef("pk")))).order_by("-pk")
    some = some.filter(*(condition("operator") for condition in standing))
    if any((filters.q, filters.op_type, filters.dtype)):
        some = some.filter(operator__in=named.values("pk"))
    return [
        some.order_by(*order).values_list("operator_id", flat=True),
        others.values_list("pk", flat=True),
    ]


def foremost(winners: QuerySet[models.Best]) -> QuerySet[models.Best]:
    """Of an operator that several targets know, the winner that stands for it (as in ``rows``)."""
    ratio = OuterRef("ratio_to_default")
    better = Q(ratio_to_default__gt=ratio) | Q(ratio_to_default=ratio, pk__gt=OuterRef("pk"))
    return winners.filter(~Exists(winners.filter(better, operator=OuterRef("operator"))))
