"""What routes' trials took and why they failed, as rollups: made by the courier, read by pages and the API.

Over the latest explorations of each place that came to something, and of all places together, shared ones
only. A page that counted trials itself would read a hundred of them for each exploration.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from catalog.models import SHARED, Best, Method, Rollup
from tuning.failures.reasons import reason_of
from tuning.models import Exploration, FailureReason, RouteEffort, Trial

LATEST = 1_000
"""Explorations that the figures are of."""
NAME = "route-efforts"
_REASONS = 25  # of one route in one place; rarer ones are counted together
_OTHERS = "other reasons"
_LEAST_S, _SHARE = 60.0, 0.02  # at most so often, and so much of the courier's time


@dataclass(frozen=True, slots=True)
class TrialEffort:
    """One trial, as far as the figures need it."""

    exploration: int
    asked_at: datetime
    round: int
    method: str
    route: str
    status: str
    detail: str
    ratio: float | None
    build_s: float | None
    took_s: float
    ended_at: datetime
    pk: int


@dataclass
class _Sum:
    """What is gathered about one route or method."""

    trials: int = 0
    verified: int = 0
    explorations: set[int] = field(default_factory=set)
    first_s: dict[int, float] = field(default_factory=dict)
    best: dict[int, tuple[float, float]] = field(default_factory=dict)  # (ratio, seconds)
    effort_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    builds_s: list[float] = field(default_factory=list)

    def add(self, one: TrialEffort) -> None:
        self.explorations.add(one.exploration)
        self.trials += 1
        self.effort_s[one.exploration] += one.took_s
        if one.build_s is not None:
            self.builds_s.append(one.build_s)
        if one.status != "ok":
            return
        self.verified += 1
        if one.round > 0:
            return  # a further round begins long after the miss: its times say nothing
        after_s = (one.ended_at - one.asked_at).total_seconds()
        self.first_s[one.exploration] = min(after_s, self.first_s.get(one.exploration, after_s))
        ratio = one.ratio or 0.0
        if ratio > self.best.get(one.exploration, (-1.0, 0.0))[0]:
            self.best[one.exploration] = (ratio, after_s)

    def row(self, place: str, method: str, route: str, found: int) -> RouteEffort:
        return RouteEffort(
            place=place, method=method, route=route, found=found, explorations=len(self.explorations),
            trials=self.trials, verified=self.verified, first_result_s=_median(self.first_s.values()),
            best_s=_median(seconds for _, seconds in self.best.values()),
            effort_s=_median(self.effort_s.values()), build_s=_median(self.builds_s),
        )  # fmt: skip


def refresh_efforts_when_due() -> None:
    """The courier's chore: often enough to be new, rarely enough to cost little."""
    if Rollup.is_due(NAME, _LEAST_S, _SHARE):
        refresh_efforts()


def refresh_efforts() -> None:
    """Make the rollups anew, in one transaction: a reader sees the old ones or the new."""
    began = time.monotonic()
    efforts: list[RouteEffort] = []
    reasons: list[FailureReason] = []
    found = _found()
    for place in ["", *_places()]:
        sums, ends = _gathered(_trials(place))
        per_method = {method: found.get((place, method), 0) for method in Method.values}
        known = {(method, "") for method, count in per_method.items() if count}
        for method, route in sorted(known | sums.keys()):
            own = per_method[method] if not route else 0
            efforts.append(sums[method, route].row(place, method, route, own))
        reasons += _reasons(place, ends)
    with transaction.atomic():
        RouteEffort.objects.all().delete()
        FailureReason.objects.all().delete()
        RouteEffort.objects.bulk_create(efforts, batch_size=500)
        FailureReason.objects.bulk_create(reasons, batch_size=500)
        Rollup.note(NAME, began)


_Ends = dict[tuple[str, str, str], Counter[str]]  # (method, route, status) → reason → how often


def _gathered(
    trials: Iterable[TrialEffort],
) -> tuple[dict[tuple[str, str], _Sum], tuple[_Ends, dict[tuple[str, str, str, str], int]]]:
    sums: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    ends: _Ends = defaultdict(Counter)
    latest: dict[tuple[str, str, str, str], int] = {}
    for one in trials:
        sums[one.method, one.route].add(one)
        sums[one.method, ""].add(one)
        if one.status != "ok":
            reason = reason_of(one.detail)
            ends[one.method, one.route, one.status][reason] += 1
            key = (one.method, one.route, one.status, reason)
            latest[key] = max(one.pk, latest.get(key, 0))
    return sums, (ends, latest)


def _reasons(place: str, ends: tuple[_Ends, dict[tuple[str, str, str, str], int]]) -> Iterator[FailureReason]:
    counted, latest = ends
    for (method, route, status), reasons in counted.items():
        common = {"place": place, "method": method, "route": route, "status": status}
        shown = reasons.most_common(_REASONS)
        for reason, count in shown:
            example = latest[method, route, status, reason]
            yield FailureReason(**common, reason=reason, count=count, example_id=example)
        rest = reasons.total() - sum(count for _, count in shown)
        if rest:
            yield FailureReason(**common, reason=_OTHERS, count=rest)


def _places() -> list[str]:
    pairs = _came_to_something().values_list("target_id", "setting_id").distinct()
    return [f"{target}-{setting}" for target, setting in pairs.order_by("target_id", "setting_id")]


def _came_to_something() -> QuerySet[Exploration]:
    """Shared explorations with a first result, or that ended without any."""
    return Exploration.objects.filter(
        Q(first_result_at__isnull=False) | Q(finished_at__isnull=False), scope=SHARED
    )


def latest_explorations(place: str) -> Sequence[int]:
    """The explorations that the figures of a place are of."""
    rows = _came_to_something()
    if place:
        target, _, setting = place.partition("-")
        rows = rows.filter(target_id=int(target), setting_id=int(setting))
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:LATEST])


def _trials(place: str) -> Iterator[TrialEffort]:
    """Of few explorations at a time: a thousand have a hundred thousand trials."""
    chosen = latest_explorations(place)
    for start in range(0, len(chosen), 100):
        rows = Trial.objects.filter(exploration__in=chosen[start : start + 100]).values_list(
            "exploration_id", "exploration__asked_at", "round", "method", "route",
            "status", "detail", "ratio_to_default", "build_s", "took_s", "created_at", "pk",
        )  # fmt: skip
        for row in rows:
            yield TrialEffort(*row)


def _found() -> dict[tuple[str, str], int]:
    """(place, method) → operators with a verified implementation; everywhere: the places' sum."""
    counts: Counter[tuple[str, str]] = Counter()
    rows = Best.objects.filter(scope=SHARED).values("target_id", "setting_id", "method")
    for row in rows.annotate(n=Count("operator", distinct=True)).order_by():
        for place in ("", f"{row['target_id']}-{row['setting_id']}"):
            counts[place, row["method"]] += row["n"]
    return counts


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None
