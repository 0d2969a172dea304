"""The figures of what was measured on a bare machine. PURE: from lines to numbers."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuning.bare.lines import CLOCK, NOT_YET, best_entry

REGRESSED_BELOW = 0.97
"""Of the default's speed, on re-timing: what was published as faster, and is slower by over 3 %."""


def figures(lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the latest line of each problem's passes: the thorough one, in which the winner of the quick one ran
    too, where there is one. What has no result counts as 1.0 in all means, and so does what ``torch.compile``
    has none for in its own: how many those are, and why, stands beside it, and where it was measured for none
    there is no such mean. ``clock`` says what ratios are of where nothing else is said; ``…_by_the_device``
    is of what events said that the device took, its caches emptied before each run."""
    latest: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        latest.setdefault(line["problem"], {})[line.get("pass", "")] = line
    found = [_of(list(passes.values())) for passes in latest.values()]
    covered = [one for one in found if one]
    measured = sum(map(_measured, found))
    again = [one["again"] for one in covered if one["again"] is not None]
    wins = Counter(one["route"] for one in covered)
    methods = Counter(one["method"] for one in covered)
    by_device = [one["vs_eager_by_the_device"] for one in covered if one["vs_eager_by_the_device"]]
    every = [line for passes in latest.values() for line in passes.values()]
    return {
        "devices": sorted({str(line["device"]["name"]) for line in every if "device" in line}),
        "clock": CLOCK,
        "problems": len(found),
        "uncovered": len(found) - len(covered),
        "geomean_vs_eager": _geomean([one["vs_eager"] if one else 1.0 for one in found]),
        "geomean_vs_eager_by_the_device": _geomean(by_device) if by_device else None,
        "measured_by_the_device": len(by_device),
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
        "launch_bound": sum(one["launch_bound"] for one in covered),
        "prebuilt": sum(line.get("prebuilt", 0) for line in every),
        "first_result_s": _median([one["first_s"] for one in covered]),
        "best_s": _median([one["best_s"] for one in covered]),
        "most_tflops": max((one["tflops"] for one in covered), default=None),
        "most_tb_per_s": max((one["tb_per_s"] for one in covered), default=None),
        "of_the_ceiling": _median([one["of_the_ceiling"] for one in covered if one["of_the_ceiling"]]),
        "bound_by": dict(Counter(one["bound_by"] for one in covered if one["bound_by"]).most_common()),
    }


def _of(passes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Of one problem, its passes in their order."""
    covered = [line for line in passes if "uncovered" not in line]
    if not covered:
        return None
    line = covered[-1]
    entries = line["entries"]
    best = entries[best_entry(entries)]
    against = line.get("max_autotune") or {"why_not": NOT_YET}
    ratio, median_us = best["evidence"]["ratio_to_default"], best["evidence"]["median_us"]
    device, default = (one["facts"].get("by_the_device", {}) for one in (best, entries[0]))
    cold, default_cold = device.get("cold_us"), default.get("cold_us")
    ceiling = line.get("ceiling") or {}
    before = covered[0]["entries"]
    return {
        "route": best["route"],
        "method": best["method"],
        "vs_eager": ratio,
        "vs_eager_by_the_device": default_cold / cold if cold and default_cold else None,
        "vs_max_autotune": ratio / against["ratio"] if "ratio" in against else None,
        "why_no_max_autotune": against.get("why_not", ""),
        "again": _again(line.get("again"), before[best_entry(before)]["evidence"]),
        "launch_bound": bool(device.get("launch_bound")),
        "first_s": covered[0]["first_s"],
        "best_s": line["best_s"],
        "tflops": line["flops"] / median_us / 1e6,
        "tb_per_s": line["bytes_moved"] / median_us / 1e6,
        "of_the_ceiling": ceiling["us"] / median_us if ceiling else None,
        "bound_by": ceiling.get("by", ""),
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
