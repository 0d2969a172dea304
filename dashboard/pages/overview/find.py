"""One search over everything that the reader may see: pages and actions, operators, jobs, models, kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from catalog.models import Model
from catalog.selectors import jobs, listing
from dashboard.web.asked import takes, text_of
from dashboard.web.menu import actions_for, entries_for
from dashboard.web.paging import answer_of
from dashboard.web.requests import ViewerRequest
from tuning.kernels import selectors as kernels

MOST_OF_EACH = 6


@dataclass(frozen=True)
class FoundPage:
    """One line: what it is, and where it leads."""

    kind: str
    icon: str
    title: str
    path: str
    beside: str = ""


@require_safe
def find(request: ViewerRequest) -> HttpResponse:
    takes(request, "q")
    q = text_of(request)
    context = {"q": q, "findings": list(_found(request, q))}
    return answer_of(request, "overview/find.html", "overview/_found.html", context)


def _found(request: ViewerRequest, q: str) -> Iterator[FoundPage]:
    viewer, words = request.viewer, q.lower().split()
    for one in entries_for(viewer, words):
        yield FoundPage("page", one.icon, one.title, reverse(one.page))
    for one in actions_for(viewer, words):
        yield FoundPage("action", one.icon, one.title, reverse(one.page))
    if not q:
        return
    for operator in listing.operators(listing.OperatorFilters(q=q, sort="-jobs"), viewer)[:MOST_OF_EACH]:
        yield FoundPage("operator", "operators", operator.summary, reverse("operator", args=[operator.key]))
    for job in jobs.jobs(viewer.owned(), q)[:MOST_OF_EACH]:
        yield FoundPage("job", "play", job.said, reverse("job", args=[job.pk]), str(job.organisation))
    models = Model.objects.filter(viewer.owned(), name__icontains=q).order_by("-pk")
    for model in models.values("pk", "name")[:MOST_OF_EACH]:
        yield FoundPage("model", "models", model["name"], reverse("model", args=[model["pk"]]))
    sight = kernels.sight_of(request.user, viewer)
    for kernel in kernels.kernels_seen(sight).filter(name__icontains=q)[:MOST_OF_EACH]:
        yield FoundPage(
            "kernel", "docs", kernel.name, reverse("kernel", args=[kernel.pk]), kernel.description
        )
