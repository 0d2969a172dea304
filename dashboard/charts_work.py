"""Charts of queues and jobs, as plain data (see ``charts``)."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.selectors.jobs import JobSlot
from dashboard import charts, wording
from dashboard.charts import Figure
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
    layout = charts.new_layout(240)
    layout["barmode"] = "stack"
    layout["bargap"] = 0.25
    layout["hovermode"] = "x unified"
    layout["xaxis"] |= {"type": "date", "showgrid": False}
    layout["yaxis"] |= {"rangemode": "tozero", "title": charts.axis_title("explorations per hour")}
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
        for method in charts.METHODS
    ]
    unit, scale = charts.unit_of(max((slot.saved_us for slot in slots), default=0))
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
    layout = charts.new_layout(260)
    layout["barmode"] = "stack"
    layout["bargap"] = 0.3
    layout["hovermode"] = "x unified"
    layout["xaxis"] |= {"type": "date", "showgrid": False, "anchor": "y2"}
    layout["yaxis"] |= {"domain": [0.5, 1], "rangemode": "tozero", "title": charts.axis_title("hits")}
    layout["yaxis2"] = charts.new_axis() | {"domain": [0, 0.38], "rangemode": "tozero"}
    layout["yaxis2"] |= {"title": charts.axis_title(f"saved, {unit}")}
    return {"data": [*bars, saved], "layout": layout}
