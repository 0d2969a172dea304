"""What is wrong with exploring itself: routes that always fail, machines too disturbed to measure on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from catalog.models import Target
from tuning.failures.reasons import reason_of
from tuning.measure.outcome import Status
from tuning.models import Trial

WITHIN = timedelta(hours=24)
LATEST = 4000
"""Trials that are looked at, the latest: what is wrong now shows in them."""

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


def alarms(now: datetime | None = None) -> Alarms:
    """Three statements at most, whatever the number of trials."""
    found = _latest(now or timezone.now())
    by_route: dict[tuple[int, str], list[_Tried]] = defaultdict(list)
    by_target: dict[int, list[_Tried]] = defaultdict(list)
    for one in found:
        if one.status not in _SAYS_NOTHING:
            by_route[one.target, one.route].append(one)
        if one.status in _WORKS:
            by_target[one.target].append(one)
    failing = {place: tried for place, tried in by_route.items() if _fails(tried)}
    disturbed = {target: tried for target, tried in by_target.items() if _is_disturbed(tried)}
    names = dict(
        Target.objects.filter(pk__in={target for target, _ in failing} | disturbed.keys()).values_list(
            "pk", "capability"
        )
    )
    return Alarms(
        tuple(_failing(names, failing)),
        tuple(_disturbed(names[target], tried) for target, tried in disturbed.items()),
    )


def _latest(now: datetime) -> list[_Tried]:
    rows = Trial.objects.filter(created_at__gte=now - WITHIN).order_by("-pk")
    columns = (
        "pk",
        "exploration__target",
        "exploration__operator",
        "route",
        "status",
        "worker",
        "created_at",
    )
    return [_Tried(*row) for row in rows.values_list(*columns)[:LATEST]]


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
