"""The cost of a price rule on last month's hits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from catalog.models import Organisation, Usage
from dashboard.billing.models import Mode, PriceRule
from dashboard.billing.pricing import MOST_MICROS, Price, SoFar, quote_uses

MOST_HITS = 50_000
"""The most hits that are priced one by one: if there were more, the month's earliest are priced, and the
result scaled."""


@dataclass(frozen=True)
class OrganisationPreview:
    """What one organisation would have been charged."""

    organisation: str
    hits: int
    micros: int
    currency: str


@dataclass(frozen=True)
class Preview:
    """``hits`` matched in the month; ``priced`` of them were priced. Amounts in millionths."""

    month: datetime
    hits: int
    priced: int
    by_organisation: tuple[OrganisationPreview, ...]  # who pays most comes first
    currency: str

    @property
    def organisations(self) -> int:
        return len(self.by_organisation)

    @property
    def micros(self) -> int:
        return sum(one.micros for one in self.by_organisation)

    @property
    def is_estimate(self) -> bool:
        return self.priced < self.hits


def preview(draft: PriceRule, now: datetime | None = None) -> Preview:
    """Last month (UTC), as if this were the only rule: what other rules match first is not subtracted."""
    first = (now or timezone.now()).astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = (first - timedelta(days=1)).replace(day=1)
    matching = _matching(draft).filter(served_at__gte=month, served_at__lt=first)
    hits = matching.aggregate(lookups=Sum("lookups"))["lookups"] or 0
    counted, spent = _priced(matching, draft.price)
    priced = sum(counted.values())
    names = dict(Organisation.objects.filter(pk__in=list(counted)).values_list("pk", "name"))

    def whole(part: int) -> int:
        return part * hits // priced

    shares = [
        OrganisationPreview(
            names[pk], whole(n), 0 if draft.mode == Mode.FREE else whole(spent[pk]), draft.currency
        )
        for pk, n in counted.items()
    ]
    shares.sort(key=lambda one: (-one.micros, -one.hits, one.organisation))
    return Preview(month, hits, priced, tuple(shares), draft.currency)


def _matching(draft: PriceRule) -> QuerySet[Usage]:
    mine = Q() if draft.organisation_id is None else Q(organisation=draft.organisation_id)
    if not draft.charges_default:
        mine &= Q(is_default=False)
    return Usage.objects.filter(mine, draft.past)


def _priced(matching: QuerySet[Usage], price: Price) -> tuple[dict[int, int], dict[int, int]]:
    """By organisation, how many hits were priced, and what it would have been charged, in their order."""
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
    return hits, spent
