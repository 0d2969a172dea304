"""The shape of lookups over time, one operator's or any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class LookupSlot:
    """Lookups of one hour or day."""

    start: datetime
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None
