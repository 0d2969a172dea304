"""From line-ups to the contest's figures. Pure.

All ratios are default ÷ implementation of one operator, taken in one race: above 1 is faster.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dashboard.run.statistics import geometric_mean

REGRESSION = 1 / 1.03
"""Served, and slower than the default by more than 3 %, in two line-ups."""


@dataclass(frozen=True)
class ContestRow:
    """One operator. ``chosen`` is what a lookup gets; baselines and routes that lack the operator are not
    in their mappings: there the default counts."""

    key: str
    operator: str
    example: str
    calls: int
    halved: bool = False
    reason: str = ""  # why there is no answer
    route: str = ""
    method: str = ""
    label: str = ""
    default_route: str = ""
    default_us: float = 0.0
    chosen: float = 0.0  # in the first line-up, beside the baselines; 0: no answer
    chosen_again: float = 0.0  # in the second, beside the oracle's candidates
    baselines: Mapping[str, float] = field(default_factory=dict)  # eager, onnxruntime, max_autotune
    routes: Mapping[str, float] = field(default_factory=dict)  # each route's best
    oracle: float = 0.0  # the fastest of all candidates, in the second line-up
    oracle_label: str = ""
    candidates: int = 0  # that were re-measured
    failed: Mapping[str, str] = field(default_factory=dict)  # label → status, of what did not run again
    took_s: float = 0.0

    @property
    def answered(self) -> bool:
        return self.chosen > 0

    @property
    def regret(self) -> float:
        """How much longer the choice takes than the best candidate would, as a fraction."""
        return max(0.0, self.oracle / self.chosen_again - 1) if self.chosen_again else 0.0

    @property
    def regressed(self) -> bool:
        return self.answered and max(self.chosen, self.chosen_again or self.chosen) < REGRESSION

    def over(self, baseline: str) -> float:
        """Speed-up over a baseline; 1 without an answer."""
        return self.chosen / self.baselines.get(baseline, 1.0) if self.answered else 1.0

    def to_json(self) -> dict[str, Any]:
        rounded = {name: _rounded(value) for name, value in asdict(self).items()}
        return {**rounded, "answered": self.answered, "regret": _rounded(self.regret)}


BASELINES = ("eager", "onnxruntime", "max_autotune")


def summarize(rows: Sequence[ContestRow]) -> dict[str, Any]:
    """What the contest is judged by."""
    answered = [row for row in rows if row.answered]
    routes = route_geomeans(rows)
    best_route = max(routes, key=lambda name: routes[name]) if routes else ""
    regrets = [row.regret for row in answered]
    return {
        "operators": len(rows),
        "total": len(rows),
        "answered": len(answered),
        "geomean_vs_default": _rounded(geometric_mean([row.chosen or 1.0 for row in rows])),
        **{
            f"geomean_vs_{name}": _rounded(geometric_mean([row.over(name) for row in rows]))
            for name in BASELINES
        },
        "geomean_vs_best_route": _rounded(
            geometric_mean(
                [row.chosen / row.routes.get(best_route, 1.0) if row.answered else 1.0 for row in rows]
            )
        ),
        "best_route": best_route,
        "geomean_by_route": {name: _rounded(value) for name, value in routes.items()},
        "covered_by_route": dict(Counter(name for row in rows for name in row.routes)),
        "covered_by_baseline": dict(Counter(name for row in rows for name in row.baselines)),
        "median_regret": _rounded(statistics.median(regrets)) if regrets else 0.0,
        "max_regret": _rounded(max(regrets, default=0.0)),
        "regressions": [row.key for row in rows if row.regressed],
        "wins_by_method": dict(Counter(row.method for row in answered).most_common()),
        "wins_by_route": dict(Counter(row.route for row in answered).most_common()),
        "halved": sum(row.halved for row in rows),
    }


def route_geomeans(rows: Sequence[ContestRow]) -> dict[str, float]:
    """Each route alone, against the default: where it lacks an operator, the default counts."""
    names = sorted({name for row in rows for name in row.routes})
    means = {name: geometric_mean([row.routes.get(name, 1.0) for row in rows]) for name in names}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return value
