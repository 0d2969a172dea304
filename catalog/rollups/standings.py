"""How routes stand among the bests, by kind and size of operator; and what the whole catalogue amounts to."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Exists, FloatField, Max, OuterRef, Q, Sum
from django.db.models.functions import Ln

from catalog import models
from catalog.models import SHARED
from catalog.selectors.listing import counted_kinds
from catalog.sizes import BOUNDS_BYTES

_BATCH = 500

# In every column's order: {size} is the class, {shared} a parameter.
_SQL = """
SELECT b.target_id, b.setting_id, b.method, b.route, o.op_type, {size},
       COUNT(*),
       SUM(CASE WHEN b.rank = 0 THEN 1 ELSE 0 END),
       SUM(CASE WHEN b.rank = 0 AND r.id IS NOT NULL THEN 1 ELSE 0 END),
       SUM(CASE WHEN b.rank = 0 AND r.ratio_to_default > 0 AND b.ratio_to_default > 0
                THEN LN(b.ratio_to_default / r.ratio_to_default) ELSE 0 END),
       SUM(CASE WHEN b.rank = 0 AND b.ratio_to_default > 0 THEN LN(b.ratio_to_default) ELSE 0 END)
FROM {best} b
JOIN {operator} o ON o.id = b.operator_id
LEFT JOIN {best} r ON b.rank = 0 AND r.rank = 1 AND r.operator_id = b.operator_id
  AND r.target_id = b.target_id AND r.setting_id = b.setting_id AND r.scope = b.scope
WHERE b.scope = %s
GROUP BY 1, 2, 3, 4, 5, 6
"""
_COLUMNS = (
    "target_id", "setting_id", "method", "route", "op_type", "size_class", "found", "won", "contested",
    "log_margin", "log_speedup",
)  # fmt: skip


def fingerprint() -> list[Any]:
    """Differs where bests or implementations changed; cheap beside making the rollup."""
    bests = models.Best.objects.aggregate(n=Count("pk"), last=Max("published_at"))
    return [
        bests["n"],
        bests["last"].isoformat() if bests["last"] else "",
        models.BestChange.objects.aggregate(last=Max("pk"))["last"] or 0,
        models.Implementation.objects.aggregate(last=Max("pk"))["last"] or 0,
        models.Implementation.objects.filter(revoked_at__isnull=False).count(),
        models.Operator.objects.count(),
    ]


def rebuild() -> dict[str, Any]:
    """Make every :class:`Standing` afresh; gives the catalogue's facts (``catalog.selectors.statistics``)."""
    rows = [models.Standing(**dict(zip(_COLUMNS, row, strict=True))) for row in _grouped()]
    with transaction.atomic():
        models.Standing.objects.all().delete()
        models.Standing.objects.bulk_create(rows, batch_size=_BATCH)
    return {
        "operators": models.Operator.objects.count(),
        "kinds": counted_kinds(),
        "scopes": _by_scope(),
    }


def _grouped() -> list[tuple[Any, ...]]:
    quote = connection.ops.quote_name
    cases = " ".join(
        f"WHEN o.bytes_moved < {bound!r} THEN {number}" for number, bound in enumerate(BOUNDS_BYTES)
    )
    sql = _SQL.format(
        size=f"CASE {cases} ELSE {len(BOUNDS_BYTES)} END",
        best=quote(models.Best._meta.db_table),
        operator=quote(models.Operator._meta.db_table),
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [SHARED])
        return list(cursor.fetchall())


def _by_scope() -> dict[str, dict[str, Any]]:
    """Scope → operators known (in a private scope those that the shared one lacks), winners with the sum of
    their ln(speed-up), who won how many, and implementations that were not revoked."""
    facts: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"known": 0, "winners": 0, "log_speedup": 0.0, "implementations": 0, "wins": {}}
    )
    winners = models.Best.objects.filter(rank=0)
    logs = Sum(Ln("ratio_to_default"), filter=Q(ratio_to_default__gt=0), output_field=FloatField())
    counted: Any = winners.values("scope", "method").annotate(n=Count("pk"), logs=logs).order_by()
    for row in counted:
        fact = facts[row["scope"]]
        fact["wins"][row["method"]] = row["n"]
        fact["winners"] += row["n"]
        fact["log_speedup"] += row["logs"] or 0.0
    shared = winners.filter(scope=SHARED)
    facts[SHARED]["known"] = shared.aggregate(n=Count("operator", distinct=True))["n"]
    own = winners.exclude(scope=SHARED).filter(~Exists(shared.filter(operator=OuterRef("operator"))))
    counted = own.values("scope").annotate(n=Count("operator", distinct=True)).order_by()
    for row in counted:
        facts[row["scope"]]["known"] = row["n"]
    kept = models.Implementation.objects.values("scope").annotate(n=Count("pk")).order_by()
    revoked = dict(kept.filter(revoked_at__isnull=False).values_list("scope", "n"))
    for scope, n in kept.values_list("scope", "n"):
        facts[scope]["implementations"] = n - revoked.get(scope, 0)
    return dict(facts)
