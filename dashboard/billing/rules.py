"""The price rules in force, cached by every process, and the rule for a hit."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from threading import Condition

from cachetools import TTLCache, cached
from django.db.models import Q
from django.utils import timezone

from catalog.best.served import Hit
from catalog.models import Implementation, Operator
from dashboard.billing.conditions import OpTypes
from dashboard.billing.models import PriceRule

FRESH_S = 0.5
"""Changes of rules take effect everywhere within this time plus the age of what is remembered in front of
Django (``catalog.lookup.recalls``): within a second."""

_MOST_OP_TYPES = 200_000


_op_types: dict[int, str] = {}


def in_force(organisation_id: int, now: datetime | None = None) -> tuple[PriceRule, ...]:
    """An organisation's rules in the order of trying. One statement each half second and process, shared by
    all requests."""
    rules = _rules()
    if not rules:
        return ()
    now = now or timezone.now()
    return tuple(rule for rule in rules if rule.holds(organisation_id, now))


def are_there_any() -> bool:
    """Whether any rule is in force or to come, for anybody."""
    return bool(_rules())


def rule_for(
    rules: Collection[PriceRule],
    one: Hit | Implementation,
    is_default: bool,
    op_types: OpTypes,
    currency: str = "",
) -> PriceRule | None:
    """The first matching rule; None: free. Rules in another currency than the account's are skipped. The
    default itself is free unless that rule charges it."""
    for rule in rules:
        if (not currency or rule.currency == currency) and rule.matches(one, op_types):
            return rule if rule.charges(is_default) else None
    return None


def op_types_of(operators: Collection[int], rules: Collection[PriceRule]) -> OpTypes:
    """Op types by operator id: read only if a rule needs them, and cached."""
    if not any(rule.op_type for rule in rules):
        return {}
    found = {number: known for number in operators if (known := _op_types.get(number)) is not None}
    if missing := [number for number in operators if number not in found]:
        asked = dict(Operator.objects.filter(pk__in=missing).values_list("pk", "op_type"))
        if len(_op_types) + len(asked) > _MOST_OP_TYPES:
            _op_types.clear()  # other threads have what they found
        _op_types.update(asked)
        found |= asked
    return found


def forget() -> None:
    """Read again at the next call: after a change, and between tests."""
    _rules.cache_clear()
    _op_types.clear()


@cached(TTLCache(maxsize=1, ttl=FRESH_S), condition=Condition())
def _rules() -> tuple[PriceRule, ...]:
    # Those that begin later are kept too: they begin on time.
    rows = PriceRule.objects.filter(Q(until_at=None) | Q(until_at__gt=timezone.now()))
    return tuple(sorted(rows, key=lambda rule: rule.order))
