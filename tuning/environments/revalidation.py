"""Bests measured again, after another environment was declared: by a round, and judged when it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, When, Window
from django.db.models.functions import Now, RowNumber

from catalog import choosing
from catalog.best.seats import ScopedPlace
from catalog.best.withdrawing import restore_places
from catalog.models import Best, Measurement
from catalog.steps import each, held_back
from opatlas.evidence import Ratios
from tuning.models import Exploration, Revalidated, Revalidation, RevalidationVerdict, State, Trial
from tuning.queue.rounds import ask_for_round
from tuning.routes.base import Candidate

ENDED = (State.DONE, State.UNSUPPORTED, State.DISCARDED, State.DEAD)
_MOST = 500
JUDGING = "judging what was measured again"


def held_candidates(row: Exploration, route: str) -> Iterator[Candidate]:
    """What a round must measure again, before what the route itself offers: tuned ones are not among that."""
    waiting = row.revalidated.filter(route=route, verdict=RevalidationVerdict.WAITING).select_related(
        "implementation"
    )
    for one in waiting:
        if one.implementation is not None and one.implementation.revoked_at is None:
            yield Candidate(route, one.implementation.candidate, one.implementation.label)


def settle() -> int:
    """Judge what has been measured again; returns how many bests. Cheap while nothing is open.

    A best that the new environment has evidence for is better, worse or the same; one that failed there is
    withdrawn, and its route falls back to whatever else was measured. A round that was run without the new
    environment (its worker was told too late) says nothing: it is asked for again.
    """
    open_ones = list(Revalidation.objects.filter(finished_at=None).select_related("after", "target"))
    return sum(each("settling a re-validation", open_ones, _settle_ended))


def _settle_ended(row: Revalidation) -> int:
    waiting = row.bests.filter(verdict=RevalidationVerdict.WAITING)
    ended = waiting.filter(exploration__state__in=ENDED).exclude(pk__in=held_back(JUDGING))
    ended = ended.select_related("exploration", "implementation")
    settled = sum(each(JUDGING, ended[:_MOST], partial(_settle, row), _unjudged))
    if not waiting.exists():
        Revalidation.objects.filter(pk=row.pk, finished_at=None).update(finished_at=Now())
    return settled


def _unjudged(one: Revalidated, reason: str) -> None:
    """It is served on as it was."""
    _judge(one, RevalidationVerdict.FAILED, None, f"It could not be judged: served as it was. {reason}")


def _settle(row: Revalidation, one: Revalidated) -> bool:
    exploration = one.exploration
    if exploration.state in (State.DISCARDED, State.DEAD):
        ends = f"Its exploration is {exploration.state}: served as it was, and not measured again."
        return _judge(one, RevalidationVerdict.FAILED, None, ends)
    if exploration.pending_routes:
        return False  # its round has not begun
    if not _is_new(row, one):
        trials = Trial.objects.filter(
            exploration=exploration, route=one.route, created_at__gt=row.asked_at
        ).order_by("-pk")
        environment = row.after if one.route == row.route else None
        mine = trials.filter(environment=environment) if environment else trials
        if not mine.exists():
            ask_for_round(Exploration.objects.filter(pk=exploration.pk), [one.route], _why(row))
            return False
        said = mine.exclude(status="ok").first()
        detail = f"{said.status}: {said.detail or said.label}" if said else "it was not measured"
        why = f"{one.route} failed under {row.after}: {detail}"[:250]
        restore_places([ScopedPlace.of(exploration)], {one.route}, why)
        if not _is_new(row, one):
            return _judge(one, RevalidationVerdict.FAILED, None, detail)
    best = _bests(one).get()
    return _judge(one, _verdict(row, one, best), best.ratio_to_default, best.label)


def _bests(one: Revalidated) -> QuerySet[Best]:
    """The route's best there, if it has one."""
    rows = Best.objects.filter(**one.exploration.same_key, route=one.route)
    return rows.select_related("implementation", "measurement")


def _is_new(row: Revalidation, one: Revalidated) -> bool:
    """Whether the route's best there rests on evidence of the new environment."""
    found = _bests(one).first()
    if found is None:
        return False
    if one.route == row.route:
        return found.implementation.environment_id == row.after_id
    # Another route, whose ratio is taken against the one that changed.
    return found.measurement.default_environment_id == row.after_id


def _verdict(row: Revalidation, one: Revalidated, best: Best) -> RevalidationVerdict:
    before = Ratios(one.ratio_before, one.ratio_low_before, one.ratio_high_before)
    after = best.ratios
    old = (
        Measurement.objects.filter(implementation=one.implementation_id, created_at__lte=row.asked_at)
        .order_by("-created_at", "-pk")
        .first()
    )
    if old is not None and best.measurement.default_environment_id == row.after_id:
        # The default itself changed, and its ratios with it: times tell what a job gains or loses.
        after = _in_times(old, best.measurement)
        before = Ratios(1.0, 1.0, 1.0)
    if choosing.beats(after, before):
        return RevalidationVerdict.BETTER
    return RevalidationVerdict.WORSE if choosing.beats(before, after) else RevalidationVerdict.SAME


def _in_times(old: Measurement, new: Measurement) -> Ratios:
    ratio = old.median_us / new.median_us
    noise = 1 + old.spread_us / old.median_us + new.spread_us / new.median_us
    return Ratios(ratio, ratio / noise, ratio * noise)


def _judge(one: Revalidated, verdict: RevalidationVerdict, ratio: float | None, detail: str) -> bool:
    return (
        Revalidated.objects.filter(pk=one.pk, verdict=RevalidationVerdict.WAITING).update(
            verdict=verdict, ratio_after=ratio, detail=detail[:500]
        )
        == 1
    )


def _why(row: Revalidation) -> str:
    return f"{row.route}: {row.after} is declared"


@dataclass(frozen=True)
class RevalidationReport:
    """What came of one re-validation so far. ``rows``: regressions and failures first."""

    total: int
    waiting: int
    measured: int
    restored: int
    better: int
    worse: int
    failed: int
    rows: tuple[Revalidated, ...]

    def __str__(self) -> str:
        parts = [f"{self.measured} re-measured", f"{self.better} better", f"{self.worse} worse"]
        parts += [f"{self.failed} failed"]
        parts += [f"{self.restored} restored"] if self.restored else []
        parts += [f"{self.waiting} waiting"] if self.waiting else []
        return ", ".join(parts)


def report(row: Revalidation, limit: int = 50, scopes: Collection[str] | None = None) -> RevalidationReport:
    """Counts, and the bests that matter most to who declared: failed, then by what they lost.

    ``scopes``: only what these may see; None: everything.
    """
    return reports({row.pk: limit}, scopes)[row.pk]


def reports(
    limits: Mapping[int, int], scopes: Collection[str] | None = None
) -> dict[int, RevalidationReport]:
    """Re-validations' reports in two statements; ``limits``: how many bests of each."""
    bests = Revalidated.objects.filter(revalidation__in=limits)
    if scopes is not None:
        bests = bests.filter(exploration__scope__in=scopes)
    counts: dict[int, Counter[RevalidationVerdict]] = {number: Counter() for number in limits}
    for number, verdict, n in bests.values_list("revalidation", "verdict").annotate(n=Count("pk")).order_by():
        counts[number][RevalidationVerdict(verdict)] = n
    rows: dict[int, list[Revalidated]] = {number: [] for number in limits}
    if any(limit and counts[number] for number, limit in limits.items()):
        for one in _gravest(bests, limits):
            rows[one.revalidation_id].append(one)
    return {number: _report(counts[number], tuple(rows[number])) for number in limits}


def _gravest(bests: QuerySet[Revalidated], limits: Mapping[int, int]) -> QuerySet[Revalidated]:
    """The first of each re-validation, as many as its limit says."""
    place = Window(
        RowNumber(),
        partition_by=F("revalidation"),
        order_by=[_GRAVEST_FIRST.asc(), (F("ratio_after") / F("ratio_before")).asc(), F("pk").asc()],
    )
    wanted = Q(pk__in=[])
    for limit in set(limits.values()):
        wanted |= Q(revalidation__in=[n for n, most in limits.items() if most == limit], place__lte=limit)
    return (
        bests.annotate(place=place)
        .filter(wanted)
        .select_related("exploration__operator", "implementation")
        .defer("exploration__operator__graph", "implementation__source", "implementation__schedule")
        .order_by("revalidation", "place")
    )


def _report(count: Counter[RevalidationVerdict], rows: tuple[Revalidated, ...]) -> RevalidationReport:
    total = count.total()
    return RevalidationReport(
        total=total,
        waiting=count[RevalidationVerdict.WAITING],
        measured=total - count[RevalidationVerdict.WAITING] - count[RevalidationVerdict.RESTORED],
        restored=count[RevalidationVerdict.RESTORED],
        better=count[RevalidationVerdict.BETTER],
        worse=count[RevalidationVerdict.WORSE],
        failed=count[RevalidationVerdict.FAILED],
        rows=rows,
    )


_GRAVEST = ("failed", "worse", "waiting", "same", "restored", "better")
_GRAVEST_FIRST = Case(
    *(When(verdict=RevalidationVerdict(verdict), then=place) for place, verdict in enumerate(_GRAVEST)),
    output_field=IntegerField(),
)
