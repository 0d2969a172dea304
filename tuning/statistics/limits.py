"""What compilers miss: limits that routes declare, and what they refuse, with what each costs.

Counted by the courier over the operators that are called most, from their graphs; pages read the result.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

from catalog.models import EVERYBODY, OperatorTotal, Rollup
from catalog.models import Operator as OperatorRow
from catalog.registry import read_graph
from catalog.viewing import Viewer
from opatlas.errors import MALFORMED
from opatlas.identity import Operator
from tuning.failures.reasons import reason_of
from tuning.routes.base import EVERYWHERE, KnownLimit
from tuning.routes.compiler.base import CompilerRoute
from tuning.routes.registry import ROUTES

MOST = 20_000
"""Operators that are counted, those with the most calls: reading a graph takes 0.1 ms."""
_BATCH = 500
_NAME = "known-limits"
_LEAST_S, _SHARE = 600.0, 0.02  # at most so often, and so much of the courier's time
_COMPILERS = [route for route in ROUTES if isinstance(route, CompilerRoute)]

Kind = tuple[str, str, str, bool]
"""A row's route, sentence, where, and whether it is a refusal."""


@dataclass(frozen=True)
class LimitRow:
    """One limit of one route, and what it costs."""

    route: str
    sentence: Annotated[str, "What the route does badly or not at all, and why; numbers aside."]
    where: Annotated[str, "Of which targets, settings or machines it is true."]
    refused: Annotated[bool, "Whether the route refuses the operators."]
    operators: Annotated[int, "That it concerns, of those counted."]
    share_of_calls: Annotated[float, "Calls of these operators ÷ calls of all counted, 0 to 1."]
    method = "compiler"


@dataclass(frozen=True)
class KnownLimits:
    """Every limit, by what it costs, and what was counted."""

    rows: Sequence[LimitRow] = ()
    operators: int = 0
    made_at: datetime | None = None


def known_limits(viewer: Viewer, route: str = "") -> KnownLimits:
    """Of the operators that the viewer's organisations asked for; of one ``route`` where it is named."""
    row = Rollup.objects.filter(name=_name(viewer.tenant)).first()
    if row is None:
        return KnownLimits()
    rows = [LimitRow(**one) for one in row.facts["rows"] if route in ("", one["route"])]
    return KnownLimits(rows, row.facts["operators"], row.made_at)


def refresh_limits_when_due() -> None:
    """The courier's chore: what routes can do changes with a release, what is called slowly."""
    if Rollup.is_due(_NAME, _LEAST_S, _SHARE):
        refresh_limits()


def refresh_limits() -> None:
    """Count anew, for everybody and for each organisation that asked for anything."""
    began = time.monotonic()
    known = dict(_read(list(_calls(EVERYBODY))))
    for tenant in OperatorTotal.objects.values_list("tenant", flat=True).distinct().order_by("tenant"):
        counted = count(known, _calls(tenant))
        rows = [asdict(row) for row in counted.rows]
        Rollup.note(_name(tenant), began, rows=rows, operators=counted.operators)
    Rollup.note(_NAME, began)


def kinds_of(operator: Operator) -> list[Kind]:
    """The limits of every compiler's route that concern the operator."""
    found = [kind for kind, limit in _declared() if limit.concerns(operator)]
    for route in _COMPILERS:
        if reason := route.missing(operator):
            sentence = reason_of(reason)
            found.append((route.name, f"{sentence[:1].upper()}{sentence[1:]}", EVERYWHERE, True))
    return found


def _declared() -> Iterator[tuple[Kind, KnownLimit]]:
    for route in _COMPILERS:
        for limit in route.limits:
            yield (route.name, limit.sentence, limit.where, False), limit


def count(known: Mapping[int, Sequence[Kind]], calls: Mapping[int, float]) -> KnownLimits:
    """What each limit costs, of the operators that ``known`` has read; the dearest first."""
    operators: Counter[Kind] = Counter({kind: 0 for kind, _ in _declared()})
    of_kind: defaultdict[Kind, float] = defaultdict(float)
    counted = {pk: calls[pk] for pk in calls if pk in known}
    for pk, times in counted.items():
        for kind in known[pk]:
            operators[kind] += 1
            of_kind[kind] += times
    whole = sum(counted.values())
    rows = [LimitRow(*kind, operators[kind], of_kind[kind] / whole if whole else 0.0) for kind in operators]
    rows.sort(key=lambda row: (-row.share_of_calls, -row.operators, row.route, row.sentence))
    return KnownLimits(rows, len(counted))


def _calls(tenant: str) -> dict[int, float]:
    """Operator's row → calls that the tenant announced for it, of those called most."""
    rows = OperatorTotal.objects.filter(tenant=tenant).order_by("-calls", "operator")
    return dict(rows.values_list("operator", "calls")[:MOST])


def _read(operators: Sequence[int]) -> Iterator[tuple[int, list[Kind]]]:
    """Each operator that can be read, with the limits that concern it."""
    for start in range(0, len(operators), _BATCH):
        rows = OperatorRow.objects.filter(pk__in=operators[start : start + _BATCH])
        for pk, graph in rows.values_list("pk", "graph"):
            if (operator := read_graph(graph)) is None:
                continue
            try:
                yield pk, kinds_of(operator)
            except MALFORMED:
                continue  # an invented one (bench/seed), or one of another canonical form


def _name(tenant: str) -> str:
    return f"{_NAME}:{tenant}"
