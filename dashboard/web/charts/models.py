"""A chart of a model: where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.web import wording
from dashboard.web.charts.drawing import METHODS, Figure, axis_title, name_rows, new_layout, unit_of


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
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": method or "default",
            "x": [bar.now_us / scale for bar in mine],
            "y": [-row for row, _ in rows],
            "text": [bar.hover for bar in mine],
            "hoverinfo": "text",
            "textposition": "none",
            "marker": {"color": f"${method or 'default'}"},
        }
        for method in (*METHODS, "")
        if (rows := [(row, bar) for row, bar in enumerate(bars) if bar.method == method])
        and (mine := [bar for _, bar in rows])
    ]
    saved = [(row, bar) for row, bar in enumerate(bars) if bar.saved_us > 0]
    data.append(
        {
            "type": "bar",
            "orientation": "h",
            "name": "saved",
            "x": [bar.saved_us / scale for _, bar in saved],
            "y": [-row for row, _ in saved],
            "hoverinfo": "text",
            "textposition": "none",
            "text": [f"{bar.name}<br>saved {wording.duration_us(bar.saved_us)}" for _, bar in saved],
            "marker": {
                "color": "$saved",
                "pattern": {"shape": "/", "size": 5, "fgcolor": "$default", "solidity": 0.18},
            },
        }
    )
    layout = new_layout(max(25 * len(bars) + 70, 160))
    layout["barmode"] = "stack"
    layout["bargap"] = 0.34
    layout["xaxis"] |= {"title": axis_title(f"{unit} per run of the model"), "rangemode": "tozero"}
    layout["yaxis"]["showgrid"] = False
    name_rows(layout, [bar.name for bar in bars])
    layout["margin"]["l"] = 8
    return {"data": data, "layout": layout}
