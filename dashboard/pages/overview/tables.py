"""The overview's numbers as tables: under its charts, and as CSV or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from django.urls import reverse

from catalog.selectors.statistics import CatalogueFigures, RouteTraffic, TrafficBucket
from catalog.selectors.statistics_operators import OperatorTraffic
from dashboard.web.charts.drawing import METHODS
from dashboard.web.tables import Column, Table

SHOWN = 72
"""Slots on the page, the latest first; an export has every one."""

_START = Column("start", "From", "when")
_RATES = (
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
    Column("hit_rate_by_calls", "By calls", "percent", figure="hit_rate_by_calls"),
    Column("hit_rate_by_operators", "By operators", "percent", figure="hit_rate_by_operators"),
)
_SAVED = Column("saved_s", "Time saved", "seconds", figure="saved")


def traffic(slots: Sequence[TrafficBucket]) -> Table:
    """What hit rates are made of, slot by slot."""
    columns = (
        _START,
        Column("hits", "Hits", "count", figure="hits"),
        Column("misses", "Misses", "count", figure="misses"),
        Column("hit_calls", "Calls hit", "count"),
        Column("miss_calls", "Calls missed", "count"),
        Column("operators_asked", "Operators", "count"),
        Column("operators_hit", "of them hit", "count"),
        *_RATES,
        Column("reuse_rate", "Reusing", "percent", figure="reuse_rate"),
    )
    rates = [column.key for column in (*_RATES, columns[-1])]
    every = [asdict(slot) | {name: getattr(slot, name) for name in rates} for slot in reversed(slots)]
    shown = [row for row in every if row["hits"] + row["misses"]][:SHOWN]
    return Table("traffic", "Lookups over time", columns, shown, "No lookups in this time.", every)


def saved(slots: Sequence[TrafficBucket], spent_s: Mapping[datetime, float]) -> Table:
    """Time saved slot by slot, and (for the host) what exploring took."""
    columns = [_START, Column("hits", "Hits", "count", figure="hits"), _SAVED]
    if spent_s:
        columns.append(Column("spent_s", "Exploring", "seconds", figure="tuning_spent"))
    every = [
        {
            "start": slot.start,
            "hits": slot.hits,
            "saved_s": slot.saved_s,
            "spent_s": spent_s.get(slot.start, 0.0),
        }
        for slot in reversed(slots)
    ]
    shown = [row for row in every if row["hits"] or row["spent_s"]][:SHOWN]
    return Table("saved", "Time saved over time", columns, shown, "Nothing was saved in this time.", every)


def routes(found: Sequence[RouteTraffic]) -> Table:
    """Who served hits, and what that saved."""
    columns = (
        Column("route", "Route", "method"),
        Column("hits", "Hits", "count", figure="route_hits"),
        Column("calls", "Calls", "count", figure="route_calls"),
        Column("saved_s", "Time saved", "seconds", figure="saved_by_route"),
    )
    rows = [asdict(row) | {"saved_s": row.saved_s} for row in found]
    return Table("routes", "Served by route", columns, rows, "No hits in this time.")


def operators(name: str, title: str, found: Sequence[OperatorTraffic]) -> Table:
    """A few operators with what lookups of them came to since the beginning."""
    columns = (
        Column("operator", "Operator", link="address"),
        Column("jobs", "Jobs", "count", figure="reuse"),
        Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
        _SAVED,
    )
    rows = [
        {
            "operator": row.operator.summary,
            "address": reverse("operator", args=[row.operator.key]),
            "jobs": row.jobs,
            "hit_rate": row.hit_rate,
            "saved_s": row.saved_s,
        }
        for row in found
    ]
    return Table(name, title, columns, rows, "No lookups yet.")


def wins(catalogue: CatalogueFigures) -> Table:
    """Method by method, whose implementation is the fastest how often."""
    columns = (Column("method", "Method", "method"), Column("wins", "Wins", "count", figure="wins"))
    rows = [{"method": name, "wins": catalogue.wins.get(name, 0)} for name in METHODS]
    return Table("wins", "Who has the fastest", columns, rows)
