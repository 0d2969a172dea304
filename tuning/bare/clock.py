"""What is left of a slice, and its one rule: nothing is begun whose own limit is longer than that."""

from __future__ import annotations

import time
from dataclasses import dataclass

RACE_S = 90.0
"""For checking and racing all that one operator's builds have made."""


class PutOff(Exception):
    """So much time is not left; the next slice begins with it."""


@dataclass(frozen=True)
class SliceClock:
    """``ends``: by the monotonic clock. ``after_s`` is what has to follow whatever is begun. ``patient``:
    what does not fit is put off; else it is left out, so that no slice begins with the same for ever."""

    ends: float
    after_s: float = RACE_S
    patient: bool = True

    @classmethod
    def of(cls, seconds: float) -> SliceClock:
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()

    def why_not(self, limit_s: float) -> str:
        """Empty where something that may take so long can begin; raises :class:`PutOff`."""
        if self.left_s >= limit_s + self.after_s:
            return ""
        why = (
            f"not begun: it may take {limit_s:.0f} s, what follows {self.after_s:.0f} s, and "
            f"{max(0.0, self.left_s):.0f} s of the slice are left"
        )
        if self.patient:
            raise PutOff(why)
        return why
