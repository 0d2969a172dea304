"""The reads of a lookup: the best implementations for a batch of operators, in one or two statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection

from catalog import models
from catalog.best.needs import are_met
from catalog.prepared import fetch_planned


@dataclass(frozen=True, slots=True)
class Accepts:
    """What a caller can load: artifact kinds, and the exact versions it has. None: everything."""

    kinds: frozenset[str] | None = None
    versions: Mapping[str, str] | None = None


class Hit(NamedTuple):
    """One best implementation. Times in microseconds; ratios are default ÷ candidate with their interval."""

    key: str
    operator_id: int
    scope: str
    implementation_id: int
    route: str
    method: str
    label: str
    kind: str
    artifact_sha256: str
    needs: str
    median_us: float
    spread_us: float
    default_us: float
    ratio_to_default: float
    ratio_low: float
    ratio_high: float
    stage: str  # of its place: catalog.models.AnswerStage
    final: bool  # nothing more is planned there just now
    is_default: bool
    equal: bool  # not told apart from the winner in the race that decided
    measured_at: datetime
    rank: int
    from_neighbour: bool = False  # of another target than was asked for: catalog.lookup.neighbours


# Written out, because composing it costs Django's query builder as much time as all the rest of a lookup.
_SQL = (
    f"SELECT operator.key, {', '.join(f'best.{name}' for name in Hit._fields[1:-1])} "
    "FROM catalog_operator operator JOIN catalog_best best ON best.operator_id = operator.id "
    "WHERE operator.key IN ({keys}) AND best.target_id = {one} AND best.setting_id = {one} "
    "AND best.scope IN ({scopes})"
)
_WINNERS_ONLY = " AND best.rank = 0"
_PLACES = {"sqlite": "+%s"}
"""SQLite plans a statement again for each value that it can look up in ANALYZE's samples, which takes as long
as running it. A plus in front, which changes nothing else, prevents that."""


def scopes_of(organisation: models.Organisation | int | None) -> tuple[str, ...]:
    """The scopes that jobs of an organisation (or of this id) see, in the order of preference."""
    number = organisation.pk if isinstance(organisation, models.Organisation) else organisation
    return (models.SHARED,) if number is None else (f"org:{number}", models.SHARED)


def find_bests(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    scopes: Sequence[str],
    accepts: Accepts | None = None,
) -> dict[str, Hit]:
    """The fastest acceptable implementation by operator key; missing keys are no hits. An organisation's own
    entry comes before the shared one. One statement reads the winners; if a caller cannot load one, a second
    reads the other routes."""
    if not keys:
        return {}
    rows = _rows(keys, target, setting, scopes, winners_only=True)
    if accepts is None:
        return _first_by_scope(rows, scopes)
    checked: dict[tuple[str, str], bool] = {}
    acceptable = [hit for hit in rows if _accepted(hit, accepts, checked)]
    refused = {hit.key for hit in rows} - {hit.key for hit in acceptable if hit.scope == scopes[0]}
    if len(acceptable) < len(rows) and refused:
        others = (hit for hit in _rows(sorted(refused), target, setting, scopes) if hit.rank > 0)
        acceptable += sorted(
            (hit for hit in others if _accepted(hit, accepts, checked)), key=lambda hit: hit.rank
        )
    return _first_by_scope(acceptable, scopes)


def bests_of_route(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    scopes: Sequence[str],
    route: str,
) -> dict[str, Hit]:
    """One route's fastest by operator key, even if another route is faster."""
    rows = _rows(keys, target, setting, scopes) if keys else []
    return _first_by_scope([hit for hit in rows if hit.route == route], scopes)


def operators_with_bests(
    operator_ids: Iterable[int], target: models.Target, setting: models.Setting, scopes: Sequence[str]
) -> set[int]:
    """Those of these that have any best, loadable or not."""
    return set(
        models.Best.objects.filter(
            operator__in=list(operator_ids), target=target, setting=setting, scope__in=scopes, rank=0
        ).values_list("operator_id", flat=True)
    )


def _rows(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    scopes: Sequence[str],
    winners_only: bool = False,
) -> list[Hit]:
    one = _PLACES.get(connection.vendor, "%s")
    sql = _SQL.format(keys=_places(one, keys), scopes=_places(one, scopes), one=one)
    sql += _WINNERS_ONLY if winners_only else ""
    parameters: list[Any] = [*keys, target.pk, setting.pk, *scopes]
    if len(keys) == 1:  # of a batch the plan's time is a small part, and each length has a text of its own
        rows = fetch_planned(sql, parameters)
    else:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows = cursor.fetchall()
    if connection.vendor == "sqlite":
        return [_of_sqlite(row) for row in rows]
    return [Hit(*row) for row in rows]


def _of_sqlite(row: Sequence[Any]) -> Hit:
    """Its times are UTC but do not say so."""
    return Hit(*(*row[:-2], row[-2].replace(tzinfo=UTC), row[-1]))


def _places(one: str, values: Sequence[object]) -> str:
    return ",".join([one] * len(values))


def _accepted(hit: Hit, accepts: Accepts, checked: dict[tuple[str, str], bool]) -> bool:
    """A batch has few different (kind, needs): each is compared once."""
    what = (hit.kind, hit.needs)
    if what not in checked:
        kind_is_fine = accepts.kinds is None or hit.kind in accepts.kinds
        checked[what] = kind_is_fine and (accepts.versions is None or are_met(hit.needs, accepts.versions))
    return checked[what]


def _first_by_scope(hits: Sequence[Hit], scopes: Sequence[str]) -> dict[str, Hit]:
    """By key, the first scope's earliest hit."""
    found: dict[str, Hit] = {}
    for scope in scopes:
        for hit in hits:
            if hit.scope == scope:
                found.setdefault(hit.key, hit)
    return found
