"""Charts of lookups and of what they saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from catalog.selectors import traffic
from catalog.selectors.statistics import TrafficBucket
from dashboard.web import wording
from dashboard.web.charts.drawing import Figure, axis_title, bar_trace, new_axis, over_days

COUNTED = {
    "lookups": ("hits", "misses", "hit_rate"),
    "calls": ("hit_calls", "miss_calls", "hit_rate_by_calls"),
    "operators": ("operators_hit", "", "hit_rate_by_operators"),
}
"""What a hit rate is counted by → a slot's hits, its misses, and the figure that it is then."""
_UNITS_S = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def hit_rate(slots: Sequence[traffic.LookupSlot], height: int = 260) -> Figure:
    """Hit rate as a line over the lookups it is made of."""
    starts = [slot.start.isoformat() for slot in slots]
    asked = [slot for slot in slots if slot.hit_rate is not None]
    # Marks too: an hour between two without traffic would have no line.
    marks = {"size": 3 if len(asked) > 40 else 6}
    common = {"x": starts, "hoverinfo": "skip"}
    rate = {
        **common,
        "type": "scatter",
        "mode": "lines+markers",
        "marker": marks,
        "name": "Hit rate",
        "y": [None if slot.hit_rate is None else slot.hit_rate * 100 for slot in slots],
        "line": {"color": "$accent", "width": 2, "shape": "spline", "smoothing": 0.5},
        "connectgaps": False,
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
    layout = over_days(height)
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis"] |= {"domain": [0.34, 1], "range": [-3, 103]}
    layout["yaxis"] |= {"tickvals": [0, 25, 50, 75, 100], "ticktext": ["0 %", "", "50 %", "", "100 %"]}
    layout["yaxis2"] = new_axis() | {"domain": [0, 0.24], "nticks": 3, "rangemode": "tozero"}
    if max((slot.hits + slot.misses for slot in slots), default=0) < 4:
        layout["yaxis2"]["dtick"] = 1  # there is no half a lookup
    return {"data": [rate, *bars], "layout": layout}


def hit_rate_by(slots: Sequence[TrafficBucket], by: str) -> Figure:
    """The same, counted by one of ``COUNTED``."""
    counted = [_counted(slot, by) for slot in slots]
    figure = hit_rate(counted)
    word = {"lookups": "lookups", "calls": "calls", "operators": "distinct operators"}[by]
    figure["data"][0]["text"] = [
        f"{wording.percent(slot.hit_rate)} of {wording.compact(slot.hits + slot.misses)} {word}"
        for slot in counted
    ]
    return figure


def _counted(slot: TrafficBucket, by: str) -> traffic.LookupSlot:
    """A slot, counted by one of ``COUNTED``."""
    hits, misses, _ = COUNTED[by]
    if by == "operators":
        return traffic.LookupSlot(slot.start, slot.operators_hit, slot.operators_asked - slot.operators_hit)
    return traffic.LookupSlot(slot.start, getattr(slot, hits), getattr(slot, misses))


def saved(slots: Sequence[TrafficBucket], spent_s: Mapping[datetime, float]) -> Figure:
    """What was saved in each slot, and beside it what exploring that was asked for then took."""
    largest = max([0.0, *(abs(slot.saved_s) for slot in slots), *spent_s.values()])
    # Two of a unit at least: half a day reads worse than 12 hours.
    unit = next((name for name, size_s in _UNITS_S.items() if largest >= 2 * size_s), "seconds")
    scale = _UNITS_S[unit]
    series = [("time saved", [slot.saved_s for slot in slots], "$accent", "")]
    if spent_s:
        series.append(("exploring", [spent_s.get(slot.start, 0.0) for slot in slots], "$compiler", "/"))
    bars = [
        bar_trace(
            [slot.start.isoformat() for slot in slots],
            [value / scale for value in values],
            [f"{name}: {wording.duration_s(value)}" for value in values],
            name=name,
            hoverinfo="text+x",
            marker={"color": colour, "pattern": {"shape": shape, "size": 5, "solidity": 0.25}},
        )
        for name, values, colour, shape in series
    ]
    layout = over_days(240, mode="group")
    layout["yaxis"] |= {"rangemode": "tozero", "title": axis_title(unit), "nticks": 5}
    return {"data": bars, "layout": layout}


def _slot_text(slot: traffic.LookupSlot) -> str:
    return f"{wording.percent(slot.hit_rate)} of {wording.compact(slot.hits + slot.misses)} lookups"
