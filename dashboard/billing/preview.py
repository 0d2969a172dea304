"""What a price rule would have cost: last month's hits, priced as it says."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from catalog.models import Usage
from dashboard.billing.models import Mode, PriceRule
from dashboard.billing.pricing import MOST_MICROS, Price, SoFar, quote_uses

MOST_HITS = 50_000
"""More hits than this are not priced one by one: the earliest of the month are, and scaled up."""


@dataclass(frozen=True)
class Preview:
    """``hits`` matched in the month; ``priced`` of them were priced. Amounts in millionths."""

    month: datetime
    hits: int
    priced: int
    organisations: int
    micros: int
    currency: str

    @property
    def is_estimate(self) -> bool:
        return self.priced < self.hits


def preview(draft: PriceRule, now: datetime | None = None) -> Preview:
    """Last month (UTC), as if this had been the only rule: what others take first is not taken off."""
    first = (now or timezone.now()).astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = (first - timedelta(days=1)).replace(day=1)
    matching = _matching(draft).filter(served_at__gte=month, served_at__lt=first)
    hits = matching.aggregate(lookups=Sum("lookups"))["lookups"] or 0
    by_organisation, priced = _priced(matching, draft.price)
    micros = 0 if draft.mode == Mode.FREE else sum(by_organisation.values())
    if priced < hits:
        micros = micros * hits // priced
    return Preview(month, hits, priced, len(by_organisation), micros, draft.currency)


def _matching(draft: PriceRule) -> QuerySet[Usage]:
    mine = Q() if draft.organisation_id is None else Q(organisation=draft.organisation_id)
    if not draft.charges_default:
        mine &= Q(is_default=False)
    return Usage.objects.filter(mine, *(one.past(value) for one, value in draft.asked))


def _priced(matching: QuerySet[Usage], price: Price) -> tuple[dict[int, int], int]:
    """Organisation → what it would have been charged, in the order of its hits; and how many were priced."""
    hits: dict[int, int] = defaultdict(int)
    spent: dict[int, int] = defaultdict(int)
    by_operator: dict[tuple[int, int], int] = defaultdict(int)
    columns = ("organisation_id", "operator_id", "lookups", "calls", "default_us", "median_us")
    rows = matching.order_by("served_at", "pk").values_list(*columns)[:MOST_HITS]
    for organisation, operator, lookups, calls, default_us, median_us in rows.iterator(chunk_size=5_000):
        before = SoFar(hits[organisation], spent[organisation], by_operator[organisation, operator])
        one = quote_uses(price, before, lookups, MOST_MICROS, calls / lookups, default_us, median_us)
        hits[organisation] += lookups
        spent[organisation] += one.micros
        by_operator[organisation, operator] += one.micros
    return spent, sum(hits.values())
