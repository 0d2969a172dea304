"""Who may still win a race, from a few rounds of it. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from opatlas.noise import BETWEEN_PROCESSES, ROUND_DEVIATION, ROUNDS_OF_PRIOR

_MEDIAN = 1.2533  # a median's standard error, in a mean's


@dataclass(frozen=True, slots=True)
class Lead:
    """How far one runner is ahead of another: ln(the other's time ÷ its own), with its standard error."""

    ahead: float
    error: float

    @property
    def chance(self) -> float:
        """That the other is in truth the faster one."""
        return NormalDist().cdf(-self.ahead / self.error)


def lead(own_us: Sequence[float], others_us: Sequence[float]) -> Lead:
    """From times of the same rounds, at least one. What a few rounds say of their own spread is drawn towards
    what rounds usually spread by; two processes differ for good by ``BETWEEN_PROCESSES`` each."""
    apart = np.log(np.asarray(others_us, np.float64)) - np.log(np.asarray(own_us, np.float64))
    middle = float(np.median(apart))
    squares = float(np.sum((apart - middle) ** 2)) + ROUNDS_OF_PRIOR * ROUND_DEVIATION**2
    deviation = math.sqrt(squares / (len(apart) + ROUNDS_OF_PRIOR))
    within = _MEDIAN * deviation / math.sqrt(len(apart))
    return Lead(middle, math.hypot(within, math.sqrt(2) * BETWEEN_PROCESSES))
