"""What takes room, how fast it grows, and when its disk will be full: for who runs the service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.operation.growth.forecast import DiskForecast, said_full, said_rate
from dashboard.operation.growth.selectors import REFUSAL, Grown, Measured, growth, measured
from dashboard.web import wording
from dashboard.web.charts.drawing import Figure, axis_title, bar_trace, over_days
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported

LISTED = 15
COLOURS = ("$accent", "$compiler", "$library", "$manual", "$default")
"""Of the largest; everything else is $saved. The legend's are in work.css."""


def _full(row: Grown | DiskForecast) -> str:
    if row.bytes_a_day is None or not row.disk:
        return ""
    return said_full(row.full_in_days) or "not within two years"


def _rate(row: Grown | DiskForecast) -> str:
    return said_rate(row.bytes_a_day)


_RATE = Column("bytes_a_day", "A day", "quantity", figure="growth_a_day", show=_rate)
_FULL = Column("full_in_days", "Disk full", "quantity", figure="full_in", show=_full, room_px=150)
_THINGS = (
    Column("name", "What", "head", css="lead", room_px=180),
    Column("rows", "Rows", "count", spare=True),
    Column("bytes", "Takes", "bytes"),
    _RATE,
    replace(_FULL, spare=True),
    Column("disk", "Disk", "code", css="spare", spare=True, room_px=110),
    Column("rule", "What is kept", css="wide-text muted", label=""),
)
_DISKS = (
    Column("disk", "Disk", "head", css="lead", room_px=120),
    Column("free_bytes", "Free", "bytes"),
    _RATE,
    _FULL,
)


@require_safe
def growth_page(request: ViewerRequest) -> HttpResponse:
    if not request.viewer.may_operate:
        raise PermissionDenied(REFUSAL)
    now = timezone.now()
    found = measured(now)
    state = growth(found, now)
    things = Table(
        "growth", "What grows", _THINGS, _listed(state.things), "Nothing was measured yet.", state.things,
        css="stacks",
    )  # fmt: skip
    disks = Table("disks", "Disks", _DISKS, state.disks, "No disk can be seen from here.", css="stacks")
    if (answer := exported(request, things, disks)) is not None:
        return answer
    largest = [one.name for one in state.things[: len(COLOURS)]]
    context = {
        "growth": state,
        "things": things,
        "disks": disks,
        "chart": taken(found, largest) if len(found.moments) > 1 else None,
        "largest": largest,
        "has_rest": len(state.things) > len(largest),
    }
    return render(request, "operation/growth.html", context)


def _listed(things: Sequence[Grown]) -> list[Grown]:
    """The largest, and the others in one row."""
    rest = things[LISTED:]
    if len(rest) < 2:
        return list(things)
    rate, size = sum(one.bytes_a_day or 0.0 for one in rest), sum(one.bytes for one in rest)
    return [*things[:LISTED], Grown(f"{len(rest)} smaller ones", None, size, rate, None, "", "")]


def taken(found: Measured, largest: Sequence[str]) -> Figure:
    """What the largest and everything else took each time it was measured, one on top of the other."""
    whole = Counter[datetime]()
    for points in found.points.values():
        whole.update(dict(points))
    series = {name: dict(found.points[name]) for name in largest}
    series["everything else"] = {
        at: size - sum(one.get(at, 0) for one in series.values()) for at, size in whole.items()
    }
    unit, scale = _unit_of(max(whole.values()))
    moments = [at.isoformat() for at in found.moments]
    bars = [
        bar_trace(
            moments,
            [sizes.get(at, 0) / scale for at in found.moments],
            [f"{name}: {wording.quantity(sizes.get(at, 0), 'B')}" for at in found.moments],
            name=name,
            marker={"color": colour},
        )
        for (name, sizes), colour in zip(series.items(), (*COLOURS[: len(largest)], "$saved"), strict=True)
    ]
    layout = over_days(260)
    layout["yaxis"] |= {"rangemode": "tozero", "title": axis_title(unit), "nticks": 5}
    return {"data": bars, "layout": layout}


def _unit_of(most_bytes: int) -> tuple[str, float]:
    """The unit that suits an axis, and its bytes."""
    sizes = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
    return next(((unit, size) for unit, size in sizes if most_bytes >= size), ("kB", 1e3))
