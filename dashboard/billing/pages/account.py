"""What an organisation pays: its prices, what it was charged, its credit and how to pay. And, for who runs
the service, all organisations at once."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import RequestError, Unknown
from catalog.models import Organisation
from catalog.timerange import RANGES
from dashboard.billing import accounts, agreements, selectors
from dashboard.billing import charts as money_charts
from dashboard.billing.forms import CreditForm, PlanForm
from dashboard.billing.pages import access, tables
from dashboard.conf import conf
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Table, exported

_RANGES = [name for name in RANGES if name != "24h"]


@require_safe
def billing(request: ViewerRequest) -> HttpResponse:
    """The organisation that is looked at; all of them where none is."""
    access.check_bills(request)
    focus = request.viewer.focus
    if focus is None:
        return _all(request)
    return _one(request, Organisation.objects.get(pk=focus))


@require_safe
def billing_of(request: ViewerRequest, pk: int) -> HttpResponse:
    """One organisation, by its number."""
    return _one(request, access.organisation_or_404(request, pk))


def _charges(request: ViewerRequest, owned: Q, several: bool) -> tuple[dict[str, Any], list[Table]]:
    """What both pages show: totals, a chart, what was charged by day, what was withheld."""
    chosen = range_of(request)
    first, last = selectors.days_of(chosen)
    totals = selectors.totals(owned, first, last)
    sums = selectors.by_day(owned, first, last)
    currency = totals[0].currency if len(totals) == 1 and totals[0].currency else ""
    days = tables.days_table(sums, currency)
    withheld = tables.withheld_table(selectors.withheld_lately(owned, first, last), several)
    spending = tables.spending_table(selectors.spendings(owned), several)
    context = {
        "chosen": chosen,
        "ranges": _RANGES,
        "first": first,
        "last": last,
        "totals": totals,
        "chart": money_charts.charged_by_day(sums, first, last, currency) if sums else None,
        "methods": sorted({one.method for one in sums}),
        "days": days,
        "withheld": withheld,
        "spending": spending,
        "drift": selectors.drift(owned),
    }
    return context, [days, withheld, spending]


def _one(request: ViewerRequest, organisation: Organisation, status: int = 200, **forms: Any) -> HttpResponse:
    owned = Q(organisation=organisation.pk)
    context, shown = _charges(request, owned, False)
    account = accounts.open_account(organisation.pk)
    prices = tables.prices_table(selectors.prices_of(organisation.pk), manage=access.runs(request))
    recent = tables.recent_table(list(selectors.ledger(owned, selectors.LedgerFilters())[:8]))
    if (answer := exported(request, *shown, prices, recent)) is not None:
        return answer
    context |= {
        "organisation": organisation,
        "account": account,
        "owes": -account.balance_micros if account.balance_micros < 0 else 0,
        "prices": prices,
        "recent": recent,
        "forecast": selectors.forecast(owned),
        "pay_url": conf().pay_url,
        "runs": access.runs(request),
    }
    if context["runs"]:
        plan = {
            "plan": account.plan,
            "until": account.plan_until,
            "credit_limit": account.credit_limit_micros,
        }
        context |= {"credit_form": CreditForm(), "plan_form": PlanForm(initial=plan)}
    return render(request, "billing/billing.html", context | forms, status=status)


def _all(request: ViewerRequest) -> HttpResponse:
    context, shown = _charges(request, Q(), True)
    every = tables.organisations_table(selectors.organisations(context["first"], context["last"]))
    prices = tables.prices_table(list(selectors.rules()[:200]), manage=True)
    if (answer := exported(request, *shown, every, prices)) is not None:
        return answer
    context |= {"organisations": every, "prices": prices, "runs": access.runs(request)}
    return render(request, "billing/billing_all.html", context)


@require_POST
def credit(request: ViewerRequest, pk: int) -> HttpResponse:
    """Credit by hand."""
    access.check_runs(request)
    organisation = access.organisation_or_404(request, pk)
    form = CreditForm(request.POST)
    if form.is_valid():
        try:
            currency, by = accounts.open_account(organisation.pk).currency, access.by(request)
            amount, reason = form.cleaned_data["amount"], form.cleaned_data["reason"]
            accounts.give_credit(organisation, amount, reason, currency=currency, by=by)
        except RequestError as error:
            form.add_error(error.where if error.where in form.fields else None, str(error))
        else:
            messages.success(request, f"The account of {organisation} has its credit.")
            return redirect("billing-of", pk)
    return _one(request, organisation, status=400, credit_form=form)


@require_POST
def end_spending(request: ViewerRequest, pk: int) -> HttpResponse:
    """A job's spend limit."""
    access.check_bills(request)
    try:
        ended = agreements.end_spending(pk, request.viewer.owned(), access.by(request))
    except Unknown as error:
        raise Http404(str(error)) from error
    except RequestError as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request,
            f"The spend limit of the job {ended.job} has ended: its next lookup begins with a new one.",
        )
    return redirect("billing")


@require_POST
def plan(request: ViewerRequest, pk: int) -> HttpResponse:
    """Another plan."""
    access.check_runs(request)
    organisation = access.organisation_or_404(request, pk)
    form = PlanForm(request.POST)
    if form.is_valid():
        account = accounts.open_account(organisation.pk)
        accounts.set_plan(
            organisation,
            form.cleaned_data["plan"],
            form.cleaned_data["until"],
            form.cleaned_data["credit_limit"],
            currency=account.currency,
            by=access.by(request),
        )
        messages.success(request, f"The plan of {organisation} was changed.")
        return redirect("billing-of", pk)
    return _one(request, organisation, status=400, plan_form=form)
