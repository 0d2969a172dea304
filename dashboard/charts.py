"""Plotly figures as plain data. Colours are names of CSS custom properties (``$library``), filled in by
``charts.js``, so that charts follow the theme. Every chart has a table beside it with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalog.selectors.traffic import Slot
from dashboard import wording

Figure = dict[str, Any]

SYMBOLS = {"library": "circle", "compiler": "diamond", "manual": "triangle-up"}
METHODS = tuple(SYMBOLS)
FONT = {"family": "Inter, system-ui, sans-serif", "size": 12, "color": "$muted"}
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


@dataclass(frozen=True)
class Bar:
    """One operator of a model: its time now and what was saved, both in µs per run of the model."""

    name: str
    method: str  # "" where nothing faster than the default is known
    now_us: float
    saved_us: float
    hover: str


def hit_rate(slots: Sequence[Slot], height: int = 260) -> Figure:
    """Hit rate as a line over the lookups it is made of."""
    starts = [slot.start.isoformat() for slot in slots]
    asked = [slot for slot in slots if slot.hit_rate is not None]
    common = {"x": starts, "hoverinfo": "skip"}
    rate = {
        **common,
        "type": "scatter",
        "mode": "lines" if len(asked) > 40 else "lines+markers",
        "name": "Hit rate",
        "y": [None if slot.hit_rate is None else slot.hit_rate * 100 for slot in slots],
        "line": {"color": "$accent", "width": 2, "shape": "spline", "smoothing": 0.5},
        "connectgaps": True,
        "fill": "tozeroy",
        "fillcolor": "$accent-soft",
        "hoverinfo": "text",
        "text": [_slot_text(slot) for slot in slots],
    }
    bars = [
        {**common, "type": "bar", "name": name, "y": values, "yaxis": "y2", "marker": {"color": colour}}
        for name, values, colour in (
            ("Hits", [slot.hits for slot in slots], "$accent"),
            ("Misses", [slot.misses for slot in slots], "$default"),
        )
    ]
    layout = new_layout(height)
    layout["barmode"] = "stack"
    layout["bargap"] = 0.25
    layout["hovermode"] = "x unified"
    layout["xaxis"] |= {"type": "date", "showgrid": False, "anchor": "y2"}
    layout["yaxis"] |= {"domain": [0.34, 1], "range": [-3, 103]}
    layout["yaxis"] |= {"tickvals": [0, 25, 50, 75, 100], "ticktext": ["0%", "", "50%", "", "100%"]}
    layout["yaxis2"] = new_axis() | {"domain": [0, 0.24], "nticks": 3, "rangemode": "tozero"}
    if max((slot.hits + slot.misses for slot in slots), default=0) < 4:
        layout["yaxis2"]["dtick"] = 1  # there is no half a lookup
    return {"data": [rate, *bars], "layout": layout}


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


def tuning_gains(pairs: Sequence[tuple[float, float]]) -> Figure:
    """What slices of tuning were expected to gain, against what they gained; on the line both agree."""
    layout = new_layout(220)
    most = 100 * max((max(pair) for pair in pairs), default=0.1) * 1.08
    for name, title in (("xaxis", "expected"), ("yaxis", "gained")):
        layout[name] |= {"title": axis_title(title), "ticksuffix": "%", "range": [-0.03 * most, most]}
    layout["shapes"] = [{"type": "line", "x0": 0, "y0": 0, "x1": most, "y1": most, "line": DASHED}]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [100 * expected for expected, _ in pairs],
        "y": [100 * gained for _, gained in pairs],
        "text": [f"expected {100 * e:.1f}%, gained {100 * g:.1f}%" for e, g in pairs],
        "hoverinfo": "text",
        "marker": {"color": "$compiler", "size": 7, "opacity": 0.55},
    }
    return {"data": [dots], "layout": layout}


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


def axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {**FONT, "size": 11.5}, "standoff": 8}


def _slot_text(slot: Slot) -> str:
    return f"{wording.percent(slot.hit_rate)} of {wording.compact(slot.hits + slot.misses)} lookups"


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
