"""How methods and routes fare: found, won, served, how fast they find, where each wins, why they fail.

Reads rollups only (``Standing``, ``RouteSlot``, ``RouteEffort``, ``FailureReason``): the same cost with ten
implementations and with a million.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from django.db.models import Q, QuerySet, Sum

from catalog.models import Method, Rollup, RouteSlot, Setting, Standing, Target
from catalog.sizes import SIZE_LABELS
from catalog.timerange import TimeRange
from catalog.viewing import Viewer
from tuning.models import FailureReason, RouteEffort
from tuning.statistics.efforts import NAME

ORDER = {method: number for number, method in enumerate(Method.values)}
_REASONS_SHOWN = 500


@dataclass(frozen=True)
class At:
    """Where: one (target, setting), or everywhere."""

    target: Target | None = None
    setting: Setting | None = None

    @property
    def value(self) -> str:
        """How a URL names it; empty: everywhere."""
        return f"{self.target.pk}-{self.setting.pk}" if self.target and self.setting else ""

    @property
    def filter(self) -> Q:
        return Q(target=self.target, setting=self.setting) if self.value else Q()

    def __str__(self) -> str:
        if self.target is None or self.setting is None:
            return "everywhere"
        return f"{self.target.title}, {self.setting.on(self.target)}"


@dataclass(frozen=True)
class Fares:
    """How one method or route fares. Seconds are medians of the latest tries, ratios geometric means."""

    method: str
    route: Annotated[str, "Empty: the method as a whole."] = ""
    found: int = 0
    won: int = 0
    contested: int = 0
    log_margin: float = 0.0
    log_speedup: float = 0.0
    hits: Annotated[int, "In the range, everywhere."] = 0
    calls: float = 0.0
    saved_us: float = 0.0
    explorations: int = 0
    trials: int = 0
    verified: int = 0
    first_result_s: float | None = None
    best_s: float | None = None
    effort_s: float | None = None
    build_s: float | None = None

    @property
    def name(self) -> str:
        return self.route or self.method

    @property
    def win_rate(self) -> float | None:
        """Of the operators that it found an implementation for."""
        return self.won / self.found if self.found else None

    @property
    def margin(self) -> float | None:
        """Geometric mean over the runner-up, of the wins that had one."""
        return math.exp(self.log_margin / self.contested) if self.contested else None

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the default, of its wins."""
        return math.exp(self.log_speedup / self.won) if self.won else None

    @property
    def success_rate(self) -> float | None:
        """Verified trials of all."""
        return self.verified / self.trials if self.trials else None


class Win(NamedTuple):
    """A method or route, and how many operators of a cell it has won."""

    name: str
    method: str
    won: int


@dataclass(frozen=True)
class Cell:
    """One type of operator in one size class, and who wins there. ``wins``: by name, the most first."""

    op_type: str
    size_class: Annotated[int, "0: below 10 kB moved by a run; each further one a decade."]
    operators: Annotated[int, "With a best."]
    wins: tuple[Win, ...]
    log_speedup: float

    @property
    def size(self) -> str:
        return SIZE_LABELS[self.size_class]

    @property
    def leader(self) -> Win:
        return self.wins[0]

    @property
    def share(self) -> float:
        """Of them, that the first of wins has won."""
        return self.leader.won / self.operators

    @property
    def speedup(self) -> float:
        """Over the default, geometric mean."""
        return math.exp(self.log_speedup / self.operators)

    def won_by(self, name: str) -> int:
        return next((count for who, _, count in self.wins if who == name), 0)


def places() -> list[At]:
    """Where anything stands, by capability."""
    pairs = list(Standing.objects.values_list("target_id", "setting_id").distinct().order_by())
    targets = Target.objects.in_bulk([target for target, _ in pairs])
    settings = Setting.objects.in_bulk([setting for _, setting in pairs])
    found = [At(targets[target], settings[setting]) for target, setting in pairs]
    return sorted(found, key=lambda at: (str(at), at.value))


def routes(at: At, viewer: Viewer, span: TimeRange) -> list[Fares]:
    """Every route that stands, was tried or served; by method, the winners first."""
    made: dict[str, Fares] = {}
    row: Any
    for row in _standings(at).values("route", "method").annotate(**_SUMS).order_by():
        made[row["route"]] = Fares(row["method"], row["route"], **{name: row[name] for name in _SUMS})
    for row in _served(viewer, span).values("route", "method").annotate(**_SERVED).order_by():
        known = made.get(row["route"]) or Fares(row["method"], row["route"])
        made[row["route"]] = replace(known, **{name: row[name] for name in _SERVED})
    for effort in RouteEffort.objects.filter(place=at.value).exclude(route=""):
        known = made.get(effort.route) or Fares(effort.method, effort.route)
        made[effort.route] = replace(known, **_times(effort))
    return sorted(made.values(), key=lambda one: (ORDER[one.method], -one.won, -one.found, one.route))


def by_method(of: Sequence[Fares], at: At) -> list[Fares]:
    """The three methods, from their routes. What does not add up (operators that several routes of a method
    found something for, medians) comes from the rollup."""
    efforts = {row.method: row for row in RouteEffort.objects.filter(place=at.value, route="")}
    made = []
    for method in Method.values:
        mine = [one for one in of if one.method == method]
        total = Fares(
            method,
            **{
                name: sum(getattr(one, name) for one in mine)
                for name in (*_SUMS, *_SERVED)
                if name != "found"
            },
        )
        if effort := efforts.get(method):
            total = replace(total, found=effort.found, **_times(effort))
        made.append(total)
    return made


def cells(at: At, by: str = "method", route: str = "") -> list[Cell]:
    """Where each wins: op type × size class, ``by`` "method" or "route"; ``route``: only where it stands."""
    rows = _standings(at)
    if route:
        kinds = set(rows.filter(route=route).values_list("op_type", "size_class"))
    grouped: dict[tuple[str, int], dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    speedups: dict[tuple[str, int], float] = defaultdict(float)
    counted = rows.filter(won__gt=0).values("op_type", "size_class", "method", "route")
    for row in counted.annotate(won=Sum("won"), log_speedup=Sum("log_speedup")).order_by():
        kind = (row["op_type"], row["size_class"])
        if route and kind not in kinds:
            continue
        who = (row["method"] if by == "method" else row["route"], row["method"])
        grouped[kind][who] += row["won"]
        speedups[kind] += row["log_speedup"]
    return sorted(
        (_cell(kind, wins, speedups[kind]) for kind, wins in grouped.items()),
        key=lambda cell: (cell.op_type, cell.size_class),
    )


def failures(at: At, method: str = "", route: str = "") -> list[FailureReason]:
    """Why trials failed, the most frequent first."""
    rows = FailureReason.objects.filter(place=at.value).select_related("example__exploration__operator")
    rows = rows.defer("example__candidate", "example__log_tail", "example__exploration__operator__graph")
    if method:
        rows = rows.filter(method=method)
    if route:
        rows = rows.filter(route=route)
    return list(rows.order_by("-count", "route", "status", "reason")[:_REASONS_SHOWN])


def made_at() -> dict[str, datetime]:
    """Rollup → when it was last made."""
    return dict(Rollup.objects.filter(name__in=[NAME, "standings"]).values_list("name", "made_at"))


_SUMS = {name: Sum(name, default=0) for name in ("found", "won", "contested", "log_margin", "log_speedup")}
_SERVED = {name: Sum(name, default=0) for name in ("hits", "calls", "saved_us")}


def _standings(at: At) -> QuerySet[Standing]:
    return Standing.objects.filter(at.filter)


def _served(viewer: Viewer, span: TimeRange) -> QuerySet[RouteSlot]:
    """Days that began within the range; the day of its beginning counts whole."""
    days = RouteSlot.objects.filter(start__gte=span.first("day"), start__lt=span.until)
    return days.filter(tenant=viewer.tenant)


def _times(effort: RouteEffort) -> dict[str, Any]:
    names = ("explorations", "trials", "verified", "first_result_s", "best_s", "effort_s", "build_s")
    return {name: getattr(effort, name) for name in names}


def _cell(kind: tuple[str, int], wins: dict[tuple[str, str], int], log_speedup: float) -> Cell:
    order = sorted(
        (Win(name, method, count) for (name, method), count in wins.items()),
        key=lambda one: (-one.won, one.name),
    )
    return Cell(kind[0], kind[1], sum(wins.values()), tuple(order), log_speedup)
