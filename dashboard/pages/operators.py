"""Operators: searched, filtered, sorted, page by page. The URL holds it all."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from catalog.models import Method, Target
from catalog.selectors import listing
from dashboard.selectors.visible import visible

PAGE_SIZE = 50


@require_safe
def operators(request: HttpRequest) -> HttpResponse:
    filters = read_filters(request)
    seen = visible(request.user)
    page = Paginator(listing.operators(filters, seen), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"filters": filters, "page": page, "rows": listing.rows(list(page.object_list), filters, seen)}
    if request.htmx:  # type: ignore[attr-defined]  # django_htmx's middleware puts it there
        response = render(request, "_operators_results.html", context)
    else:
        context |= {
            "op_types": listing.op_types(),
            "dtypes": listing.dtypes(),
            "statuses": listing.STATUSES,
            "methods": Method.values,
            "targets": Target.objects.order_by("capability").only("key", "capability"),
        }
        response = render(request, "operators.html", context)
    # One URL gives a page or a part of it: caches must keep the two apart.
    patch_vary_headers(response, ["HX-Request"])
    return response


def read_filters(request: HttpRequest) -> listing.Filters:
    """What the URL asks for; what it cannot mean is left out rather than refused: links live long."""
    asked = {name: request.GET.get(name, "").strip()[:200] for name in ("q", "op_type", "dtype", "target")}
    status, method, sort = (request.GET.get(name, "") for name in ("status", "method", "sort"))
    return listing.Filters(
        **asked,
        status=status if status in listing.STATUSES else "",
        method=method if method in Method.values else "",
        sort=sort if sort.removeprefix("-") in listing.SORTS else "-recent",
    )
