"""The overview's numbers as tables: under its charts, and as CSV or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from catalog.selectors.statistics import CatalogueFigures, RouteTraffic, TrafficBucket
from catalog.selectors.statistics_operators import OperatorTraffic
from dashboard.web.charts.drawing import METHODS
from dashboard.web.tables import Column, Table, operator_column
from dashboard.web.wording import duration_us

SHOWN = 72
"""Slots on the page, the latest first; an export has every one."""


def _saved_said(row: Any) -> str:
    """As the lists of operators and jobs say it."""
    return duration_us(row.saved_s * 1e6)


_START = Column("start", "From", "when")
_SAVED = Column("saved_s", "Time saved", "us", show=_saved_said, figure="saved")
_TRAFFIC = (
    _START,
    Column("hits", "Hits", "count", figure="hits"),
    Column("misses", "Misses", "count", figure="misses"),
    Column("hit_calls", "Calls hit", "count"),
    Column("miss_calls", "Calls missed", "count"),
    Column("operators_asked", "Operators", "count"),
    Column("operators_hit", "of them hit", "count"),
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
    Column("hit_rate_by_calls", "By calls", "percent", figure="hit_rate_by_calls"),
    Column("hit_rate_by_operators", "By operators", "percent", figure="hit_rate_by_operators"),
    Column("reuse_rate", "Explored for another job", "percent", figure="reuse_rate"),
)


def traffic(slots: Sequence[TrafficBucket]) -> Table:
    """What hit rates are made of, slot by slot."""
    every = slots[::-1]
    shown = [slot for slot in every if slot.hits + slot.misses][:SHOWN]
    return Table("traffic", "Lookups over time", _TRAFFIC, shown, "No lookups in this time.", every)


def saved(slots: Sequence[TrafficBucket], spent_s: Mapping[datetime, float]) -> Table:
    """Time saved slot by slot, and (for the host) what exploring took."""

    def spent(slot: TrafficBucket) -> float:
        return spent_s.get(slot.start, 0.0)

    columns = [_START, Column("hits", "Hits", "count", figure="hits"), _SAVED]
    if spent_s:
        columns.append(Column("spent_s", "Exploring", "seconds", spent, figure="tuning_spent"))
    every = slots[::-1]
    shown = [slot for slot in every if slot.hits or spent(slot)][:SHOWN]
    return Table("saved", "Time saved over time", columns, shown, "Nothing was saved in this time.", every)


_ROUTES = (
    Column("route", "Route", "method"),
    Column("hits", "Hits", "count", figure="route_hits"),
    Column("calls", "Calls", "count", figure="route_calls"),
    Column("saved_s", "Time saved", "us", show=_saved_said, figure="saved_by_route"),
)


def routes(found: Sequence[RouteTraffic]) -> Table:
    """Who served hits, and what that saved."""
    return Table("routes", "Served by route", _ROUTES, found, "No hits in this time.")


_OPERATORS = (
    operator_column("operator"),
    Column("jobs", "Jobs", "count", figure="reuse"),
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
    _SAVED,
)


def operators(name: str, title: str, found: Sequence[OperatorTraffic]) -> Table:
    """A few operators with what lookups of them came to since the beginning."""
    return Table(name, title, _OPERATORS, found, "No lookups yet.")


def wins(catalogue: CatalogueFigures) -> Table:
    """Method by method, whose implementation is the fastest how often."""
    columns = (
        Column("method", "Method", "method", str, beside=str),
        Column("wins", "Wins", "count", lambda name: catalogue.wins.get(name, 0), figure="wins"),
    )
    return Table("wins", "Who has the fastest", columns, METHODS)
