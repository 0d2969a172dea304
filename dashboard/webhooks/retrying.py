"""When a delivery that failed is tried again. PURE.

Exponential, from seconds to hours, with jitter so that a receiver that comes back is not met by everything at
once; over three days, the last try at their end.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

GIVE_UP_AFTER = timedelta(days=3)
FIRST_S = 5.0
FACTOR = 3.0
LONGEST_S = 6 * 3600.0
LONGEST_ASKED_S = 3600.0
JITTER = 0.2


def delay_s(tries: int, chance: float) -> float:
    """Seconds to wait after so many tries (1 after the first); ``chance`` is in 0…1."""
    plain = min(FIRST_S * FACTOR ** min(tries - 1, 20), LONGEST_S)
    return plain * (1 - JITTER + 2 * JITTER * chance)


def next_try(
    tries: int,
    began_at: datetime,
    now: datetime,
    *,
    asked_s: float | None = None,
    chance: float | None = None,
) -> datetime | None:
    """When to try again after the ``tries``-th failure; None: it has failed for good.

    ``asked_s`` is a Retry-After, heeded up to an hour.
    """
    ends_at = began_at + GIVE_UP_AFTER
    if now >= ends_at:
        return None
    wait_s = delay_s(tries, random.random() if chance is None else chance)
    if asked_s is not None:
        wait_s = max(wait_s, min(asked_s, LONGEST_ASKED_S))
    return min(now + timedelta(seconds=wait_s), ends_at)
