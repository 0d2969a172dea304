"""The price rules in force, as every process remembers them, and which of them a hit falls under."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Condition
from typing import Any
from uuid import UUID

from cachetools import TTLCache, cached
from django.db.models import Q
from django.utils import timezone

from catalog.models import SHARED, Operator
from dashboard.billing.models import Mode, PriceRule
from dashboard.billing.pricing import Price, PriceTier

FRESH_S = 1.0
"""A rule that is made, changed or ended takes effect everywhere within this time."""

_MOST_OP_TYPES = 200_000


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """One version of a price rule. Empty conditions match everything."""

    pk: int
    line: UUID
    name: str
    organisation_id: int | None
    method: str
    route: str
    op_type: str
    scope: str
    mode: str
    currency: str
    priority: int
    price: Price
    from_at: datetime
    until_at: datetime | None

    def holds(self, organisation_id: int, now: datetime) -> bool:
        """Whether it is in force for this organisation now."""
        mine = self.organisation_id is None or self.organisation_id == organisation_id
        return mine and self.from_at <= now and (self.until_at is None or now < self.until_at)

    def matches(self, method: str, route: str, scope: str, op_type: str) -> bool:
        return (
            (not self.method or self.method == method)
            and (not self.route or self.route == route)
            and (not self.scope or (self.scope == "shared") == (scope == SHARED))
            and (not self.op_type or self.op_type == op_type)
        )

    @property
    def order(self) -> tuple[int, int, int]:
        """The first that matches counts: highest priority, then the most particular, then the newest."""
        conditions = (self.organisation_id, self.method, self.route, self.op_type, self.scope)
        return -self.priority, -sum(bool(one) for one in conditions), -self.pk


def rule_of(row: PriceRule) -> PriceVersion:
    """A row as a value."""
    return PriceVersion(
        row.pk, row.line, row.name, row.organisation_id, row.method, row.route, row.op_type, row.scope,
        row.mode, row.currency, row.priority, price_of(row), row.from_at, row.until_at,
    )  # fmt: skip


def price_of(row: PriceRule) -> Price:
    first = PriceTier(1, row.per_hit_micros, row.per_saved_second_micros)
    further = tuple(tier_of(one) for one in row.tiers)
    return Price((first, *further), row.cap_month_micros, row.cap_operator_month_micros)


def tier_of(given: Mapping[str, Any]) -> PriceTier:
    return PriceTier(given["from_hit"], given["per_hit_micros"], given.get("per_saved_second_micros", 0))


_op_types: dict[int, str] = {}


def in_force(organisation_id: int, now: datetime | None = None) -> tuple[PriceVersion, ...]:
    """Rules that hold for an organisation, in the order in which they are tried. One statement a second and
    process, shared by all requests."""
    rules = _rules()
    if not rules:
        return ()
    now = now or timezone.now()
    return tuple(rule for rule in rules if rule.holds(organisation_id, now))


def rule_for(
    rules: Collection[PriceVersion], method: str, route: str, scope: str, op_type: str, currency: str = ""
) -> PriceVersion | None:
    """The rule that counts; None: free. An account's currency leaves out rules in any other."""
    for rule in rules:
        if (not currency or rule.currency == currency) and rule.matches(method, route, scope, op_type):
            return None if rule.mode == Mode.FREE else rule
    return None


def op_types_of(operators: Collection[int], rules: Collection[PriceVersion]) -> Mapping[int, str]:
    """Op types by operator id: asked for only where a rule goes by them, and remembered."""
    if not any(rule.op_type for rule in rules):
        return {}
    missing = [number for number in operators if number not in _op_types]
    if missing:
        if len(_op_types) + len(missing) > _MOST_OP_TYPES:
            _op_types.clear()
            missing = list(operators)
        _op_types.update(Operator.objects.filter(pk__in=missing).values_list("pk", "op_type"))
    return _op_types


def forget() -> None:
    """Read anew at the next call: after a change, and between tests."""
    _rules.cache_clear()
    _op_types.clear()


@cached(TTLCache(maxsize=1, ttl=FRESH_S), condition=Condition())
def _rules() -> tuple[PriceVersion, ...]:
    # Those that begin later are kept too: they begin on time.
    rows = PriceRule.objects.filter(Q(until_at=None) | Q(until_at__gt=timezone.now()))
    return tuple(sorted((rule_of(row) for row in rows), key=lambda rule: rule.order))
