"""Jobs: what each asked for, what of it is covered, and what the catalogue saved it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog import models
from catalog.api.describing import query, time_range
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.selectors import jobs
from catalog.timerange import parse_range
from catalog.withheld import prices_withheld_from

_Q = query("q", "Words of the job's name.", maxLength=200)


class JobAnswer(ModelAnswer):
    """A job. `name` is empty for the lookups of an organisation that named no job."""

    organisation = serializers.CharField(source="organisation.name")

    class Meta:
        model = models.Job
        fields = ["id", "name", "organisation", "created_at"]


JobFiguresAnswer = shape(
    jobs.JobRow,
    "hit_rate",
    "cached_share",
    without=["job"],
    id=serializers.IntegerField(source="job.pk"),
    name=serializers.CharField(source="job.name"),
    organisation=serializers.CharField(source="job.organisation.name"),
    using=[shape(jobs.Prefetched, "used_share", "wasted", "wasted_bytes", "requests_saved")],
)
CoverageAnswer = shape(jobs.Coverage, "by_operators", "by_calls", "withheld_calls")


@dataclass(frozen=True)
class JobDetail:
    """One job: figures since its beginning, and the days of the range."""

    job: jobs.JobRow
    coverage: jobs.Coverage
    saved: Sequence[jobs.Saved]
    days: Sequence[jobs.JobSlot]


JobDetailAnswer = shape(JobDetail, using=[JobFiguresAnswer, CoverageAnswer, shape(jobs.Saved, "speedup")])


class _Jobs(Listing[models.Job]):
    def get_queryset(self) -> QuerySet[models.Job]:
        return jobs.jobs(self.viewer.owned(), self.text("q", 200))


@listing(JobAnswer, name="jobs", parameters=[_Q])
class JobsView(_Jobs):
    """Jobs of the key's organisation, the latest to begin first. Lookups that named no job are one of them,
    with an empty name."""


@listing(JobFiguresAnswer, name="job_statistics", tag="jobs", parameters=[_Q])
class JobStatisticsView(_Jobs):
    """What each job asked for, hit, missed and saved."""

    def paginate_queryset(self, queryset: QuerySet[models.Job]) -> list[jobs.JobRow]:  # type: ignore[override]
        return jobs.rows(super().paginate_queryset(queryset) or [])


class JobView(RestView):
    @operation(JobDetailAnswer, name="job", tag="jobs", parameters=time_range("7d"))
    def get(self, request: Request, number: int) -> JobDetail:
        """One job: coverage with reasons, what it saved by method, and day by day."""
        range_ = parse_range(request.query_params)
        missing = f"There is no job {number}: GET /api/v1/jobs/ lists them."
        job = one(jobs.jobs(self.viewer.owned()), number, missing)
        coverage = jobs.coverage(job, prices_withheld_from(job))
        return JobDetail(jobs.rows([job])[0], coverage, jobs.saved(job), jobs.over_time(job, range_))


urlpatterns = [
    path("jobs/", JobsView.as_view(), name="job-list"),
    path("statistics/jobs", JobStatisticsView.as_view(), name="job-statistics"),
    path("statistics/jobs/<row_id:number>", JobView.as_view(), name="job-detail"),
]
