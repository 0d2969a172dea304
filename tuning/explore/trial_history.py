"""Trials and bests as rows: the history behind candidates' chances, and winners for similar operators. Only
explorations for everybody count, as with tuning records."""

from __future__ import annotations

import json
import math
import time
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from typing import Any

from django.db.models import Q, QuerySet

from catalog.models import SHARED, Best, Target
from catalog.models import Operator as OperatorRow
from catalog.registry import read_graph
from opatlas.identity import Operator, Setting
from opatlas.noise import SLOWER_RATIO
from tuning.explore.odds import (
    DoneTry,
    Odds,
    PastTries,
    TryTraits,
    family_of_try,
    plain_label,
    summed,
)
from tuning.measure.outcome import Status
from tuning.models import Exploration, Stage, Trial
from tuning.routes.likeness import distance, family_of, features_of

NEIGHBOURS = 3
FURTHEST = 8.0  # in doublings, as for tuning records
_LEARNT_FROM = 4_000  # trials: the latest
_LOOKED_THROUGH = 10 * _LEARNT_FROM  # for them, where others explore for other targets
_KNOWN_FOR_S = 10.0
_OPERATORS_LISTED = 500  # the latest of the op type and dtype, by two numbers each,
_OPERATORS_READ = 24  # and of so many, the nearest by these, winners and graphs

GIVEN, GIVEN_FOR = Path(__file__).with_name("given_odds.json"), "cpu"
_TRAITS = len(fields(TryTraits))

_known: dict[int, tuple[float, Odds]] = {}


def odds_for(target_id: int) -> Odds:
    """Chances from the latest trials of contests on this target; cached for some seconds."""
    learnt_at, odds = _known.get(target_id, (-math.inf, None))
    if odds is None or time.monotonic() - learnt_at > _KNOWN_FOR_S:
        given = given_odds() if Target.objects.filter(pk=target_id, kind=GIVEN_FOR).exists() else ()
        odds = Odds(_tries(Q(exploration__target=target_id)), given)
        _known[target_id] = (time.monotonic(), odds)
    return odds


def about_try(operator: OperatorRow, route: str, label: str) -> TryTraits:
    """A candidate of a route on an operator."""
    return _traits(route, label, operator.op_type, operator.dtype, operator.flops, operator.bytes_moved)


def winners_nearby(row: Exploration) -> list[tuple[str, str]]:
    """(route, label) of winners for the nearest known operators of the same family, the nearest first, each
    once. The operator itself in this place is left out."""
    operator, setting = Operator.from_json(row.operator.graph), Setting.from_json(row.setting.description)
    family, here = family_of(operator, setting), features_of(operator, setting)
    found: list[tuple[float, tuple[str, str]]] = []
    for graph, route, label in _graphs_nearby(row):
        if (other := read_graph(graph)) is None:
            continue
        far = distance(here, features_of(other, setting))
        if far <= FURTHEST and family_of(other, setting) == family:
            found.append((far, (route, label)))
    nearest = sorted(found)[:NEIGHBOURS]
    return list(dict.fromkeys(winner for _, winner in nearest))


def _graphs_nearby(row: Exploration) -> QuerySet[Best, tuple[Any, str, str]]:
    """Graph and winner of operators of the same type and dtype with similar amounts of work and data."""
    alike = OperatorRow.objects.filter(op_type=row.operator.op_type, dtype=row.operator.dtype)
    # The latest only: walked by index, where a join with their bests would be made for all of them first.
    listed = alike.order_by("-pk").values_list("pk", "flops", "bytes_moved")[:_OPERATORS_LISTED]
    sizes = [
        (_doublings(row.operator, flops, moved), pk) for pk, flops, moved in listed if pk != row.operator_id
    ]
    nearest = [pk for _, pk in sorted(sizes)[:_OPERATORS_READ]]
    winners = Best.objects.filter(
        operator__in=nearest, target=row.target_id, setting=row.setting_id, scope=SHARED, rank=0
    )
    return winners.values_list("operator__graph", "route", "label")


def _doublings(operator: OperatorRow, flops: float, moved: float) -> float:
    return abs(math.log2((1 + flops) / (1 + operator.flops))) + abs(
        math.log2((1 + moved) / (1 + operator.bytes_moved))
    )


@cache
def given_odds() -> tuple[PastTries, ...]:
    """Tries shipped with the service, for CPUs: a new service begins with them, and its own trials replace
    them."""
    rows = json.loads(GIVEN.read_text(encoding="utf-8"))
    return tuple(PastTries(TryTraits(*row[:_TRAITS]), *row[_TRAITS:]) for row in rows)


def export_odds(path: Path) -> int:
    """Write what this service's own contests have taught, in the form of :func:`given_odds`; returns how many
    rows."""
    rows = [
        [
            *astuple(past.about),
            past.count,
            past.worked,
            *(round(one, 3) for one in (past.ratio, past.squares, past.seconds)),
        ]
        for past in summed(_tries(Q(exploration__target__kind=GIVEN_FOR)))
    ]
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    return len(rows)


def _tries(where: Q) -> list[DoneTry]:
    """The latest trials of candidates in contests. One that a noisy host prevented says nothing."""
    latest = Trial.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    rows = (
        Trial.objects.filter(pk__gt=latest - _LOOKED_THROUGH, stage=Stage.CONTEST)
        .filter(where, exploration__scope=SHARED)
        .exclude(label="")  # a route that has nothing for the operator
        .exclude(status=Status.NOISY)
        .order_by("-pk")
        .values_list(
            "route", "label", "exploration__operator__op_type", "exploration__operator__dtype",
            "exploration__operator__flops", "exploration__operator__bytes_moved",
            "status", "ratio_to_default", "took_s",
        )[:_LEARNT_FROM]
    )  # fmt: skip
    return [
        DoneTry(_traits(route, label, op_type, dtype, flops, moved), _log_ratio(status, ratio), took_s)
        for route, label, op_type, dtype, flops, moved, status, ratio, took_s in rows
    ]


def _traits(route: str, label: str, op_type: str, dtype: str, flops: float, bytes_moved: float) -> TryTraits:
    family = family_of_try(op_type, flops, bytes_moved)
    return TryTraits(route, plain_label(label), op_type, family, dtype)


def _log_ratio(status: str, ratio: float | None) -> float | None:
    """None: it failed. A candidate stopped for being too slow works all the same."""
    if status == Status.SLOWER:
        return math.log(ratio or SLOWER_RATIO)
    return math.log(ratio) if status == Status.OK and ratio else None
