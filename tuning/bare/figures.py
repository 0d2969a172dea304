"""The figures of what was measured on a bare machine. PURE: from lines to numbers."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

REGRESSED_BELOW = 0.97
"""Of the default's speed, on re-timing: what was published as faster, and is slower by over 3 %."""


def figures(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the latest line of each problem. What has no result counts as 1.0 in both means, and so does what
    ``torch.compile`` has none for in the second: how many those are, and why, stands beside it, and where it
    was measured for none there is no second mean."""
    latest = {line["problem"]: line for line in lines}
    found = [_of(line) for line in latest.values()]
    covered = [one for one in found if one]
    measured = sum(map(_measured, found))
    again = [one["again"] for one in covered if one["again"] is not None]
    wins = Counter(one["route"] for one in covered)
    methods = Counter(one["method"] for one in covered)
    return {
        "devices": sorted({str(line.get("device", {}).get("name", "")) for line in latest.values()}),
        "problems": len(found),
        "uncovered": len(found) - len(covered),
        "geomean_vs_eager": _geomean([one["vs_eager"] if one else 1.0 for one in found]),
        "geomean_vs_max_autotune": _geomean([one["vs_max_autotune"] or 1.0 if one else 1.0 for one in found])
        if measured
        else None,
        "max_autotune_measured": measured,
        "max_autotune_uncovered": dict(
            Counter(one["why_no_max_autotune"] if one else "no result" for one in found if not _measured(one))
        ),
        "regressions": sum(ratio < REGRESSED_BELOW for ratio, _ in again),
        "held_on_retiming": sum(held for _, held in again) / len(again) if again else None,
        "wins_by_route": dict(wins.most_common()),
        "wins_by_method": dict(methods.most_common()),
        "first_result_s": _median([one["first_s"] for one in covered]),
        "best_s": _median([one["best_s"] for one in covered]),
        "most_tflops": max((one["tflops"] for one in covered), default=None),
        "most_tb_per_s": max((one["tb_per_s"] for one in covered), default=None),
        "of_the_roofline": _median([one["of_the_roofline"] for one in covered]),
    }


def _of(line: Mapping[str, Any]) -> dict[str, Any] | None:
    if "uncovered" in line:
        return None
    entries = line["entries"]
    final = [
        n for n, one in enumerate(entries) if one["status"] == "ok" and (n == 0 or one["facts"].get("final"))
    ]
    number = max(final, key=lambda n: entries[n]["evidence"]["ratio_to_default"])
    best = entries[number]
    against = line.get("max_autotune") or {"why_not": "measured before it was asked for"}
    ratio, median_us = best["evidence"]["ratio_to_default"], best["evidence"]["median_us"]
    return {
        "route": best["route"],
        "method": best["method"],
        "vs_eager": ratio,
        "vs_max_autotune": ratio / against["ratio"] if "ratio" in against else None,
        "why_no_max_autotune": against.get("why_not", ""),
        "again": _again(line.get("again"), best["evidence"]),
        "first_s": line["first_s"],
        "best_s": line["best_s"],
        "tflops": line["flops"] / median_us / 1e6,
        "tb_per_s": line["bytes_moved"] / median_us / 1e6,
        "of_the_roofline": line["floor_us"] / median_us,
    }


def _measured(one: Mapping[str, Any] | None) -> bool:
    return one is not None and one["vs_max_autotune"] is not None


def _again(again: Mapping[str, Any] | None, published: Mapping[str, Any]) -> tuple[float, bool] | None:
    """The ratio of the re-timing, and whether the published interval holds it."""
    if not again or "ratio" not in again:
        return None
    return again["ratio"], published["ratio_low"] <= again["ratio"] <= published["ratio_high"]


def _geomean(ratios: Sequence[float]) -> float | None:
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
