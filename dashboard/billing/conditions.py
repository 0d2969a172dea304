"""The conditions of price rules: each is a field of the rule and an entry here. An empty field has no
condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from catalog.models import SHARED
from catalog.selectors.listing import kinds
from opatlas.identity.operator_types import TYPES

OpTypes = Mapping[int, str]
"""Op types by operator id."""


@dataclass(frozen=True)
class PriceCondition:
    """``name``: the rule's field, which has the possible values: its choices, else its length."""

    name: str
    of: Callable[[Any, OpTypes], str]
    """What a hit (or an implementation) has for it."""
    past: Callable[[str], Q]
    """Usage rows, or bests, that have it."""
    known: Callable[[], Sequence[str]] | None = None
    """What there is of it, where the field has no choices: forms offer these, and nothing else is taken."""
    hint: str = ""
    said: str = ""  # after "each hit", where it does not stand before "hit" by itself


def _past_scope(scope: str) -> Q:
    shared = Q(implementation__scope=SHARED)
    return shared if scope == "shared" else Q(implementation__isnull=False) & ~shared


def _routes() -> list[str]:
    from tuning.routes.registry import ROUTES  # every route, and what it imports

    return [one.name for one in ROUTES]


def _op_types() -> list[str]:
    """Those of the catalogue, the commonest first, then those that nobody has asked for."""
    asked = [name for name, _ in kinds()[0]]
    return asked + sorted(TYPES.keys() - set(asked))


CONDITIONS = (
    PriceCondition("method", lambda one, _: one.method, lambda method: Q(method=method)),
    PriceCondition(
        "route", lambda one, _: one.route, lambda route: Q(route=route),
        known=_routes, said=" (route {})",
    ),
    PriceCondition(
        "op_type", lambda one, op_types: op_types.get(one.operator_id, ""),
        lambda op_type: Q(operator__op_type=op_type), known=_op_types, said=" of {}",
    ),
    PriceCondition(
        "scope", lambda one, _: "shared" if one.scope == SHARED else "private", _past_scope,
        hint="Private: the organisation's own entries.",
    ),
)  # fmt: skip
NAMES = tuple(one.name for one in CONDITIONS)
