"""The time range of pages and statistics: ``?range=7d``, or ``?since=…&until=…`` (ISO 8601)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from catalog.errors import RequestError

RANGES = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "1y": timedelta(days=365),
}
Grain = Literal["hour", "day"]
_BY_HOUR_UP_TO = timedelta(days=8)
_LONGEST = timedelta(days=3700)


@dataclass(frozen=True)
class TimeRange:
    """From ``since`` (inclusive) to ``until`` (exclusive), both in UTC. ``name`` is "" for dates."""

    since: datetime
    until: datetime
    name: str = ""

    @property
    def grain(self) -> Grain:
        """The length of the slots in which such a range is shown."""
        return "hour" if self.until - self.since <= _BY_HOUR_UP_TO else "day"

    def first(self, grain: Grain | None = None) -> datetime:
        """The beginning of the hour or day of ``since``."""
        hour = self.since.replace(minute=0, second=0, microsecond=0)
        return hour.replace(hour=0) if (grain or self.grain) == "day" else hour

    def starts(self, grain: Grain | None = None) -> list[datetime]:
        """The beginning of each of its hours or days, empty ones too: a gap is a fact."""
        start = self.first(grain)
        step = timedelta(days=1) if (grain or self.grain) == "day" else timedelta(hours=1)
        return [start + number * step for number in range(-((start - self.until) // step))]

    @property
    def query(self) -> str:
        """The range as a part of a URL."""
        if self.name:
            return f"range={self.name}"
        return f"since={self.since:%Y-%m-%dT%H:%M:%SZ}&until={self.until:%Y-%m-%dT%H:%M:%SZ}"

    def __str__(self) -> str:
        return self.name or f"{self.since:%Y-%m-%d %H:%M} – {self.until:%Y-%m-%d %H:%M}"


def parse_range(given: Mapping[str, str], default: str = "7d", now: datetime | None = None) -> TimeRange:
    """Read ``range``, ``since`` and ``until`` of a query; raises :class:`RequestError` with one sentence."""
    now = now or timezone.now()
    if given.get("since") or given.get("until"):
        until = _moment(given["until"], "until") if given.get("until") else now
        since = _moment(given["since"], "since") if given.get("since") else until - RANGES[default]
        if not timedelta(0) < until - since <= _LONGEST:
            raise RequestError("since must lie before until, by ten years at most.", where="since")
        return TimeRange(since, until)
    name = given.get("range") or default
    if name not in RANGES:
        raise RequestError(f"range is one of {', '.join(RANGES)}; or give since and until.", where="range")
    return TimeRange(now - RANGES[name], now, name)


def _moment(text: str, where: str) -> datetime:
    try:
        moment = parse_datetime(text)
        if moment is None and (day := parse_date(text)):
            moment = datetime(day.year, day.month, day.day)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or not 1990 <= moment.year <= 2200:
        raise RequestError(f"{where} is a date or a time such as 2026-11-21T09:00:00Z.", where=where)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
