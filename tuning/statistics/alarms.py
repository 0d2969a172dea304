"""What is wrong with exploring itself: routes that always fail, machines too disturbed to measure on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone

from catalog.models import Target
from tuning.failures.reasons import reason_of
from tuning.measure.outcome import Status
from tuning.models import Trial

WITHIN = timedelta(hours=24)
LATEST = 4000
"""Trials that are looked at, the latest: what is wrong now shows in them."""

LATE = timedelta(minutes=1)
"""How long after its number was taken a trial is committed at the latest; a later one is found …"""
WHOLE_EVERY = timedelta(minutes=10)
"""… when all of them are read again, and one that was deleted is gone then."""

FAILS, OPERATORS = 8, 3
"""So many trials, of so many operators: what fails on one operator alone is that operator's affair."""

TIMED, NOISY_SHARE = 20, 0.5
"""Of at least so many trials that were to be timed, this share could not be."""

_WORKS = frozenset({Status.OK, Status.SLOWER, Status.NOISY})
_SAYS_NOTHING = frozenset({Status.UNSUPPORTED})


@dataclass(frozen=True)
class FailingRoute:
    """A route none of whose latest trials on a target came to anything."""

    target_id: int
    capability: str
    route: str
    trials: int
    operators: int
    since: datetime
    status: str  # the commonest
    reason: str  # its commonest reason, numbers left out


@dataclass(frozen=True)
class DisturbedTarget:
    """A target on whose machines times do not hold still: of ``trials`` so many were ``noisy``."""

    target_id: int
    capability: str
    trials: int
    noisy: int
    workers: Sequence[str]

    @property
    def share(self) -> float:
        return self.noisy / self.trials


@dataclass(frozen=True)
class Alarms:
    """Both, as it stands now."""

    failing: Sequence[FailingRoute] = ()
    disturbed: Sequence[DisturbedTarget] = ()


@dataclass(frozen=True)
class _Tried:
    """As much of a trial as is needed to judge by."""

    pk: int
    target: int
    operator: int
    route: str
    status: str
    worker: str
    at: datetime


class LatestTrials:
    """The latest trials, for a process that looks again and again: what is new is read, and of what was read
    only the last minute once more, since a trial may be committed after younger ones."""

    def __init__(self) -> None:
        self._held: list[_Tried] = []  # the latest first
        self._whole_at: datetime | None = None

    def look(self, now: datetime) -> Sequence[_Tried]:
        """Those of the last day, at most ``LATEST``, the latest first. One statement; two where all of them
        are read, which is the first time, then every ``WHOLE_EVERY``, and where the database has become
        another."""
        found = self._with_news(now)
        if found is None:
            found, self._whole_at = _tried(Trial.objects.filter(created_at__gte=now - WITHIN)), now
        self._held = [one for one in found if one.at >= now - WITHIN][:LATEST]
        return self._held

    def _with_news(self, now: datetime) -> list[_Tried] | None:
        if not self._held or self._whole_at is None or now - self._whole_at >= WHOLE_EVERY:
            return None
        settled = next((one for one in self._held if now - one.at >= LATE), self._held[-1])
        fresh = _tried(Trial.objects.filter(pk__gte=settled.pk))
        if not fresh or (fresh[-1].pk, fresh[-1].at) != (settled.pk, settled.at):
            return None
        return fresh + [one for one in self._held if one.pk < settled.pk]


def alarms(trials: LatestTrials, now: datetime | None = None) -> Alarms:
    """Four statements at most, whatever the number of trials."""
    found = trials.look(now or timezone.now())
    by_route: dict[tuple[int, str], list[_Tried]] = defaultdict(list)
    by_target: dict[int, list[_Tried]] = defaultdict(list)
    for one in found:
        if one.status not in _SAYS_NOTHING:
            by_route[one.target, one.route].append(one)
        if one.status in _WORKS:
            by_target[one.target].append(one)
    failing = {place: tried for place, tried in by_route.items() if _fails(tried)}
    disturbed = {target: tried for target, tried in by_target.items() if _is_disturbed(tried)}
    targets = {target for target, _ in failing} | disturbed.keys()
    names = dict(Target.objects.filter(pk__in=targets).values_list("pk", "capability"))
    return Alarms(
        tuple(_failing(names, {place: tried for place, tried in failing.items() if place[0] in names})),
        tuple(_disturbed(names[target], tried) for target, tried in disturbed.items() if target in names),
    )


def _tried(rows: QuerySet[Trial]) -> list[_Tried]:
    columns = (
        "pk",
        "exploration__target",
        "exploration__operator",
        "route",
        "status",
        "worker",
        "created_at",
    )
    return [_Tried(*row) for row in rows.order_by("-pk").values_list(*columns)[:LATEST]]


def _fails(tried: Sequence[_Tried]) -> bool:
    return (
        len(tried) >= FAILS
        and len({one.operator for one in tried}) >= OPERATORS
        and not any(one.status in _WORKS for one in tried)
    )


def _is_disturbed(tried: Sequence[_Tried]) -> bool:
    latest = tried[: 4 * TIMED]
    noisy = sum(one.status == Status.NOISY for one in latest)
    return len(latest) >= TIMED and noisy >= NOISY_SHARE * len(latest)


def _failing(names: dict[int, str], failing: dict[tuple[int, str], list[_Tried]]) -> Iterator[FailingRoute]:
    asked = [one.pk for tried in failing.values() for one in tried[:FAILS]]
    details = dict(Trial.objects.filter(pk__in=asked).values_list("pk", "detail")) if asked else {}
    for (target, route), tried in failing.items():
        ((status, _),) = Counter(one.status for one in tried).most_common(1)
        reasons = Counter(
            reason_of(details[one.pk]) for one in tried[:FAILS] if one.status == status and one.pk in details
        )
        reason = reasons.most_common(1)[0][0] if reasons else ""
        operators = len({one.operator for one in tried})
        yield FailingRoute(target, names[target], route, len(tried), operators, tried[-1].at, status, reason)


def _disturbed(capability: str, tried: Sequence[_Tried]) -> DisturbedTarget:
    latest = tried[: 4 * TIMED]
    noisy = [one for one in latest if one.status == Status.NOISY]
    workers = tuple(sorted({one.worker for one in noisy if one.worker}))
    return DisturbedTarget(latest[0].target, capability, len(latest), len(noisy), workers)
