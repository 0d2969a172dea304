"""The ledger: filtered, page by page, exported."""

from __future__ import annotations

from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.models import Method, Organisation
from dashboard.billing import selectors
from dashboard.billing.models import Kind
from dashboard.billing.pages import access, tables
from dashboard.web.asked import one_of, say_unknown, takes
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest, number_in
from dashboard.web.tables import exported

PAGE_SIZE = 50
MOST_EXPORTED = 100_000


@require_safe
def ledger(request: ViewerRequest) -> HttpResponse:
    access.check_bills(request)
    viewer = request.viewer
    owned, organisation = viewer.owned(), None
    number = number_in(request.GET.get("organisation", ""))
    if viewer.sees_all:
        organisation = Organisation.objects.filter(pk=number).first() if number is not None else None
        if organisation is None:
            say_unknown(request, "organisation")
        else:
            owned = Q(organisation=organisation)
    filters, chosen = _filters(request)
    rows = list(selectors.ledger(owned, filters)[: PAGE_SIZE + 1])
    several = viewer.focus is None and organisation is None
    every = selectors.ledger(owned, filters)[:MOST_EXPORTED]
    table = tables.ledger_table(rows[:PAGE_SIZE], several, every.iterator(chunk_size=2_000))
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "table": table,
        "filters": filters,
        "chosen": chosen,
        "ranges": ["7d", "30d", "90d", "1y"],
        "kinds": Kind.choices,
        "methods": Method.choices,
        "organisation": organisation,
        "organisations": Organisation.objects.order_by("name") if viewer.sees_all else [],
        "older": rows[PAGE_SIZE - 1].pk if len(rows) > PAGE_SIZE else None,
        "most_exported": MOST_EXPORTED,
    }
    return render(request, "billing/ledger.html", context)


def _filters(request: ViewerRequest) -> tuple[selectors.LedgerFilters, object]:
    """What the URL asks for; what it cannot mean is said, and left out."""
    takes(request, "kind", "method", "organisation")
    given = request.GET
    asked = any(given.get(name) for name in ("range", "since", "until"))
    chosen = range_of(request, "1y") if asked else None
    return (
        selectors.LedgerFilters(
            one_of(request, "kind", Kind.values),
            one_of(request, "method", Method.values),
            chosen.since if chosen else None,
            chosen.until if chosen else None,
            number_in(given.get("before", "")),
        ),
        chosen,
    )
