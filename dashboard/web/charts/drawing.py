"""Plotly figures as plain data. Colours are names of CSS custom properties (``$library``), filled in by
``charts.js``, so that charts follow the theme. Every chart has a table beside it with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

Figure = dict[str, Any]

SYMBOLS = {"library": "circle", "compiler": "diamond", "manual": "triangle-up"}
METHODS = tuple(SYMBOLS)
_CLOSE = 4
"""Ratios that differ by less than this factor are labelled in even steps."""
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


def ratio_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Labels of a logarithmic axis of ratios: Plotly itself names nothing between two powers of ten."""
    low, high = min(values), max(values)
    if high < low * 1.01:
        low, high = low * 0.98, high * 1.02
    if high / low <= _CLOSE:
        step = round_step((high - low) / 4)
        ticks = [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
    else:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        leading = (1, 2, 5) if high / low < 1000 else (1,)
        ticks = [first * 10.0**power for power in powers for first in leading]
    ticks = [tick for tick in ticks if tick > 0 and low / 1.3 <= tick <= high * 1.3]
    return {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:.6g}×" for tick in ticks]}


def round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, and no less than this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(first * power for first in (1, 2, 5, 10) if first * power >= least * 0.999)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def called(route: str, label: str) -> str:
    """A route's implementation or trial, as charts name it."""
    return f"{route} · {label}" if label else route


def broken(name: str) -> str:
    """A name with what stands in brackets on lines of its own: beside an upright axis there is no room."""
    return name.replace(" (", "<br>(").replace(", ", ",<br>")


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


def marked(figure: Figure, marks: Sequence[tuple[datetime, str]]) -> Figure:
    """The figure with a line at each of these moments; what happened is said where one points at its head."""
    layout = figure["layout"]
    if not marks:
        return figure
    at = [(moment.isoformat(), said) for moment, said in marks]
    upright = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": DASHED}
    head = {"y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "text": "▾"}
    layout["shapes"] = [*layout.get("shapes", ()), *({**upright, "x0": x, "x1": x} for x, _ in at)]
    layout["annotations"] = [
        *layout.get("annotations", ()), *({**head, "x": x, "hovertext": said} for x, said in at),
    ]  # fmt: skip
    layout["margin"] |= {"t": 18}
    return figure


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
