"""Charts of money."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from dashboard.billing.selectors import DaySum
from dashboard.web import wording
from dashboard.web.charts.drawing import METHODS, Figure, axis_title, bar_trace, over_days


def charged_by_day(sums: Sequence[DaySum], first: date, last: date, currency: str) -> Figure:
    """What each day was charged, stacked by method; days without charges are empty."""
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    by_key = {(one.day, one.method): one for one in sums}
    data = []
    for method in METHODS:
        mine = [by_key.get((day, method)) for day in days]
        if not any(mine):
            continue
        data.append(
            bar_trace(
                [day.isoformat() for day in days],
                [one.charged_micros / 1e6 if one else 0 for one in mine],
                [_text(method, one, currency) for one in mine],
                name=method,
                marker={"color": f"${method}"},
            )
        )
    layout = over_days(240)
    layout["yaxis"] |= {"rangemode": "tozero", "title": axis_title(f"{currency} a day"), "nticks": 5}
    return {"data": data, "layout": layout}


def _text(method: str, one: DaySum | None, currency: str) -> str:
    if one is None:
        return f"{method}: nothing"
    hits = f"{wording.compact(one.hits_billed)} hit{'s' if one.hits_billed != 1 else ''}"
    return f"{method}: {wording.money(one.charged_micros, currency)} for {hits}"
