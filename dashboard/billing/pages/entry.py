"""One entry of the ledger: of a charge the served hit that it belongs to, and the price that it was charged
by; of the others who booked it and why."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard.billing import selectors, words
from dashboard.billing.models import Kind
from dashboard.billing.pages import access
from dashboard.web.requests import ViewerRequest


@require_safe
def ledger_entry(request: ViewerRequest, pk: int) -> HttpResponse:
    """From a line of the bill to what was got for it."""
    access.check_bills(request)
    row = selectors.ledger(request.viewer.owned(), selectors.LedgerFilters()).filter(pk=pk).first()
    if row is None:
        raise Http404("There is no entry with this number in your ledger.")
    hit = selectors.hit_of(row)
    context = {
        "entry": row,
        "is_charge": row.kind == Kind.CHARGE,
        "charged_micros": abs(row.amount_micros),
        "hit": hit,
        "saved_us": (hit.default_us - hit.median_us) * hit.calls if hit else None,
        "price": words.sentence(row.rule) if row.rule else "",
        "runs": access.runs(request),
    }
    return render(request, "billing/ledger_entry.html", context)
