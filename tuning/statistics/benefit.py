"""Would more tuning of one operator pay? What the next slice is expected to gain, cost, and earn a day."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition
from typing import TYPE_CHECKING

from cachetools import TTLCache, cached
from django.db.models import Min, Sum
from django.utils import timezone

from catalog.models import LookupTally, Operator
from opatlas.noise import LEAST_GAIN
from tuning.conf import conf
from tuning.explore.slice_history import about_slice, estimator
from tuning.explore.worth import Estimator
from tuning.models import Exploration, State, TuningSlice
from tuning.statistics.units import time_said

if TYPE_CHECKING:
    from catalog.viewing import Viewer

RATE_DAYS = 7
"""Days that the present call rate is taken from."""
_SLICES = 50
_LEARNT_FOR_S = 60.0
_MEASURING_S = 5.0  # what building and measuring add to a slice's search


@dataclass(frozen=True)
class Benefit:
    """One more slice of tuning. ``gain`` is a share of the time; ``payback_days`` None: it never pays."""

    route: str  # by which it would be tuned
    gain: float
    why: str  # what the expectation was learnt from
    best_us: float
    slice_s: float
    calls_per_day: float
    slices: int  # done so far, by all routes
    spent_s: float  # by them
    gained: float  # by them: share of the time before the first of them
    going_on: bool  # the exploration has not ended

    @property
    def saved_us_per_day(self) -> float:
        return self.calls_per_day * self.best_us * self.gain

    @property
    def payback_days(self) -> float | None:
        saved = self.saved_us_per_day
        return self.slice_s * 1e6 / saved if saved > 0 else None

    @property
    def payback_text(self) -> str:
        """``3 hours``, ``12 days``; more than a year is not told apart."""
        days = self.payback_days
        return "never" if days is None else _days(days) if days <= 365 else "over a year"

    @property
    def pays(self) -> bool:
        """Within a year, and by a gain that a race could tell."""
        days = self.payback_days
        return self.gain >= LEAST_GAIN and days is not None and days <= 365

    @property
    def sentence(self) -> str:
        """Whether more tuning would pay, and why."""
        gain = f"{100 * self.gain:.1f} % of {time_said(self.best_us)} ({self.why})"
        if not self.calls_per_day:
            return (
                f"One more slice is expected to save {gain}, but nobody has asked for it in the last "
                f"{RATE_DAYS} days: it would not pay."
            )
        rate = f"at {self.calls_per_day:,.0f} calls a day" if self.calls_per_day >= 1 else "at its few calls"
        earned = f"One more slice of {self.slice_s:.0f} s is expected to save {gain}: "
        earned += f"{time_said(self.saved_us_per_day)} a day {rate}"
        if self.gain < LEAST_GAIN:
            return f"{earned}. No race could tell so small a gain: it would not pay."
        days = self.payback_days
        if days is None or days > 365:
            return f"{earned}. It would take more than a year to pay back."
        return f"{earned}; it pays back in {_days(days)}."


def benefit(
    row: Exploration,
    best_us: float,
    calls_per_day: float,
    done: Sequence[TuningSlice],
    endings: Iterable[tuple[str, str]],
) -> Benefit | None:
    """Of the route from which most is expected; None where no route that tunes made anything of it.

    ``row`` has its operator and setting loaded; ``done`` are its slices, ``endings`` which (route, status)
    its trials had. The slice's seconds are the median of the route's latest.
    """
    routes = _tunable(endings)
    if not routes:
        return None
    learnt = _latest()
    counts = Counter(one.route for one in done)
    expected = {
        name: learnt.estimator.expect(about_slice(row, name, best_us, counts[name])) for name in routes
    }
    name = max(expected, key=lambda one: expected[one].gain)
    left = 1.0
    for one in done:
        left *= 1 - one.gained
    return Benefit(
        route=name,
        gain=expected[name].gain,
        why=expected[name].why,
        best_us=best_us,
        slice_s=learnt.slice_s.get(name, conf().tune_slice_s + _MEASURING_S),
        calls_per_day=calls_per_day,
        slices=len(done),
        spent_s=sum(one.seconds for one in done),
        gained=1 - left,
        going_on=row.state in (State.QUEUED, State.RUNNING, State.PAUSED),
    )


def endings_of(row: Exploration) -> Iterable[tuple[str, str]]:
    """Which (route, status) its trials had."""
    return row.trials.values_list("route", "status").distinct().order_by()


def calls_per_day(operator: Operator, viewer: Viewer) -> float:
    """Of the last days, or since its first lookup if that is later: calls that lookups announced."""
    now = timezone.now()
    since = now - timedelta(days=RATE_DAYS)
    mine = LookupTally.objects.filter(viewer.owned(), operator=operator, hour__gte=since)
    seen = mine.aggregate(hits=Sum("hit_calls"), misses=Sum("miss_calls"), first=Min("hour"))
    calls = (seen["hits"] or 0.0) + (seen["misses"] or 0.0)
    if not calls:
        return 0.0
    # An operator of this hour has not been asked for on seven days; a day is the least that a rate needs.
    days = max(1.0, (now - seen["first"]).total_seconds() / 86_400)
    return float(calls / min(days, RATE_DAYS))


def _tunable(endings: Iterable[tuple[str, str]]) -> list[str]:
    """Routes that tune and support the operator: those whose first tries did not end as unsupported."""
    made_something = {route for route, status in endings if status != "unsupported"}
    return [name for name in _tuning_routes() if name in made_something]


def _tuning_routes() -> list[str]:
    from tuning.routes.base import Tunable
    from tuning.routes.registry import ROUTES

    return [route.name for route in ROUTES if isinstance(route, Tunable)]


@dataclass(frozen=True)
class _Learnt:
    """What the latest slices teach: expectations, and each route's median seconds."""

    estimator: Estimator
    slice_s: Mapping[str, float]


@cached(TTLCache(maxsize=1, ttl=_LEARNT_FOR_S), condition=Condition())
def _latest() -> _Learnt:
    """Fitted at most once a minute: two thousand rows."""
    seconds = {name: statistics.median(some) for name in _tuning_routes() if (some := _seconds(name))}
    return _Learnt(estimator(), seconds)


def _seconds(route: str) -> list[float]:
    latest = TuningSlice.objects.filter(route=route).order_by("-pk").values_list("seconds", flat=True)
    return list(latest[:_SLICES])


def forget() -> None:
    """What was learnt, for tests that write slices."""
    _latest.cache_clear()


def _days(days: float) -> str:
    if days >= 2:
        return f"{days:,.0f} days"
    hours = days * 24
    return f"{hours:.0f} hours" if hours >= 2 else f"{max(1, round(hours * 60))} minutes"
