"""Price rules, for who runs the service: added, replaced by a next version, ended, tried on last month."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.forms import model_to_dict
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.errors import RequestError, Unknown
from dashboard.billing import accounts, pricelist, selectors, words
from dashboard.billing.forms import RuleForm
from dashboard.billing.models import PriceRule
from dashboard.billing.pages import access, tables
from dashboard.billing.trying import NotConfirmed, put_in_force
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import exported


@require_safe
def rules(request: ViewerRequest) -> HttpResponse:
    """Every rule, those that ended too."""
    access.check_runs(request)
    now = timezone.now()
    rows = list(selectors.rules(ended=True)[:500])
    held = [row for row in rows if row.until_at is None or row.until_at > now]
    current = tables.prices_table(held, manage=True)
    before = tables.prices_table([row for row in rows if row not in held], manage=True)
    if (answer := exported(request, current)) is not None:
        return answer
    return render(request, "billing/price_rules.html", {"current": current, "before": before})


@require_http_methods(["GET", "HEAD", "POST"])
def new_rule(request: ViewerRequest) -> HttpResponse:
    access.check_runs(request)
    return _form(request, [])


@require_http_methods(["GET", "HEAD", "POST"])
def rule(request: ViewerRequest, line: UUID) -> HttpResponse:
    """One rule: its versions, and a form for the next."""
    access.check_runs(request)
    try:
        versions = pricelist.history(line)
    except Unknown as error:
        raise Http404(str(error)) from error
    return _form(request, versions)


@require_POST
def end_rule(request: ViewerRequest, line: UUID) -> HttpResponse:
    access.check_runs(request)
    try:
        ended = pricelist.end(line, access.by(request))
    except Unknown as error:
        raise Http404(str(error)) from error
    except RequestError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"{ended.name} has ended: from now on it charges nothing.")
    return redirect("billing-rule", line)


def _form(request: ViewerRequest, versions: list[PriceRule]) -> HttpResponse:
    last = versions[0] if versions else None
    start: dict[str, Any] = {"currency": accounts.default_currency(), "scope": "shared"}
    if last:
        start = model_to_dict(last, exclude=["from_at", "note"])
        start["per_saved_second_micros"] = last.per_saved_second_micros or None
    form = RuleForm(request.POST or None, initial=start)
    context: dict[str, Any] = {"form": form, "versions": versions, "last": last}
    if last is not None:
        context |= {
            "table": tables.prices_table(versions),
            "is_open": last.until_at is None,
            "sentence": words.sentence(last),
        }
        if (answer := exported(request, context["table"])) is not None:
            return answer
    if request.method != "POST" or not form.is_valid():
        return render(request, "billing/price_rule.html", context, status=400 if form.errors else 200)
    try:
        made = put_in_force(form.instance, last, request.POST.get("confirm", ""), access.by(request))
    except NotConfirmed as unseen:
        found = unseen.tried.preview
        tried = {"tried": unseen.tried, "preview": found, "changed": "confirm" in request.POST}
        tried["preview_table"] = tables.preview_table(found.by_organisation)
        return render(request, "billing/price_rule.html", context | tried)
    except RequestError as error:
        name = error.where.split("[")[0]
        form.add_error(name if name in form.fields else None, str(error))
        return render(request, "billing/price_rule.html", context, status=400)
    messages.success(request, f"{made} is in force: {words.sentence(made)}")
    return redirect("billing-rule", made.line)
