"""Charts of one operator: its implementations and its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.web import wording
from dashboard.web.charts.drawing import (
    DASHED,
    METHODS,
    SYMBOLS,
    Figure,
    axis_title,
    name_rows,
    new_layout,
    unit_of,
)

_FAR_APART = 12
"""Times further apart than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Dot:
    """One timed implementation or trial."""

    name: str
    method: str
    value: float
    low: float
    high: float
    hover: str
    default: float | None = None  # what the default took, in turns with it


def times(dots: Sequence[Dot]) -> Figure:
    """Time with its spread per implementation, in the order given, and beside each the default's time.

    Each has its own: medians of different days do not compare, those taken in turns do.
    """
    unit, scale = unit_of(max((dot.value for dot in dots), default=0))
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": method,
            "x": [dot.value / scale for dot in mine],
            "y": [-row for row, _ in rows],
            "text": [dot.hover for dot in mine],
            "hoverinfo": "text",
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [(dot.high - dot.value) / scale for dot in mine],
                "arrayminus": [(dot.value - dot.low) / scale for dot in mine],
                "color": f"${method}",
                "thickness": 1.5,
                "width": 4,
            },
            "marker": {"color": f"${method}", "symbol": SYMBOLS[method], "size": 11},
        }
        for method in METHODS
        if (rows := [(row, dot) for row, dot in enumerate(dots) if dot.method == method])
        and (mine := [dot for _, dot in rows])
    ]
    layout = new_layout(max(34 * len(dots) + 74, 150))
    far = dots and max(dot.value for dot in dots) > _FAR_APART * min(dot.value for dot in dots)
    layout["xaxis"] |= {"title": axis_title(f"time per run, {unit}"), "rangemode": "tozero"}
    if far:
        layout["xaxis"] |= {
            "type": "log",
            "title": axis_title(f"time per run, {unit} (logarithmic)"),
            "nticks": 6,
        }
    name_rows(layout, [dot.name for dot in dots])
    layout["margin"]["l"] = 8
    defaults = {
        "type": "scatter",
        "mode": "markers",
        "name": "default",
        "x": [dot.default / scale for dot in dots if dot.default],
        "y": [-row for row, dot in enumerate(dots) if dot.default],
        "text": [
            f"the default, in turns with it: {wording.duration_us(dot.default)}"
            for dot in dots
            if dot.default
        ],
        "hoverinfo": "text",
        "marker": {
            "color": "$default",
            "symbol": "line-ns",
            "size": 17,
            "line": {"color": "$default", "width": 2},
        },
    }
    return {"data": [defaults, *data], "layout": layout}


def trials(dots: Sequence[Dot], failures: Sequence[tuple[int, str]]) -> Figure:
    """Speed against the default, trial by trial; ``failures`` are (number, what happened). ``Dot.name`` is
    the trial's number."""
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": method,
            "x": [int(dot.name) for dot in mine],
            "y": [dot.value for dot in mine],
            "text": [dot.hover for dot in mine],
            "hoverinfo": "text",
            "marker": {"color": f"${method}", "symbol": SYMBOLS[method], "size": 9},
        }
        for method in METHODS
        if (mine := [dot for dot in dots if dot.method == method])
    ]
    if failures:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "failed",
                "x": [n for n, _ in failures],
                "y": [0] * len(failures),
                "text": [text for _, text in failures],
                "hoverinfo": "text",
                "cliponaxis": False,
                "marker": {
                    "color": "$bad",
                    "symbol": "x-thin",
                    "size": 8,
                    "line": {"color": "$bad", "width": 2},
                },
            }
        )
    layout = new_layout(240)
    layout["xaxis"] |= {"title": axis_title("trial"), "showgrid": False, "tickformat": "d", "tick0": 0}
    count = len(dots) + len(failures)
    layout["xaxis"] |= {"range": [0.4, count + 0.6], "dtick": max(1, round(count / 12))}
    layout["yaxis"] |= {
        "title": axis_title("speed against the default"),
        "ticksuffix": "×",
        "rangemode": "tozero",
    }
    layout["shapes"] = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1, "line": DASHED}]
    return {"data": data, "layout": layout}
