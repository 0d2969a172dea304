"""Jobs: what each asked for, what of it is covered now and why the rest is not, and what the catalogue saved.

Nothing here reads usage rows: sums per job and day (``JobDay``) and per job and operator (``JobOperator``)
are counted where usage is drained, so that a page costs the same with ten million hits as with ten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Sum

from catalog import models
from catalog.models import UNNAMED, Method, MissState
from catalog.selectors.traffic import Lookups
from catalog.timerange import TimeRange

MOST_MISSES = 20_000
MOST_UNCOVERED = 5_000
"""Operators whose reasons are counted one by one; beyond it the rest is one line."""

REASONS = {
    MissState.WAITING: "waiting to be decided on",
    MissState.PROMOTED: "being explored",
    MissState.POSTPONED: "postponed",
    MissState.DISCARDED: "discarded",
    MissState.UNSUPPORTED: "no route can express it",
    MissState.FAILED: "explored, and nothing verified came of it",
    MissState.EXPLORED: "known elsewhere only",
}
NOT_ASKED = "its miss was not queued"
WITHHELD = "withheld"
"""The state of an operator whose best the job's organisation gets only once it is paid."""
CACHE_COUNTS = (
    *("memory_hits", "machine_hits", "unasked_misses", "unasked_counted"),
    *("prefetched", "prefetched_used", "prefetched_bytes", "prefetched_used_bytes", "prefetch_requests"),
)
"""Columns of ``JobCacheDay``."""


@dataclass(frozen=True)
class Prefetched:
    """What a job's clients fetched for later, since its beginning."""

    operators: Annotated[int, "That came along with an answer, because they were predicted."] = 0
    used: Annotated[int, "Of them: looked up afterwards by the process that had fetched them."] = 0
    bytes: Annotated[int, "Their answers and manifests."] = 0
    used_bytes: Annotated[int, "Of those that were used."] = 0
    requests: Annotated[int, "Lookups that were sent for such operators alone."] = 0

    @property
    def used_share(self) -> float | None:
        return self.used / self.operators if self.operators else None

    @property
    def wasted(self) -> int:
        """Operators that were not used; one that still may be counts until it is."""
        return max(self.operators - self.used, 0)

    @property
    def wasted_bytes(self) -> int:
        """Bytes of those."""
        return max(self.bytes - self.used_bytes, 0)

    @property
    def requests_saved(self) -> int:
        """One for each operator that was used, less those that were made for prefetching alone."""
        return self.used - self.requests


@dataclass(frozen=True)
class JobRow(Lookups):
    """One job of a list, since its beginning. Times in µs."""

    job: models.Job
    operators: int
    hits: Annotated[int, "Lookups that got an implementation, from the service or a client's cache."]
    misses: Annotated[int, "Lookups that got none."]
    saved_us: float
    last_at: datetime | None
    memory_hits: Annotated[int, "Of the hits: answered from a process's memory."] = 0
    machine_hits: Annotated[int, "Of the hits: answered from the cache of a machine."] = 0
    unasked_misses: Annotated[int, "Of the misses: answered without asking the service."] = 0
    prefetched: Prefetched = Prefetched()

    @property
    def cached_hits(self) -> int:
        """Hits that no request was made for."""
        return self.memory_hits + self.machine_hits

    @property
    def service_hits(self) -> int:
        """Hits that the service answered."""
        return max(self.hits - self.cached_hits, 0)

    @property
    def cached_share(self) -> float | None:
        """Hits from caches, of all lookups."""
        return self.cached_hits / self.lookups if self.lookups else None


@dataclass(frozen=True)
class Missing:
    """Operators that the job would not be given where it runs, for one reason."""

    state: str
    reason: str
    operators: int
    calls: float


@dataclass(frozen=True)
class Coverage:
    """What of a job, or of a model, is known now: by operators and by calls, and why the rest is not."""

    operators: int
    covered: int
    calls: float
    covered_calls: float
    missing: tuple[Missing, ...] = ()

    @property
    def withheld_calls(self) -> float:
        """Calls of operators whose best is withheld until it is paid."""
        return sum(one.calls for one in self.missing if one.state == WITHHELD)

    @property
    def withheld_share(self) -> float | None:
        return self.withheld_calls / self.calls if self.calls else None

    @property
    def by_operators(self) -> float | None:
        return self.covered / self.operators if self.operators else None

    @property
    def by_calls(self) -> float | None:
        return self.covered_calls / self.calls if self.calls else None


@dataclass(frozen=True)
class Saved:
    """What hits of one method (or of all: "") came to. ``default_us`` is what the defaults had taken."""

    method: str
    hits: int = 0
    calls: float = 0.0
    default_us: float = 0.0
    saved_us: float = 0.0

    @property
    def speedup(self) -> float | None:
        """How many times as fast as with the defaults, over all of its calls."""
        served = self.default_us - self.saved_us
        return self.default_us / served if self.default_us > 0 and served > 0 else None


@dataclass(frozen=True)
class JobSlot:
    """A job's hits of one day (UTC), by method, and what they saved."""

    start: datetime
    hits: dict[str, int]
    saved_us: float
    cached_hits: Annotated[int, "Of the hits: answered from clients' caches."] = 0

    @property
    def all_hits(self) -> int:
        return sum(self.hits.values())


@dataclass(frozen=True)
class OperatorRow:
    """One operator of a job, as it was asked for, and what is known of it where the job runs."""

    operator: models.Operator
    hits: int
    misses: int
    calls: float
    saved_us: float
    last_at: datetime
    best: models.Best | None
    state: str  # "hit", "withheld", or what became of its miss
    reason: str
    neighbour_hits: Annotated[int, "Of the hits: measured on another target; no gain is counted."] = 0


def jobs(owned: Q, q: str = "") -> QuerySet[models.Job]:
    """An organisation's jobs, the latest to begin first; the one without a name is found by what is said
    instead."""
    found = models.Job.objects.filter(owned).select_related("organisation")
    for word in q.split():
        named = Q(name__icontains=word)
        found = found.filter(named | Q(name="") if word.lower() in UNNAMED else named)
    return found.order_by("-pk")


def rows(page: Iterable[models.Job]) -> list[JobRow]:
    """Figures of one page's jobs: two statements."""
    listed = list(page)
    counted: Any = models.JobOperator.objects.filter(job__in=listed).values("job").order_by()
    sums = {name: Sum(name) for name in ("hits", "misses", "saved_us")}
    by_job = {
        row.pop("job"): row for row in counted.annotate(operators=Count("pk"), last_at=Max("last_at"), **sums)
    }
    nothing = {"operators": 0, "hits": 0, "misses": 0, "saved_us": 0.0, "last_at": None}
    said = _said_by_clients(listed)
    return [_row(job, by_job.get(job.pk, nothing), said.get(job.pk)) for job in listed]


def _row(job: models.Job, asked: dict[str, Any], said: dict[str, int] | None) -> JobRow:
    if said is None:
        return JobRow(job, **asked)
    unasked = said["unasked_misses"]
    return JobRow(
        job,
        **asked | {"misses": asked["misses"] + unasked - said["unasked_counted"]},
        memory_hits=said["memory_hits"],
        machine_hits=said["machine_hits"],
        unasked_misses=unasked,
        prefetched=Prefetched(
            said["prefetched"],
            said["prefetched_used"],
            said["prefetched_bytes"],
            said["prefetched_used_bytes"],
            said["prefetch_requests"],
        ),
    )


def _said_by_clients(listed: Sequence[models.Job]) -> dict[int, dict[str, int]]:
    """By job, sums of what its clients reported of their caches."""
    days: Any = models.JobCacheDay.objects.filter(job__in=listed).values("job").order_by()
    sums = {name: Sum(name) for name in CACHE_COUNTS}
    return {row.pop("job"): row for row in days.annotate(**sums)}


Places = Sequence[tuple[int, int]]
"""Targets and settings: where a job runs (:func:`places_of`). Who asks several things of one job gives them
to each; otherwise each reads them."""


def places_of(job: models.Job) -> list[tuple[int, int]]:
    """(target, setting) where the job was served, or, if it never was, where its misses are."""
    served = list(models.JobPlace.objects.filter(job=job).values_list("target", "setting")[:50])
    if served:
        return served
    mine = Q(job=job) if job.name else Q(job=None, api_key__organisation=job.organisation_id)
    return list(models.Miss.objects.filter(mine).values_list("target", "setting").distinct()[:50])


def coverage(job: models.Job, withheld: Mapping[int, str], places: Places | None = None) -> Coverage:
    """What the job asked for so far and would hit now, in calls and in operators. ``withheld``: of operators
    whose best it does not get until it is paid, the price in words."""
    places = places_of(job) if places is None else places
    asked = models.JobOperator.objects.filter(job=job)
    weight = F("hit_calls") + F("miss_calls")
    everything = asked.aggregate(n=Count("pk"), c=Sum(weight))
    bests = bests_of(job, places).filter(operator=OuterRef("operator"))
    uncovered = asked.filter(~Exists(bests)).annotate(weight=weight).values_list("operator", "weight")
    left = list(uncovered.order_by("-weight", "pk")[: MOST_UNCOVERED + 1])
    missing = _missing(job, left[:MOST_UNCOVERED], places)
    beyond_n, beyond_calls = len(left), sum(calls for _, calls in left)
    if len(left) > MOST_UNCOVERED:  # counted where it was not read to its end
        every = asked.filter(~Exists(bests)).aggregate(n=Count("pk"), c=Sum(weight))
        beyond_n, beyond_calls = every["n"], every["c"] or 0.0
        calls = beyond_calls - sum(calls for _, calls in left[:MOST_UNCOVERED])
        missing.append(Missing("unknown", "further operators", beyond_n - MOST_UNCOVERED, calls))
    held = _held(asked, withheld)
    return Coverage(
        operators=everything["n"],
        covered=everything["n"] - beyond_n - sum(one.operators for one in held),
        calls=everything["c"] or 0.0,
        covered_calls=(everything["c"] or 0.0) - beyond_calls - sum(one.calls for one in held),
        missing=(*held, *missing),
    )


def _held(asked: QuerySet[models.JobOperator], withheld: Mapping[int, str]) -> list[Missing]:
    """Operators whose best is withheld, by price."""
    if not withheld:
        return []
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for row in asked.filter(operator__in=list(withheld)).only("operator", "hit_calls", "miss_calls"):
        counts = sums[withheld[row.operator_id]]
        counts[0] += 1
        counts[1] += row.hit_calls + row.miss_calls
    made = [Missing(WITHHELD, price, int(n), calls) for price, (n, calls) in sums.items()]
    return sorted(made, key=lambda one: (-one.calls, one.reason))


def _missing(job: models.Job, left: Sequence[tuple[int, float]], places: Places) -> list[Missing]:
    misses = _nearest(job, models.Miss.objects.filter(operator__jobs__job=job), places)
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for operator, calls in left:
        counts = sums[_why(misses.get(operator))]
        counts[0] += 1
        counts[1] += calls
    made = [Missing(state, reason, int(n), calls) for (state, reason), (n, calls) in sums.items()]
    return sorted(made, key=lambda one: (-one.calls, -one.operators, one.reason))


def _why(miss: tuple[str, str] | None) -> tuple[str, str]:
    if miss is None:
        return "unknown", NOT_ASKED
    state, reason = miss
    return state, reason or REASONS[MissState(state)]


def saved(job: models.Job, range_: TimeRange | None = None) -> list[Saved]:
    """By method, in the order of ``Method``, then all of them ("")."""
    found = models.JobDay.objects.filter(job=job)
    if range_ is not None:
        found = found.filter(start__gte=range_.first("day"), start__lt=range_.until)
    names = ("hits", "calls", "default_us", "saved_us")
    counted = found.values("method").annotate(**{name: Sum(name) for name in names}).order_by()
    sums = {row["method"]: Saved(**row) for row in counted}
    by_method = [sums[method] for method in Method.values if method in sums]
    return [*by_method, Saved("", *(sum(getattr(one, name) for one in by_method) for name in names))]


def over_time(job: models.Job, range_: TimeRange) -> list[JobSlot]:
    """Every day of the range (UTC), the empty ones too."""
    days = {start: JobSlot(start, {}, 0.0) for start in range_.starts("day")}
    for row in models.JobDay.objects.filter(job=job, start__gte=range_.first("day"), start__lt=range_.until):
        slot = days[row.start]
        days[row.start] = JobSlot(row.start, slot.hits | {row.method: row.hits}, slot.saved_us + row.saved_us)
    cached = models.JobCacheDay.objects.filter(
        job=job, start__gte=range_.first("day"), start__lt=range_.until
    )
    for one in cached:
        days[one.start] = replace(days[one.start], cached_hits=one.memory_hits + one.machine_hits)
    return list(days.values())


SORTS = {"saved": "saved_us", "calls": "weight", "misses": "misses", "recent": "last_at"}


def asked_for(
    job: models.Job,
    sort: str = "-calls",
    status: str = "",
    withheld: Iterable[int] = (),
    places: Places | None = None,
) -> QuerySet[models.JobOperator]:
    """A job's operators; ``status``: "hit", "withheld" or "miss", as they are now. ``-`` sorts downwards."""
    sign, column = "-" if sort.startswith("-") else "", SORTS[sort.removeprefix("-")]
    found = models.JobOperator.objects.filter(job=job).annotate(weight=F("hit_calls") + F("miss_calls"))
    if status == WITHHELD:
        found = found.filter(operator__in=list(withheld))
    elif status:
        known = Exists(bests_of(job, places).filter(operator=OuterRef("operator")))
        found = (
            found.filter(known).exclude(operator__in=list(withheld))
            if status == "hit"
            else found.filter(~known)
        )
    return found.select_related("operator").defer("operator__graph").order_by(f"{sign}{column}", "pk")


def operator_rows(
    job: models.Job,
    withheld: Mapping[int, str],
    page: Iterable[models.JobOperator],
    places: Places | None = None,
) -> list[OperatorRow]:
    """What is known now of one page's operators: two statements. ``withheld`` as in :func:`coverage`."""
    places = places_of(job) if places is None else places
    listed = list(page)
    ids = [row.operator_id for row in listed]
    # Where several places know it: the slowest against its own default, so that nothing is promised.
    bests = {
        best.operator_id: best
        for best in bests_of(job, places).filter(operator__in=ids).order_by("-ratio_to_default")
    }
    unknown = [pk for pk in ids if pk not in bests]
    misses = _nearest(job, models.Miss.objects.filter(operator__in=unknown), places)
    made = []
    for row in listed:
        best = bests.get(row.operator_id)
        state, reason = ("hit", "") if best else _why(misses.get(row.operator_id))
        if best and row.operator_id in withheld:
            state, reason = WITHHELD, withheld[row.operator_id]
        made.append(
            OperatorRow(
                row.operator, row.hits, row.misses, row.hit_calls + row.miss_calls, row.saved_us,
                row.last_at, best, state, reason, row.neighbour_hits,
            )
        )  # fmt: skip
    return made


def bests_of(job: models.Job, places: Places | None = None) -> QuerySet[models.Best]:
    """The winners that the job would get, where it runs."""
    scopes = [models.SHARED, f"org:{job.organisation_id}"]
    here = _here(places_of(job) if places is None else places)
    return models.Best.objects.filter(here, rank=0, scope__in=scopes)


def _nearest(job: models.Job, misses: QuerySet[models.Miss], places: Places) -> dict[int, tuple[str, str]]:
    """Operator → state and reason of its miss that the job may see: the latest where the job runs before any
    other."""
    scopes = [models.SHARED, f"org:{job.organisation_id}"]
    found: dict[int, tuple[bool, tuple[str, str]]] = {}
    latest = misses.filter(scope__in=scopes).order_by("-pk")[:MOST_MISSES]
    named = latest.values_list("operator", "target", "setting", "state", "reason")
    for operator, target, setting, state, reason in named:  # thousands: rows would take longer than the rest
        here = (target, setting) in places
        known = found.get(operator)
        if known is None or (here and not known[0]):
            found[operator] = (here, (state, reason))
    return {operator: miss for operator, (_, miss) in found.items()}


def _here(places: Places) -> Q:
    """In these places; everywhere where none is known."""
    here = Q()
    for target, setting in places:
        here |= Q(target=target, setting=setting)
    return here
