"""Charts about methods, environments and one operator's history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard.web import wording
from dashboard.web.charts.drawing import (
    DASHED,
    METHODS,
    SYMBOLS,
    Figure,
    axis_title,
    bar_trace,
    broken,
    dot_trace,
    interval,
    name_rows,
    new_layout,
    ratio_ticks,
    shortened,
)
from tuning.models import FailureReason
from tuning.statistics.environments import Pair
from tuning.statistics.methods import Fares

_WAITED = {
    0.01: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36_000: "10 h", 864_000: "10 d",
}  # fmt: skip
_CHANGES = {
    "worse": ("$bad", "triangle-down"),
    "same": ("$default", "circle"),
    "better": ("$good", "triangle-up"),
}


@dataclass(frozen=True)
class Point:
    """Who led from a moment on, and by how much over the default."""

    at: datetime
    name: str
    method: str
    ratio: float
    low: float
    high: float
    reason: str = ""


def found_and_won(rows: Sequence[Fares]) -> Figure:
    """Bars: operators found, and of them those won, by route or method."""
    layout = new_layout(max(32 * len(rows) + 66, 150))
    layout |= {"barmode": "overlay", "bargap": 0.38}
    layout["xaxis"] |= {"title": axis_title("operators"), "rangemode": "tozero"}
    name_rows(layout, [row.name for row in rows])
    layout["yaxis"]["showgrid"] = False
    places = [-number for number in range(len(rows))]
    texts = [f"{row.name}: found {row.found:,}, won {row.won:,}" for row in rows]
    found, won = [row.found for row in rows], [row.won for row in rows]
    colours = [f"${row.method}" for row in rows]
    data = [
        bar_trace(found, places, texts, orientation="h", name="found", marker={"color": "$saved"}),
        bar_trace(won, places, texts, orientation="h", name="won", marker={"color": colours}),
    ]
    return {"data": data, "layout": layout}


def waits(rows: Sequence[Fares]) -> Figure:
    """Dots: seconds from the miss to the first result (hollow) and to the best (filled), by route."""
    shown = [row for row in rows if row.first_result_s is not None]
    layout = new_layout(max(32 * len(shown) + 66, 150))
    layout["xaxis"] |= {"title": axis_title("time after the miss (logarithmic)"), "type": "log"}
    layout["xaxis"] |= {"tickvals": list(_WAITED), "ticktext": list(_WAITED.values()), "minor": {"ticks": ""}}
    name_rows(layout, [row.name for row in shown])
    data: list[dict[str, Any]] = []
    for number, row in enumerate(shown):
        first, best = max(row.first_result_s or 0, 1e-3), max(row.best_s or 0, 1e-3)
        said = f"{row.name}: first {wording.duration_s(first)}, best {wording.duration_s(best)}"
        line = {"color": f"${row.method}", "width": 2}
        marker = {
            "color": f"${row.method}",
            "size": 11,
            "line": line,
            "symbol": [f"{SYMBOLS[row.method]}-open", SYMBOLS[row.method]],
        }
        look = {"mode": "lines+markers", "line": line, "marker": marker}
        data.append(dot_trace([first, best], [-number, -number], [said, said], **look))
    return {"data": data, "layout": layout}


def failures(rows: Sequence[FailureReason], most: int = 12) -> Figure:
    """Bars: the most frequent reasons, by the route's method."""
    shown = rows[:most]
    layout = new_layout(max(27 * len(shown) + 66, 150))
    layout |= {"bargap": 0.36}
    layout["xaxis"] |= {"title": axis_title("trials"), "rangemode": "tozero"}
    name_rows(layout, [shortened(f"{row.route}: {row.reason or row.status}", 58) for row in shown])
    layout["yaxis"]["showgrid"] = False
    bars = bar_trace(
        [row.count for row in shown],
        [-number for number in range(len(shown))],
        [f"{row.route}, {row.status}: {row.count:,}<br>{row.reason}" for row in shown],
        orientation="h",
        marker={"color": [f"${row.method}" for row in shown]},
    )
    return {"data": [bars], "layout": layout}


def changes(pairs: Sequence[Pair], most: int = 40) -> Figure:
    """Dots with 95 % intervals: B's speed against A's, the worst first; the ends where there are too many."""
    ordered = sorted(pairs, key=lambda pair: pair.change.factor)
    shown = ordered if len(ordered) <= most else [*ordered[: most // 2], *ordered[-most // 2 :]]
    layout = new_layout(max(26 * len(shown) + 74, 160))
    layout["xaxis"] |= {
        "title": axis_title("speed in B against A"),
        "type": "log",
        **ratio_ticks([1.0, *(end for pair in shown for end in (pair.change.low, pair.change.high))]),
    }
    name_rows(layout, [shortened(f"{pair.summary} · {pair.route}", 52) for pair in shown])
    layout["shapes"] = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1, "line": DASHED}]
    return {"data": [_change_dots(shown, verdict) for verdict in _CHANGES], "layout": layout}


def _change_dots(shown: Sequence[Pair], verdict: str) -> dict[str, Any]:
    colour, symbol = _CHANGES[verdict]
    mine = [(row, pair) for row, pair in enumerate(shown) if pair.verdict == verdict]
    factors = [pair.change.factor for _, pair in mine]
    said = [
        f"{pair.summary}<br>{pair.route} · {pair.label}<br>{wording.ratio(pair.change.factor)}"
        f" ({wording.ratio(pair.change.low)} – {wording.ratio(pair.change.high)}): {verdict}"
        for _, pair in mine
    ]
    high = [pair.change.high - pair.change.factor for _, pair in mine]
    low = [pair.change.factor - pair.change.low for _, pair in mine]
    return dot_trace(
        factors,
        [-row for row, _ in mine],
        said,
        name=verdict,
        error_x=interval(high, low, color=colour, thickness=1.5, width=4),
        marker={"color": colour, "symbol": symbol, "size": 10},
    )


def best_over_time(points: Sequence[Point], until: datetime, default: str) -> Figure:
    """Steps: the best's speed against the default, and who made it."""
    layout = new_layout(220)
    layout["xaxis"] |= {"type": "date", "showgrid": False, "nticks": 6}
    layout["yaxis"] |= {
        "ticksuffix": "×",
        "rangemode": "tozero",
        "title": axis_title(f"over the {broken(default)}"),
    }
    layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": DASHED}]
    steps = [*points, Point(until, points[-1].name, points[-1].method, points[-1].ratio, 0, 0)]
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [one.at.isoformat() for one in steps],
        "y": [one.ratio for one in steps],
        "hoverinfo": "skip",
        "line": {"color": "$muted", "width": 1.5, "shape": "hv"},
    }
    data: list[dict[str, Any]] = [line]
    for method in METHODS:
        mine = [one for one in points if one.method == method]
        said = [
            f"{one.name}<br>{wording.ratio(one.ratio)} ({wording.ratio(one.low)} – "
            f"{wording.ratio(one.high)})<br>{one.at:%Y-%m-%d %H:%M}"
            for one in mine
        ]
        high = [max(one.high - one.ratio, 0) for one in mine]
        low = [max(one.ratio - one.low, 0) for one in mine]
        data.append(
            dot_trace(
                [one.at.isoformat() for one in mine],
                [one.ratio for one in mine],
                said,
                name=method,
                error_y=interval(high, low, color=f"${method}", thickness=1.2, width=3),
                marker={"color": f"${method}", "symbol": SYMBOLS[method], "size": 10},
            )
        )
    return {"data": data, "layout": layout}
