"""Plotly figures as plain data. Colours are names of CSS custom properties (``$library``), filled in by
``charts.js``, so that charts follow the theme. Every chart has a table beside it with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Figure = dict[str, Any]

SYMBOLS = {"library": "circle", "compiler": "diamond", "manual": "triangle-up"}
METHODS = tuple(SYMBOLS)
FONT = {"family": "Inter, system-ui, sans-serif", "size": 12, "color": "$muted"}
DASHED = {"color": "$faint", "width": 1.5, "dash": "dot"}


def unit_of(largest_us: float) -> tuple[str, float]:
    """The unit that suits an axis, and how many µs it has."""
    if largest_us >= 2e6:
        return "s", 1e6
    return ("ms", 1e3) if largest_us >= 2e3 else ("µs", 1.0)


def name_rows(layout: dict[str, Any], names: Sequence[str]) -> None:
    """Name the rows 0, -1, -2 … from the top. Rows are numbers, since two operators may look alike."""
    layout["yaxis"] |= {
        "tickmode": "array",
        "tickvals": [-row for row in range(len(names))],
        "ticktext": [f"{name}  " for name in names],
        "range": [0.4 - len(names), 0.6],
        "tickfont": {**FONT, "size": 11.5},
    }
    # What charts.js puts in their place where the page is narrow.
    layout["meta"] = {"short": [f"{shortened(name, 18)} " for name in names]}


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def called(route: str, label: str) -> str:
    """A route's implementation or trial, as charts name it."""
    return f"{route} · {label}" if label else route


def axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {**FONT, "size": 11.5}, "standoff": 8}


def dot_trace(x: Sequence[Any], y: Sequence[Any], text: Sequence[str], **more: Any) -> dict[str, Any]:
    """Points that say their text when they are pointed at; ``more`` as Plotly names it."""
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "text": text, "hoverinfo": "text", **more}


def bar_trace(x: Sequence[Any], y: Sequence[Any], text: Sequence[str], **more: Any) -> dict[str, Any]:
    """Bars, likewise; no text stands on them."""
    common = {"type": "bar", "hoverinfo": "text", "textposition": "none"}
    return {**common, "x": x, "y": y, "text": text, **more}


def interval(high: Sequence[float], low: Sequence[float], **look: Any) -> dict[str, Any]:
    """How far a value may lie above and below, for ``error_x`` and ``error_y``."""
    return {"type": "data", "symmetric": False, "array": high, "arrayminus": low, **look}


def over_days(height: int, gap: float = 0.25, mode: str = "stack") -> dict[str, Any]:
    """The layout of bars over a time axis."""
    layout = new_layout(height) | {"barmode": mode, "bargap": gap, "hovermode": "x unified"}
    layout["xaxis"] |= {"type": "date", "showgrid": False}
    return layout


def new_axis() -> dict[str, Any]:
    return {
        "gridcolor": "$line",
        "zeroline": False,
        "linecolor": "$line-strong",
        "tickfont": FONT,
        "fixedrange": True,
        "automargin": True,
    }


def new_layout(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 44, "r": 12, "t": 8, "b": 36},
        "font": FONT,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "xaxis": new_axis(),
        "yaxis": new_axis(),
        "hoverlabel": {
            "bgcolor": "$raised",
            "bordercolor": "$line-strong",
            "font": {**FONT, "color": "$text"},
            "align": "left",
        },
    }
