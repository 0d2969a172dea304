"""Operators: searched, filtered, sorted, page by page. The URL holds it all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.http import require_safe

from catalog.models import Method, Target
from catalog.selectors import listing
from catalog.viewing import Viewer
from dashboard.web.paging import answer_of, page_of
from dashboard.web.streaming import streamed
from dashboard.web.tables import Column, Table

MOST_EXPORTED = 100_000
_BATCH = 500
_COLUMNS = (
    Column("key", "Key", "code"),
    Column("summary", "Operator"),
    Column("op_type", "Type"),
    Column("dtype", "Element type"),
    Column("status", "Status", "badge"),
    Column("reason", "Reason"),
    Column("method", "Method"),
    Column("route", "Route"),
    Column("label", "Best"),
    Column("median_us", "Time", "us"),
    Column("default_us", "Default", "us"),
    Column("ratio_to_default", "Speed-up", "ratio"),
    Column("jobs", "Jobs", "count", figure="reuse"),
    Column("models", "Models", "count"),
    Column("hits", "Hits", "count", figure="hits"),
    Column("misses", "Misses", "count", figure="misses"),
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
    Column("saved_us", "Time saved", "us", figure="saved"),
    Column("created_at", "First asked", "when"),
)


@dataclass(frozen=True)
class _Listing:
    """What the URL asks for, for whom."""

    filters: listing.OperatorFilters
    viewer: Viewer

    def page(self, request: HttpRequest) -> tuple[Page[Any], list[listing.ListedOperator]]:
        page = page_of(request, listing.operators(self.filters, self.viewer))
        return page, listing.rows(list(page.object_list), self.filters, self.viewer)

    def every(self) -> Iterator[dict[str, Any]]:
        """Rows of an export, some hundred at a time, up to the bound."""
        ids = listing.operators(self.filters, self.viewer).ids(0, MOST_EXPORTED)
        for start in range(0, len(ids), _BATCH):
            some = listing.by_ids(ids[start : start + _BATCH])
            yield from (_exported_row(row) for row in listing.rows(some, self.filters, self.viewer))


@require_safe
def operators(request: HttpRequest) -> HttpResponseBase:
    asked = _Listing(read_filters(request), request.viewer)  # type: ignore[attr-defined]
    table = Table("operators", "Operators", _COLUMNS, ())
    if (answer := streamed(request, table, asked.every)) is not None:
        return answer
    page, rows = asked.page(request)
    context = {"filters": asked.filters, "page": page, "rows": rows, "table": table}
    if not request.htmx:  # type: ignore[attr-defined]  # django_htmx's middleware puts it there
        op_types, dtypes = listing.kinds()
        context |= {
            "op_types": op_types,
            "dtypes": dtypes,
            "statuses": listing.STATUSES,
            "methods": Method.values,
            "targets": Target.objects.order_by("capability").only("key", "capability"),
        }
    return answer_of(request, "operators/operators.html", "operators/_operators_results.html", context)


def read_filters(request: HttpRequest) -> listing.OperatorFilters:
    """What the URL asks for; what it cannot mean is left out rather than refused: links live long."""
    asked = {
        name: request.GET.get(name, "").replace("\0", "").strip()[:200]
        for name in ("q", "op_type", "dtype", "target")
    }
    status, method, sort = (request.GET.get(name, "") for name in ("status", "method", "sort"))
    return listing.OperatorFilters(
        **asked,
        status=status if status in listing.STATUSES else "",
        method=method if method in Method.values else "",
        sort=sort if sort.removeprefix("-") in listing.SORTS else "-recent",
    )


def _exported_row(row: listing.ListedOperator) -> dict[str, Any]:
    best: dict[str, Any] = {}
    if row.best is not None:
        names = ("method", "route", "label", "median_us", "default_us", "ratio_to_default")
        best = {name: getattr(row.best, name) for name in names}
    operator = {
        name: getattr(row.operator, name) for name in ("key", "summary", "op_type", "dtype", "created_at")
    }
    lookups = {
        name: getattr(row, name) for name in ("jobs", "models", "hits", "misses", "hit_rate", "saved_us")
    }
    return operator | best | lookups | {"status": row.status, "reason": row.reason}
