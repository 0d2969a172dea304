"""Charts of lookups and of what they saved, as plain data (see ``charts``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from catalog.selectors import traffic
from catalog.selectors.statistics import Slot
from dashboard import charts, wording
from dashboard.charts import Figure

COUNTED = {
    "lookups": ("hits", "misses", "hit_rate"),
    "calls": ("hit_calls", "miss_calls", "hit_rate_by_calls"),
    "operators": ("operators_hit", "", "hit_rate_by_operators"),
}
"""What a hit rate is counted by → a slot's hits, its misses, and the figure that it is then."""
_UNITS_S = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def hit_rate(slots: Sequence[Slot], by: str) -> Figure:
    """Hit rate over time, above what it is made of."""
    counted = [_counted(slot, by) for slot in slots]
    figure = charts.hit_rate(counted)
    word = {"lookups": "lookups", "calls": "calls", "operators": "distinct operators"}[by]
    figure["data"][0]["text"] = [
        f"{wording.percent(slot.hit_rate)} of {wording.compact(slot.hits + slot.misses)} {word}"
        for slot in counted
    ]
    return figure


def _counted(slot: Slot, by: str) -> traffic.Slot:
    """A slot, counted by one of ``COUNTED``."""
    hits, misses, _ = COUNTED[by]
    if by == "operators":
        return traffic.Slot(slot.start, slot.operators_hit, slot.operators_asked - slot.operators_hit)
    return traffic.Slot(slot.start, getattr(slot, hits), getattr(slot, misses))


def saved(slots: Sequence[Slot], spent_s: Mapping[datetime, float]) -> Figure:
    """What was saved in each slot, and beside it what exploring that was asked for then took."""
    largest = max([0.0, *(abs(slot.saved_s) for slot in slots), *spent_s.values()])
    # Two of a unit at least: half a day reads worse than 12 hours.
    unit = next((name for name, size_s in _UNITS_S.items() if largest >= 2 * size_s), "seconds")
    scale = _UNITS_S[unit]
    series = [("time saved", [slot.saved_s for slot in slots], "$accent", "")]
    if spent_s:
        series.append(("exploring", [spent_s.get(slot.start, 0.0) for slot in slots], "$compiler", "/"))
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [slot.start.isoformat() for slot in slots],
            "y": [value / scale for value in values],
            "text": [f"{name}: {wording.duration_s(value)}" for value in values],
            "textposition": "none",
            "hoverinfo": "text+x",
            "marker": {"color": colour, "pattern": {"shape": shape, "size": 5, "solidity": 0.25}},
        }
        for name, values, colour, shape in series
    ]
    layout = charts.new_layout(240)
    layout["barmode"], layout["bargap"], layout["hovermode"] = "group", 0.25, "x unified"
    layout["xaxis"] |= {"type": "date", "showgrid": False}
    layout["yaxis"] |= {"rangemode": "tozero", "title": charts.axis_title(unit), "nticks": 5}
    return {"data": bars, "layout": layout}
