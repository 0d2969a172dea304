"""How fast something grows, when its disk will be full, and the words for it. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from statistics import median
from typing import Annotated, NamedTuple

from dashboard.web import wording

LOOKED_AT = 30
"""How many of the last daily samples count."""

SETTLED = 8
"""How many samples after a step are enough by themselves."""

FAR_DAYS = 2 * 365
GAP = timedelta(days=2)
_DAY_S = 86400.0
_MONTH_DAYS = 30.4


class SizePoint(NamedTuple):
    """One sample."""

    at: datetime
    bytes: int


def bytes_a_day(points: Sequence[SizePoint]) -> float | None:
    """The median of the slopes between any two of the last samples (Theil and Sen), which an outlier does not
    move; negative for what shrinks. None for fewer than two samples."""
    points = settled(points[-LOOKED_AT:])
    dated = [((one.at - points[0].at).total_seconds() / _DAY_S, one.bytes) for one in points]
    slopes = [(more - less) / (later - day) for (day, less), (later, more) in combinations(dated, 2)]
    return median(slopes) if slopes else None


def settled(points: Sequence[SizePoint]) -> Sequence[SizePoint]:
    """The samples after a step that outweighs all others together (a restored backup, rows of years deleted),
    since a step is no growth. All samples if there is no such step or few follow it: the median then ignores
    it."""
    steps = [abs(after.bytes - before.bytes) for before, after in pairwise(points)]
    if not steps or 2 * max(steps) <= sum(steps):
        return points
    after = points[steps.index(max(steps)) + 1 :]
    return after if len(after) >= SETTLED else points


def full_in_days(free_bytes: int | None, a_day: float | None) -> float | None:
    """When so much room will be used up; None if unknown or never."""
    if free_bytes is None or a_day is None or a_day <= 0:
        return None
    return max(free_bytes, 0) / a_day


def several(count: int, what: str) -> str:
    """``1 day``, ``3 days``."""
    return f"{count} {what}{'s' if count != 1 else ''}"


def said_full(days: float | None) -> str:
    """``in about 8 months``; empty where there is nothing to say within two years."""
    if days is None or days > FAR_DAYS:
        return ""
    if days < 1:
        return "within a day"
    if days < 14:
        return f"in about {several(round(days), 'day')}"
    if days < 2 * _MONTH_DAYS:
        return f"in about {round(days / 7)} weeks"
    return f"in about {round(days / _MONTH_DAYS)} months"


def said_rate(a_day: float | None) -> str:
    """``+12.0 MB``, ``−3.10 kB``, ``0 B``."""
    if a_day is None:
        return wording.NOTHING
    if abs(a_day) < 1:
        return "0 B"
    return f"{'+' if a_day > 0 else '−'}{wording.quantity(abs(a_day), 'B')}"


@dataclass(frozen=True)
class DiskForecast:
    """One disk with everything on it, the service's or not."""

    disk: Annotated[str, "Where it is mounted."]
    free_bytes: int
    bytes_a_day: Annotated[float | None, "Bytes a day that all on it grows by; null where measured once."]
    full_in_days: Annotated[float | None, "Null where that is never, or not known."]


def said_of_disks(disks: Sequence[DiskForecast], database_a_day: float | None) -> str:
    """The line that matters: which disk is full first; and how the database grows where its disk cannot be
    seen (None: it can)."""
    said = [_said_of_seen(disks)] if disks else []
    if database_a_day is not None:
        rate = f"grows by {wording.quantity(database_a_day, 'B')} a day"
        grows = rate if database_a_day >= 1 else "does not grow"
        said.append(f"The database {grows}; how much room its server has cannot be seen from here.")
    return " ".join(said)


def _said_of_seen(disks: Sequence[DiskForecast]) -> str:
    names = {one: f"The disk of {one.disk}" if len(disks) > 1 else "The disk" for one in disks}
    if full := [names[one] for one in disks if one.free_bytes <= 0]:
        return f"{full[0]} is full."
    filling = [one for one in disks if said_full(one.full_in_days)]
    if not filling:
        return "Nothing will be full within two years."
    first = min(filling, key=lambda one: one.full_in_days or 0.0)
    when, rate = said_full(first.full_in_days), wording.quantity(first.bytes_a_day, "B")
    return f"{names[first]} will be full {when}: what lies on it grows by {rate} a day."


def said_of_samples(moments: Sequence[datetime], now: datetime) -> str:
    """Why there is no growth to speak of yet; empty where there is."""
    if not moments:
        return "Nothing was measured yet: that is done once a day."
    if len(moments) == 1:
        if now - moments[0] < timedelta(days=1):
            return "Measured since today; growth is known tomorrow."
        return f"Measured once, on {moments[0]:%d %b %Y}; growth is known with the second time."
    return ""


def said_gaps(moments: Sequence[datetime], now: datetime) -> list[str]:
    """Where nothing was measured, the last time first."""
    gaps = [
        f"Nothing was measured from {before:%d %b %Y} to {after:%d %b %Y}."
        for before, after in pairwise(moments)
        if after - before > GAP
    ]
    if moments and now - moments[-1] > GAP:
        gaps.append(f"Nothing was measured since {moments[-1]:%d %b %Y}: does the courier run?")
    return gaps[::-1]
