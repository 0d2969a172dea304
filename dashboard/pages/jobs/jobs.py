"""Pages of jobs: what each asked for, hit or miss, coverage with reasons, and what the catalogue saved it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import TypeVar

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from catalog.selectors import jobs as selectors
from catalog.timerange import RANGES
from catalog.withheld import prices_withheld_from
from dashboard.pages.jobs import tables
from dashboard.web.asked import one_of, sort_of, takes, text_of
from dashboard.web.charts import work as work_charts
from dashboard.web.paging import answer_of, exportable, page_of
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import exported

_BATCH = 500

T = TypeVar("T")
R = TypeVar("R")


@require_safe
def jobs_page(request: ViewerRequest) -> HttpResponse:
    viewer = request.viewer
    takes(request, "q")
    q = text_of(request)
    found = selectors.jobs(viewer.owned(), q)
    page = page_of(request, found)
    every = _in_batches(exportable(found), selectors.rows) if "export" in request.GET else None
    table = tables.jobs_table(selectors.rows(page.object_list), every)
    if (answer := exported(request, table)) is not None:
        return answer
    return answer_of(
        request, "jobs/jobs.html", "jobs/_jobs_results.html", {"page": page, "table": table, "q": q}
    )


def _in_batches(rows: Iterable[T], made: Callable[[list[T]], Sequence[R]]) -> Iterator[R]:
    """The results of ``made`` for some hundred rows at a time: an export holds no more of them."""
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield from made(batch)


@require_safe
def job_page(request: ViewerRequest, pk: int) -> HttpResponse:
    """One job. Coverage and what it asked for are of all time; what was saved, of the chosen range."""
    viewer = request.viewer
    job = get_object_or_404(selectors.jobs(viewer.owned()), pk=pk)
    range_ = range_of(request)
    takes(request, "status", "sort")
    status = one_of(request, "status", ("hit", selectors.WITHHELD, "miss"))
    sort = sort_of(request, selectors.SORTS, "-calls")
    places = selectors.places_of(job)
    withheld = prices_withheld_from(job, places)
    asked = selectors.asked_for(job, sort, status, withheld, places)
    page = page_of(request, asked)
    operators = partial(selectors.operator_rows, job, withheld, places=places)
    every = _in_batches(exportable(asked), operators) if "export" in request.GET else None
    coverage, saved = selectors.coverage(job, withheld, places), selectors.saved(job, range_)
    slots = selectors.over_time(job, range_)
    figures = selectors.rows([job])[0]
    made = {
        "operators": tables.job_operators_table(operators(page.object_list), every),
        "sources": tables.sources_table(figures),
        "prefetched": tables.prefetched_table(figures.prefetched),
        "missing": tables.missing_table(coverage),
        "saved": tables.saved_table(saved),
        "days": tables.days_table(slots),
    }
    if (answer := exported(request, *made.values())) is not None:
        return answer
    context = made | {
        "job": job,
        "figures": figures,
        "coverage": coverage,
        "total": saved[-1],
        "chart": work_charts.job_days(slots) if saved[-1].hits else None,
        "page": page,
        "status": status,
        "withheld": len(withheld),
        "chosen": range_,
        "ranges": list(RANGES),
        "filters": SimpleNamespace(sort=sort),
    }
    return answer_of(request, "jobs/job.html", "jobs/_job_operators.html", context)
