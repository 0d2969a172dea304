"""A chart of a model: where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.default_names import default_name
from dashboard.web import wording
from dashboard.web.charts.drawing import (
    METHODS,
    Figure,
    axis_title,
    bar_trace,
    name_rows,
    new_layout,
    unit_of,
)


@dataclass(frozen=True)
class Bar:
    """One operator of a model: its time now and what was saved, both in µs per run of the model."""

    name: str
    method: str  # "" where nothing faster than the default is known
    now_us: float
    saved_us: float
    hover: str


def model_time(bars: Sequence[Bar]) -> Figure:
    """Where a model's time goes: per operator the time of its best implementation, by the method that made
    it, and what that saves over the default."""
    unit, scale = unit_of(max((bar.now_us + bar.saved_us for bar in bars), default=0))
    numbered = list(enumerate(bars))
    data = [
        bar_trace(
            [bar.now_us / scale for _, bar in mine],
            [-row for row, _ in mine],
            [bar.hover for _, bar in mine],
            orientation="h",
            name=method or default_name(),
            marker={"color": f"${method or 'default'}"},
        )
        for method in (*METHODS, "")
        if (mine := [(row, bar) for row, bar in numbered if bar.method == method])
    ]
    saved = [(row, bar) for row, bar in numbered if bar.saved_us > 0]
    pattern = {"shape": "/", "size": 5, "fgcolor": "$default", "solidity": 0.18}
    data.append(
        bar_trace(
            [bar.saved_us / scale for _, bar in saved],
            [-row for row, _ in saved],
            [f"{bar.name}<br>saved {wording.duration_us(bar.saved_us)}" for _, bar in saved],
            orientation="h",
            name="saved",
            marker={"color": "$saved", "pattern": pattern},
        )
    )
    layout = new_layout(max(25 * len(bars) + 70, 160)) | {"barmode": "stack", "bargap": 0.34}
    layout["xaxis"] |= {"title": axis_title(f"{unit} per run of the model"), "rangemode": "tozero"}
    layout["yaxis"]["showgrid"] = False
    name_rows(layout, [bar.name for bar in bars])
    layout["margin"]["l"] = 8
    return {"data": data, "layout": layout}
