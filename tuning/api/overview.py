"""The overview's key figures over REST, from the selectors that the page reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import path
from django.utils import timezone
from rest_framework.request import Request

from catalog.api.describing import time_range
from catalog.api.endpoint import RestView, operation
from catalog.api.shapes import shape
from catalog.api.traffic import TrafficAnswer
from catalog.selectors import statistics
from catalog.timerange import parse_range
from tuning.statistics import paid_back, waiting
from tuning.statistics.queues import WorkNow


@dataclass(frozen=True)
class Now:
    queued: int
    running: int
    paused: int
    collecting: int
    workers: int
    oldest_s: float | None


@dataclass(frozen=True)
class Overview:
    since: datetime
    until: datetime
    traffic: statistics.Traffic
    jobs: int
    catalogue: statistics.CatalogueFigures
    reuse: statistics.ReuseFigures
    exploring: paid_back.PaidBack
    now: Now


OverviewAnswer = shape(
    Overview,
    using=[
        TrafficAnswer,
        shape(statistics.ReuseFigures, "jobs_per_operator", "shared_operators", without=["job_operators"]),
        shape(paid_back.PaidBack, "share", "return_on_tuning"),
    ],
)


class OverviewView(RestView):
    @operation(OverviewAnswer, name="overview_statistics", parameters=time_range("7d"))
    def get(self, request: Request) -> Overview:
        """Key figures: hit rate, reuse, time saved and spent, queues, workers."""
        viewer, span = self.viewer, parse_range(request.query_params)
        work = WorkNow(viewer.shown(), timezone.now())
        now = waiting.waiting(work)
        return Overview(
            since=span.since,
            until=span.until,
            traffic=statistics.total(statistics.slots(viewer, span)),
            jobs=statistics.jobs_served(viewer),
            catalogue=statistics.catalogue(viewer),
            reuse=statistics.reuse(viewer),
            exploring=paid_back.paid_back(viewer),
            now=Now(now.queued, now.running, now.paused, now.collecting, now.workers, now.oldest_s(work.now)),
        )


urlpatterns = [path("statistics/overview", OverviewView.as_view())]
