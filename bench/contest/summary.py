"""From line-ups to the contest's figures. Pure.

All ratios are default ÷ implementation of one operator, taken in one race: above 1 is faster.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dashboard.run.statistics import geometric_mean, percentile

REGRESSION = 1 / 1.03
"""Served, and slower than the default by more than 3 % with the whole interval, in two line-ups."""
OVER_US = 100.0
"""Of the default: from here on no call's overhead decides."""


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
    published_low: float = 0.0  # the interval that a lookup tells
    published_high: float = 0.0
    chosen: float = 0.0  # in the first line-up, beside the baselines; 0: no answer
    chosen_low: float = 0.0
    chosen_high: float = 0.0
    chosen_again: float = 0.0  # in the second, beside the oracle's candidates
    again_low: float = 0.0
    again_high: float = 0.0
    baselines: Mapping[str, float] = field(default_factory=dict)  # eager, onnxruntime, max_autotune
    routes: Mapping[str, float] = field(default_factory=dict)  # each route's best
    oracle: float = 0.0  # the fastest of all candidates, in the second line-up
    oracle_label: str = ""
    candidates: int = 0  # that were re-measured
    rival: float = 0.0  # what another catalogue serves, in the first line-up; 0: nothing, or none was named
    rival_again: float = 0.0
    rival_high: float = 0.0
    rival_again_high: float = 0.0
    rival_label: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)  # label → status, of what did not run again
    took_s: float = 0.0

    @property
    def answered(self) -> bool:
        return self.chosen > 0

    @property
    def regret(self) -> float:
        """How much longer the choice takes than the best candidate would, as a fraction."""
        return _regret(self.oracle, self.chosen_again)

    @property
    def regressed(self) -> bool:
        return self.answered and max(self.chosen_high, self.again_high) < REGRESSION

    @property
    def holds_at_once(self) -> bool:
        """Whether the published interval has the ratio of the second line-up in it."""
        return self.published_low <= self.chosen_again <= self.published_high

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
    return {
        "operators": len(rows),
        "total": len(rows),
        "answered": len(answered),
        **speed_ups(rows),
        **{f"time_vs_{name}": _rounded(_of_all_time(rows, name)) for name in ("eager", "onnxruntime")},
        "over_100us": speed_ups([row for row in rows if row.default_us >= OVER_US]),
        "geomean_by_route": {name: _rounded(value) for name, value in route_geomeans(rows).items()},
        "covered_by_route": dict(Counter(name for row in rows for name in row.routes)),
        "covered_by_baseline": dict(Counter(name for row in rows for name in row.baselines)),
        **regrets([row.regret for row in answered]),
        "regressions": [row.key for row in rows if row.regressed],
        "held_at_once": _share(
            [row.holds_at_once for row in answered if row.published_low < row.published_high]
        ),
        "wins_by_method": dict(Counter(row.method for row in answered).most_common()),
        "wins_by_route": dict(Counter(row.route for row in answered).most_common()),
        "halved": sum(row.halved for row in rows),
        "rival": _against_rival([row for row in rows if row.rival and row.answered]),
    }


def speed_ups(rows: Sequence[ContestRow]) -> dict[str, Any]:
    """Geometric means over these operators; the best single route is that of these operators."""
    routes = route_geomeans(rows)
    best = max(routes, key=lambda name: routes[name]) if routes else ""
    over_best = [row.chosen / row.routes.get(best, 1.0) if row.answered else 1.0 for row in rows]
    return {
        "operators": len(rows),
        "geomean_vs_default": _rounded(geometric_mean([row.chosen or 1.0 for row in rows])),
        **{
            f"geomean_vs_{name}": _rounded(geometric_mean([row.over(name) for row in rows]))
            if took_part(name, rows)
            else None
            for name in BASELINES
        },
        "geomean_vs_best_route": _rounded(geometric_mean(over_best)),
        "best_route": best,
    }


def took_part(baseline: str, rows: Sequence[ContestRow]) -> bool:
    """Whether it ran beside any of them; eager, where it is the default, is a ratio of 1."""
    return baseline == "eager" or any(baseline in row.baselines for row in rows)


def _of_all_time(rows: Sequence[ContestRow], baseline: str) -> float:
    """How much longer the baseline takes for all calls of the sample: what exploring goes by, while a
    geometric mean counts a call of 2 µs as much as one of 20 ms."""
    theirs = sum(row.calls * row.default_us / row.baselines.get(baseline, 1.0) for row in rows)
    ours = sum(row.calls * row.default_us / (row.chosen or 1.0) for row in rows)
    return theirs / ours if ours else 1.0


def regrets(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and worst; of no values: 0."""
    return {
        "median_regret": _rounded(statistics.median(values)) if values else 0.0,
        "p95_regret": _rounded(percentile(values, 95)) if values else 0.0,
        "max_regret": _rounded(max(values, default=0.0)),
    }


def _against_rival(rows: Sequence[ContestRow]) -> dict[str, Any] | None:
    """Both catalogues' choices in the same races; None without a rival. The rival's regret counts every
    candidate that ran, as ours does."""
    if not rows:
        return None
    return {
        "operators": len(rows),
        "geomean": _rounded(geometric_mean([row.chosen / row.rival for row in rows])),
        "faster": sum(min(row.chosen / row.rival, row.chosen_again / row.rival_again) > 1.03 for row in rows),
        "slower": sum(
            max(row.chosen / row.rival, row.chosen_again / row.rival_again) < 1 / 1.03 for row in rows
        ),
        **{
            f"geomean_vs_{name}": _rounded(
                geometric_mean([row.rival / row.baselines.get(name, 1.0) for row in rows])
            )
            if took_part(name, rows)
            else None
            for name in BASELINES
        },
        **regrets([_regret(row.oracle, row.rival_again) for row in rows]),
        "regressions": [row.key for row in rows if max(row.rival_high, row.rival_again_high) < REGRESSION],
    }


def _share(values: Sequence[bool]) -> float | None:
    """Of those that are true; the default itself has no interval, and is not among them."""
    return _rounded(sum(values) / len(values)) if values else None


def _regret(oracle: float, chosen: float) -> float:
    return max(0.0, oracle / chosen - 1) if chosen else 0.0


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
