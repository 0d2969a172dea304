"""Operators: searched, filtered, sorted, page by page. The URL holds it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page
from django.http import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.models import Method, Operator, Target
from catalog.selectors import listing
from catalog.selectors.jobs import WITHHELD
from catalog.selectors.suggesting import suggestions
from catalog.viewing import Viewer
from catalog.withheld import may_be_withheld_from, prices_withheld_in
from dashboard.web.asked import one_of, say_unknown, sort_of, takes, text_of, words_of
from dashboard.web.paging import answer_of, page_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, default_time, exports, operator_column, streamed
from dashboard.web.wording import compact, short_key

MOST_EXPORTED = 100_000
_BATCH = 500
_FILTERS = ("q", "op_type", "dtype", "target", "status", "method")
_NAMED = (
    ("op_type", "operator type", Operator), ("dtype", "element type", Operator), ("target", "target", Target),
)  # fmt: skip
"""Filters that take what the catalogue has: what it is called, and where it stands."""


def _short_key(row: listing.ListedOperator) -> str:
    return short_key(row.operator.key)


def _models(row: listing.ListedOperator) -> str:
    return f"{compact(row.models)} model{'' if row.models == 1 else 's'}" if row.models else ""


_COLUMNS = (
    Column("key", "Key", value="operator.key", show=_short_key, under="summary", css="mono"),
    operator_column("summary", "name", sort="name"),
    *exports("op_type", "dtype", of="operator"),
    Column("status", "Status", "badge"),
    Column("reason", "Reason", under="status", css="clip"),
    *exports("method", of="best"),
    Column("route", "Best", "method", "best.route", beside="best.method", spare=True),
    Column("label", "Best", value="best.label", under="route", css="clip"),
    Column("median_us", "Time", "us", "best.median_us", spare=True, sort="time"),
    *default_time("best", route="best.measurement.default_route"),
    Column("ratio_to_default", "Speed-up", "speedup", "best.ratio_to_default", spare=True, sort="speedup"),
    Column("jobs", "Jobs", "count", css="spare", sort="jobs"),
    Column("models", "Models", "count", show=_models, under="jobs"),
    *exports("hits", "misses"),
    Column("asked", "Lookups", "count", "lookups", css="spare", sort="asked", only="page"),
    Column("hit_rate", "Hit rate", "percent", css="spare", figure="hit_rate"),
    Column("saved_us", "Time saved", "us", spare=True, sort="saved"),
    Column(
        "created_at", "First asked", "when", "operator.created_at", css="number muted spare", sort="recent"
    ),
)


@dataclass(frozen=True)
class _Listing:
    """What the URL asks for, for whom."""

    filters: listing.OperatorFilters
    viewer: Viewer

    def page(self, request: ViewerRequest) -> tuple[Page[Any], list[listing.ListedOperator]]:
        page = page_of(request, self._found())
        return page, self._rows(list(page.object_list))

    def every(self) -> Iterator[listing.ListedOperator]:
        """Rows of an export, some hundred at a time, up to the bound."""
        ids = self._found().ids(0, MOST_EXPORTED)
        for start in range(0, len(ids), _BATCH):
            yield from self._rows(listing.by_ids(ids[start : start + _BATCH]))

    def _found(self) -> listing.Found:
        goes_by_it = self.filters.status in ("hit", WITHHELD)
        withheld = prices_withheld_in(self.filters, self.viewer) if goes_by_it else ()
        return listing.operators(self.filters, self.viewer, withheld)

    def _rows(self, some: Sequence[Operator]) -> list[listing.ListedOperator]:
        withheld = prices_withheld_in(self.filters, self.viewer, [one.pk for one in some])
        return listing.rows(some, self.filters, self.viewer, withheld)


@require_safe
def operators(request: ViewerRequest) -> HttpResponseBase:
    asked = _Listing(read_filters(request), request.viewer)
    if "suggest" in request.GET:
        said = {"suggestions": suggestions(asked.filters.q)}
        return render(request, "operators/_suggestions.html", said)
    if (answer := streamed(request, _table(()), asked.every)) is not None:
        return answer
    page, rows = asked.page(request)
    context = {"filters": asked.filters, "page": page, "table": _table(rows)}
    if not request.htmx:
        op_types, dtypes = listing.kinds()
        context |= {
            "op_types": op_types,
            "dtypes": dtypes,
            "statuses": _statuses(asked),
            "methods": Method.values,
            "targets": Target.objects.order_by("capability").only("key", "capability"),
        }
    return answer_of(request, "operators/operators.html", "operators/_operators_results.html", context)


def _statuses(asked: _Listing) -> list[str]:
    """To choose from: what is withheld only where a price may withhold."""
    any_held = asked.filters.status == WITHHELD or may_be_withheld_from(asked.viewer)
    return [one for one in listing.STATUSES if any_held or one != WITHHELD]


def _table(rows: Sequence[listing.ListedOperator]) -> Table:
    return Table("operators", "Operators", _COLUMNS, rows, css="stacks operators-table")


def read_filters(request: ViewerRequest) -> listing.OperatorFilters:
    """What the URL asks for; what it cannot mean is said, and left out."""
    takes(request, *_FILTERS, "sort")
    asked = {name: text_of(request, name) for name, *_ in _NAMED}
    for name, what, rows in _NAMED:
        column = "key" if rows is Target else name
        if asked[name] and not rows.objects.filter(**{column: asked[name]}).exists():
            say_unknown(request, name, what=what)
            asked[name] = ""
    return listing.OperatorFilters(
        **asked,
        q=words_of(request),
        status=one_of(request, "status", listing.STATUSES),
        method=one_of(request, "method", Method.values),
        sort=sort_of(request, listing.SORTS, "-saved"),
    )
