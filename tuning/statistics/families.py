"""Who wins which family of operators, and by how much: rows of families, a cell for each method or route.

Reads ``Standing`` alone. An operator has one best, so what a family's cells won adds up to its operators.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any

from django.db.models import Sum

from catalog.models import Standing
from opatlas.identity.operator_types import TYPES
from tuning.statistics.methods import ORDER, At

OTHER = "other"
STEPS = (1.02, 1.1, 1.25, 1.6)
"""Margins from which a colour is one step darker."""


@dataclass(frozen=True)
class FamilyCell:
    """What one method or route won of a family."""

    name: str
    method: str
    won: int = 0
    contested: Annotated[int, "Of those won: where another route has a best too."] = 0
    log_margin: float = 0.0

    @property
    def margin(self) -> float | None:
        """Geometric mean over the runner-up, of the wins that had one."""
        return math.exp(self.log_margin / self.contested) if self.contested else None

    @property
    def step(self) -> int | None:
        """The colour: 0 (hardly ahead) to 4; None where it won nothing or met nobody."""
        if self.margin is None:
            return None
        margin = self.margin
        return sum(1 for _ in takewhile(lambda least: margin >= least, STEPS))


@dataclass(frozen=True)
class FamilyRow:
    """One family. ``cells``: by name, of those that won anything."""

    family: str
    op_types: tuple[str, ...]
    cells: Mapping[str, FamilyCell]

    @property
    def operators(self) -> int:
        """With a best."""
        return sum(cell.won for cell in self.cells.values())


def family_of(op_type: str) -> str:
    known = TYPES.get(op_type)
    return known.family if known else OTHER


def families(at: At, by: str = "method") -> list[FamilyRow]:
    """Every family with a best somewhere, the most operators first; ``by`` "method" or "route"."""
    rows = Standing.objects.filter(at.filter, won__gt=0).values("op_type", "method", "route")
    counted = rows.annotate(
        n_won=Sum("won"), n_contested=Sum("contested"), margins=Sum("log_margin")
    ).order_by()
    cells: dict[str, dict[str, FamilyCell]] = defaultdict(dict)
    types: dict[str, set[str]] = defaultdict(set)
    row: Any
    for row in counted:
        family, name = family_of(row["op_type"]), row["method"] if by == "method" else row["route"]
        before = cells[family].get(name) or FamilyCell(name, row["method"])
        cells[family][name] = FamilyCell(
            name,
            row["method"],
            before.won + row["n_won"],
            before.contested + row["n_contested"],
            before.log_margin + row["margins"],
        )
        types[family].add(row["op_type"])
    made = [FamilyRow(family, tuple(sorted(types[family])), found) for family, found in cells.items()]
    return sorted(made, key=lambda one: (-one.operators, one.family))


def columns(rows: Iterable[FamilyRow]) -> list[tuple[str, str]]:
    """(name, method) of every column: by method, those that won most first."""
    won: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        for cell in row.cells.values():
            won[cell.name, cell.method] += cell.won
    return sorted(won, key=lambda one: (ORDER[one[1]], -won[one], one[0]))
