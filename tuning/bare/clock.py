"""What is left of a slice. What has no time to be of use is passed over; what runs is ended when time is."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class SliceClock:
    """``ends``: by the monotonic clock."""

    ends: float

    @classmethod
    def of(cls, seconds: float) -> SliceClock:
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends - time.monotonic())

    def of_it(self, seconds: float) -> SliceClock:
        """So much of what is left, or all of it."""
        return SliceClock(min(self.ends, time.monotonic() + seconds))
