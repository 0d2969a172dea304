"""Pages of long lists, without counting a hundred thousand rows to show fifty of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.functional import cached_property

from dashboard.web.asked import say
from dashboard.web.requests import ViewerRequest
from dashboard.web.wording import shortened

PAGE_SIZE = 50
COUNTED = 10_000
"""Rows that are counted, paged through and exported; beyond, filters narrow a list better than paging."""


class Counts(Protocol):
    """A list that is no query set, and knows how to count itself up to a bound."""

    def count_up_to(self, bound: int) -> int: ...

    def __getitem__(self, places: slice) -> Any: ...


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts up to a bound; ``more`` says that there are rows beyond it."""

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        if isinstance(rows, QuerySet):
            return rows.order_by()[: COUNTED + 1].count()
        return int(rows.count_up_to(COUNTED + 1))

    @cached_property
    def count(self) -> int:  # type: ignore[override]
        return min(self._counted, COUNTED)

    @property
    def more(self) -> bool:
        return self._counted > COUNTED


def page_of(request: ViewerRequest, rows: QuerySet[Any] | Counts) -> Page[Any]:
    """The page that the URL asks for, of a list that may be long."""
    return asked_page(request, BoundedPaginator(rows, PAGE_SIZE))  # type: ignore[arg-type]


def asked_page(request: ViewerRequest, paginator: Paginator[Any]) -> Page[Any]:
    """The page that the URL asks for; the first or last one where it asks for none that there is, which is
    said."""
    asked = request.GET.get("page", "")
    page = paginator.get_page(asked)
    if asked not in ("", str(page.number)):
        say(request, f"There is no page “{shortened(asked, 40)}”: this is page {page.number}.")
    return page


def answer_of(request: ViewerRequest, page: str, part: str, context: dict[str, Any]) -> HttpResponse:
    """A page, or to htmx only its part with the results."""
    answer = render(request, part if request.htmx else page, context)
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def exportable(rows: QuerySet[Any]) -> Iterable[Any]:
    """All rows of an export, up to the bound."""
    return rows[:COUNTED].iterator(chunk_size=2_000)


def with_query(request: HttpRequest, **changes: Any) -> str:
    """The page's address with some of its query changed; None or "" takes a part away. What only parts of
    pages ask with (``seen``) is left out."""
    query = request.GET.copy()
    for name, value in {"seen": None, **changes}.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = value
    return f"{request.path}?{query.urlencode()}"
