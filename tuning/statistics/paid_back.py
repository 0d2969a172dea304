"""Time spent on exploring, against the time that its results saved: did it pay?

The join of explorations and operators' totals takes long where both are many, so the courier makes it now and
then (``refresh_when_due``) and pages read what it noted; where nothing was noted yet it is made on the spot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncHour
from django.utils import timezone

from catalog.models import EVERYBODY, SHARED, OperatorTotal, Rollup
from catalog.timerange import TimeRange
from catalog.viewing import Viewer
from tuning.models import Exploration

NAME = "paid_back"
_EVERY_S = 10.0
_DAYS_BY_HOUR = 10

# Per tenant: operators that it asked for and that were explored (shared, or for itself), with both sums.
_SQL = """
SELECT tenant, COUNT(*), SUM(spent_s), SUM(saved_us),
       SUM(CASE WHEN saved_us > spent_s * 1000000 THEN 1 ELSE 0 END)
FROM (
    SELECT t.tenant AS tenant, t.saved_us AS saved_us, SUM(e.spent_s) AS spent_s
    FROM {exploration} e JOIN {total} t ON t.operator_id = e.operator_id
    WHERE t.tenant = %s OR e.scope = %s OR e.scope = t.tenant
    GROUP BY t.tenant, t.operator_id, t.saved_us
) AS explored
GROUP BY tenant
"""


@dataclass(frozen=True)
class PaidBack:
    """Exploring against saving, since the beginning. ``spent_s`` of the host counts what nobody asked for."""

    explored: int = 0  # operators with an exploration
    paid_back: int = 0  # of these: what lookups of them saved exceeds what exploring them took
    spent_s: float = 0.0
    saved_s: float = 0.0  # by hits on explored operators

    @property
    def share(self) -> float | None:
        return self.paid_back / self.explored if self.explored else None

    @property
    def return_on_tuning(self) -> float | None:
        """Seconds saved per second of exploring."""
        return self.saved_s / self.spent_s if self.spent_s else None

    @property
    def net_s(self) -> float:
        """What exploring brought: seconds saved, less the seconds that it took."""
        return self.saved_s - self.spent_s


def paid_back(viewer: Viewer) -> PaidBack:
    """Of the viewer's tenant, or of everybody."""
    return _paid_back(_facts(), viewer)


def both(
    viewer: Viewer, time_range: TimeRange, noted: Mapping[str, Rollup] | None = None
) -> tuple[PaidBack, dict[datetime, float]]:
    """:func:`paid_back` and :func:`spent`, read once. ``noted``: the rollup ``NAME``, read already."""
    facts = _facts(noted)
    return _paid_back(facts, viewer), _spent(facts, viewer, time_range)


def _paid_back(facts: dict[str, Any], viewer: Viewer) -> PaidBack:
    return PaidBack(**facts["tenants"].get(viewer.tenant, {}))


def spent(viewer: Viewer, time_range: TimeRange) -> dict[datetime, float]:
    """Start of an hour or day (as the range has them) → seconds of exploring asked for then. Hours go
    back ten days. Only the host's: it is the service that explores."""
    return _spent(_facts(), viewer, time_range)


def _spent(facts: dict[str, Any], viewer: Viewer, time_range: TimeRange) -> dict[datetime, float]:
    if viewer.tenant != EVERYBODY:
        return {}
    noted = facts["days" if time_range.grain == "day" else "hours"]
    starts = {datetime.fromisoformat(start): spent_s for start, spent_s in noted.items()}
    return {start: starts[start] for start in time_range.starts() if start in starts}


def refresh() -> None:
    """Make it again, now."""
    began = time.monotonic()
    Rollup.note(NAME, began, **_made())


def refresh_when_due() -> None:
    """The courier's chore: at most a twentieth of the time goes into it."""
    if Rollup.is_due(NAME, _EVERY_S):
        refresh()


def _facts(noted: Mapping[str, Rollup] | None = None) -> dict[str, Any]:
    return Rollup.facts_of(NAME, noted) or _made()


def _made() -> dict[str, Any]:
    tenants = _by_tenant()
    whole = Exploration.objects.aggregate(explored=Count("operator", distinct=True), spent_s=Sum("spent_s"))
    if whole["explored"]:
        tenants[EVERYBODY] = {"paid_back": 0, "saved_s": 0.0} | tenants.get(EVERYBODY, {}) | whole
    lately = Exploration.objects.filter(asked_at__gte=timezone.now() - timedelta(days=_DAYS_BY_HOUR))
    return {
        "tenants": tenants,
        "days": _spent_by(TruncDay("asked_at"), Exploration.objects.all()),
        "hours": _spent_by(TruncHour("asked_at"), lately),
    }


def _spent_by(start: TruncDay | TruncHour, rows: QuerySet[Exploration]) -> dict[str, float]:
    sums: Any = rows.annotate(start=start).values_list("start").annotate(s=Sum("spent_s")).order_by()
    return {moment.isoformat(): spent_s for moment, spent_s in sums}


def _by_tenant() -> dict[str, dict[str, Any]]:
    quote = connection.ops.quote_name
    sql = _SQL.format(
        exploration=quote(Exploration._meta.db_table), total=quote(OperatorTotal._meta.db_table)
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [EVERYBODY, SHARED])
        return {
            tenant: {"explored": n, "spent_s": spent_s, "saved_s": saved_us / 1e6, "paid_back": int(paid)}
            for tenant, n, spent_s, saved_us, paid in cursor.fetchall()
        }
