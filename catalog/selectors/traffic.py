"""What rows that count lookups have in common, and lookups over time, one operator's or any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


class Lookups:
    """A row's hits and misses together."""

    hits: int
    misses: int

    @property
    def lookups(self) -> int:
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.lookups if self.lookups else None


class Saving:
    """A row's saved time."""

    saved_us: float

    @property
    def saved_s(self) -> float:
        return self.saved_us / 1e6


@dataclass(frozen=True)
class LookupSlot(Lookups):
    """Lookups of one hour or day."""

    start: datetime
    hits: int
    misses: int
