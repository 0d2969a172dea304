"""Charts of one operator: its implementations and its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.web.charts.drawing import (
    DASHED,
    METHODS,
    SYMBOLS,
    Figure,
    axis_title,
    broken,
    dot_trace,
    interval,
    name_rows,
    new_layout,
    ratio_ticks,
)

_FAR_APART = 12
"""Ratios further apart than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Dot:
    """The speed of an implementation or trial over the default's, with its interval."""

    name: str
    method: str
    value: float
    low: float
    high: float
    hover: str


def ratios(dots: Sequence[Dot], default: str) -> Figure:
    """Speed over the default (``default``: its name) with its interval, in the order given.

    Times would not compare: each is of a race of its own, and the host of one day is not that of another.
    """
    numbered = list(enumerate(dots))
    data = [
        dot_trace(
            [dot.value for _, dot in mine],
            [-row for row, _ in mine],
            [dot.hover for _, dot in mine],
            name=method,
            marker={"color": f"${method}", "symbol": SYMBOLS[method], "size": 11},
            error_x=interval(
                [dot.high - dot.value for _, dot in mine],
                [dot.value - dot.low for _, dot in mine],
                color=f"${method}",
                thickness=1.5,
                width=4,
            ),
        )
        for method in METHODS
        if (mine := [(row, dot) for row, dot in numbered if dot.method == method])
    ]
    layout = new_layout(max(34 * len(dots) + 90, 166))
    layout["margin"]["b"] += 16
    title = f"speed over the {default.replace(' (', '<br>(')}"  # in one line a telephone would cut it off
    layout["xaxis"] |= {"title": axis_title(title), "rangemode": "tozero", "ticksuffix": "×"}
    if dots and max(dot.value for dot in dots) > _FAR_APART * min(dot.value for dot in dots):
        layout["xaxis"] |= {"type": "log", "title": axis_title(f"{title} (logarithmic)")}
        layout["xaxis"] |= ratio_ticks([dot.value for dot in dots])
    name_rows(layout, [dot.name for dot in dots])
    layout["margin"]["l"] = 8
    layout["shapes"] = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1, "x1": 1, "line": DASHED}]
    return {"data": data, "layout": layout}


def trials(dots: Sequence[Dot], failures: Sequence[tuple[int, str]], default: str) -> Figure:
    """Speed against the default, trial by trial; ``failures`` are (number, what happened). ``Dot.name`` is
    the trial's number."""
    data = [
        dot_trace(
            [int(dot.name) for dot in mine],
            [dot.value for dot in mine],
            [dot.hover for dot in mine],
            name=method,
            marker={"color": f"${method}", "symbol": SYMBOLS[method], "size": 9},
        )
        for method in METHODS
        if (mine := [dot for dot in dots if dot.method == method])
    ]
    if failures:
        numbers, said = zip(*failures, strict=True)
        crosses = {"name": "failed", "cliponaxis": False, "marker": _line("$bad", "x-thin", 8)}
        data.append(dot_trace(numbers, [0] * len(failures), said, **crosses))
    layout = new_layout(240)
    layout["xaxis"] |= {"title": axis_title("trial"), "showgrid": False, "tickformat": "d", "tick0": 0}
    count = len(dots) + len(failures)
    layout["xaxis"] |= {"range": [0.4, count + 0.6], "dtick": max(1, round(count / 12))}
    layout["yaxis"] |= {
        "title": axis_title(f"speed against the {broken(default)}"),
        "ticksuffix": "×",
        "rangemode": "tozero",
    }
    layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": DASHED}]
    return {"data": data, "layout": layout}


def _line(colour: str, symbol: str, size: int) -> dict[str, Any]:
    """A marker that is drawn by lines."""
    return {"color": colour, "symbol": symbol, "size": size, "line": {"color": colour, "width": 2}}
