"""What one run of the contest is to do, from what was said to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.conf import BenchConf
from bench.contest.sample import Entrant, limited, read_sample, sample_path

BUDGET_S = 3600.0
EXPLORING_SHARE = 0.65  # of the budget; the rest is for measuring again
MEASURING_S = 60.0
"""For measuring an operator again, on the average: a guard that no sound run reaches. Exploring takes
nothing of it."""


@dataclass(frozen=True)
class ContestPlan:
    """Operators and seconds. ``identity``: two runs with the same one are about the same operators."""

    path: Path
    entrants: Sequence[Entrant]
    identity: str
    exploring_s: float
    budget_s: float | None  # of the whole; None: exploring alone is bounded
    per_operator_s: float | None

    def measuring_s(self, explored_s: float) -> float:
        """For measuring all of it again."""
        least = MEASURING_S * len(self.entrants)
        return least if self.budget_s is None else max(self.budget_s - explored_s, least)


def plan(said: BenchConf) -> ContestPlan:
    path = sample_path(said.sample)
    entrants = limited(read_sample(path), said.limit)
    budget_s = None if said.per_operator_s else said.budget_s or BUDGET_S
    return ContestPlan(
        path,
        entrants,
        hashlib.sha256(path.read_bytes()).hexdigest() + (f" {said.limit}" if said.limit else ""),
        said.per_operator_s * len(entrants) if said.per_operator_s else (budget_s or 0) * EXPLORING_SHARE,
        budget_s,
        said.per_operator_s,
    )
