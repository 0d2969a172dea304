"""Charts of queues and jobs."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.selectors.jobs import JobSlot
from dashboard.web import wording
from dashboard.web.charts.drawing import (
    DASHED,
    METHODS,
    Figure,
    axis_title,
    dot_trace,
    new_axis,
    new_layout,
    over_days,
    unit_of,
)
from tuning.statistics.queues import HourSlot

_ENDS = (("done", "$accent"), ("unsupported", "$default"), ("discarded", "$saved"), ("dead", "$bad"))


def throughput(slots: Sequence[HourSlot]) -> Figure:
    """Explorations that ended hour by hour, by how, and first results as a line."""
    starts = [slot.start.isoformat() for slot in slots]
    bars = [
        {
            "type": "bar",
            "name": "given up" if name == "dead" else name,
            "x": starts,
            "y": [getattr(slot, name) for slot in slots],
            "marker": {"color": colour},
        }
        for name, colour in _ENDS
    ]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "first results",
        "x": starts,
        "y": [slot.first_results for slot in slots],
        "line": {"color": "$manual", "width": 2},
        "marker": {"symbol": "triangle-up", "size": 7, "color": "$manual"},
    }
    layout = over_days(240)
    layout["yaxis"] |= {"rangemode": "tozero", "title": axis_title("explorations per hour")}
    if max((max(slot.ended, slot.first_results) for slot in slots), default=0) < 4:
        layout["yaxis"]["dtick"] = 1  # there is no half an exploration
    return {"data": [*bars, line], "layout": layout}


def job_days(slots: Sequence[JobSlot]) -> Figure:
    """A job's hits day by day, by method, and below what they saved."""
    starts = [slot.start.isoformat() for slot in slots]
    bars = [
        {
            "type": "bar",
            "name": method,
            "x": starts,
            "y": [slot.hits.get(method, 0) for slot in slots],
            "marker": {"color": f"${method}"},
        }
        for method in METHODS
    ]
    unit, scale = unit_of(max((slot.saved_us for slot in slots), default=0))
    saved = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "saved",
        "x": starts,
        "y": [slot.saved_us / scale for slot in slots],
        "yaxis": "y2",
        "text": [f"saved {wording.duration_us(slot.saved_us)}" for slot in slots],
        "hoverinfo": "text",
        "line": {"color": "$accent", "width": 2},
        "marker": {"size": 6, "color": "$accent"},
    }
    layout = over_days(260, gap=0.3)
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis"] |= {"domain": [0.5, 1], "rangemode": "tozero", "title": axis_title("hits")}
    layout["yaxis2"] = new_axis() | {"domain": [0, 0.38], "rangemode": "tozero"}
    layout["yaxis2"] |= {"title": axis_title(f"saved, {unit}")}
    return {"data": [*bars, saved], "layout": layout}


def tuning_gains(pairs: Sequence[tuple[float, float]]) -> Figure:
    """What slices of tuning were expected to gain, against what they gained; on the line both agree."""
    layout = new_layout(220)
    most = 100 * max((max(pair) for pair in pairs), default=0.1) * 1.08
    for name, title in (("xaxis", "expected"), ("yaxis", "gained")):
        layout[name] |= {"title": axis_title(title), "ticksuffix": " %", "range": [-0.03 * most, most]}
    layout["shapes"] = [{"type": "line", "x0": 0, "y0": 0, "x1": most, "y1": most, "line": DASHED}]
    dots = dot_trace(
        [100 * expected for expected, _ in pairs],
        [100 * gained for _, gained in pairs],
        [f"expected {100 * e:.1f} %, gained {100 * g:.1f} %" for e, g in pairs],
        marker={"color": "$compiler", "size": 7, "opacity": 0.55},
    )
    return {"data": [dots], "layout": layout}
