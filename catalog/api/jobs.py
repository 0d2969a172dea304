"""Jobs: what each asked for, what of it is covered, and what the catalogue saved it."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import models
from catalog.api.authentication import key_of
from catalog.api.describing import errors, query
from catalog.errors import RequestError, Unknown
from catalog.selectors import jobs
from catalog.timerange import RANGES, parse_range
from catalog.viewing import viewer_of_key

_Q = query("q", "Words of the job's name.", maxLength=200)
_RANGE = [
    query("range", f"One of {', '.join(RANGES)}; 7d otherwise.", enum=list(RANGES)),
    query("since", "Instead of a range: a date or time."),
    query("until", "With since: a date or time; now otherwise."),
]


class JobSerializer(serializers.ModelSerializer[models.Job]):
    """A job."""

    organisation = serializers.CharField(source="organisation.name", read_only=True)

    class Meta:
        model = models.Job
        fields = ["id", "name", "organisation", "created_at"]
        read_only_fields = fields


class JobFiguresSerializer(serializers.Serializer[Any]):
    """A job's figures, since its beginning."""

    id = serializers.IntegerField(source="job.pk")
    name = serializers.CharField(source="job.name")
    organisation = serializers.CharField(source="job.organisation.name")
    operators = serializers.IntegerField()
    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    hit_rate = serializers.FloatField(allow_null=True)
    saved_us = serializers.FloatField()
    last_at = serializers.DateTimeField(allow_null=True)


class MissingSerializer(serializers.Serializer[Any]):
    """Operators that are not covered, for one reason."""

    state = serializers.CharField()
    reason = serializers.CharField()
    operators = serializers.IntegerField()
    calls = serializers.FloatField()


class CoverageSerializer(serializers.Serializer[Any]):
    """What of a job is known now; shares are of 1, null where nothing was asked for."""

    operators = serializers.IntegerField()
    covered = serializers.IntegerField()
    by_operators = serializers.FloatField(allow_null=True)
    calls = serializers.FloatField()
    covered_calls = serializers.FloatField()
    by_calls = serializers.FloatField(allow_null=True)
    missing = MissingSerializer(many=True)


class SavedSerializer(serializers.Serializer[Any]):
    """What hits of one method came to; of all of them where ``method`` is empty."""

    method = serializers.CharField()
    hits = serializers.IntegerField()
    calls = serializers.FloatField()
    default_us = serializers.FloatField()
    saved_us = serializers.FloatField()
    speedup = serializers.FloatField(allow_null=True)


class JobDaySerializer(serializers.Serializer[Any]):
    """A day (UTC) of a job."""

    start = serializers.DateTimeField()
    hits = serializers.DictField(child=serializers.IntegerField(), help_text="By method.")
    saved_us = serializers.FloatField()


class JobDetailSerializer(serializers.Serializer[Any]):
    """One job: figures since its beginning, and the days of the range."""

    job = JobFiguresSerializer()
    coverage = CoverageSerializer()
    saved = SavedSerializer(many=True)
    days = JobDaySerializer(many=True)


def _owned(request: Request) -> QuerySet[models.Job]:
    text = request.query_params.get("q", "")
    if len(text) > 200 or "\0" in text:
        raise RequestError("q is at most 200 characters, without NUL.", where="q")
    return jobs.jobs(viewer_of_key(key_of(request)).owned(), text)


class JobListView(ListAPIView[models.Job]):
    serializer_class = JobSerializer
    queryset = models.Job.objects.none()

    @extend_schema(
        operation_id="jobs",
        tags=["jobs"],
        summary="Jobs of the key's organisation, the latest to begin first",
        parameters=[_Q],
        responses={200: JobSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.Job]:
        return _owned(self.request)


class JobStatisticsView(ListAPIView[models.Job]):
    serializer_class = JobFiguresSerializer
    queryset = models.Job.objects.none()

    @extend_schema(
        operation_id="job_statistics",
        tags=["jobs"],
        summary="What each job asked for, hit, missed and saved",
        parameters=[_Q],
        responses={200: JobFiguresSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        page = self.paginate_queryset(_owned(request)) or []
        return self.get_paginated_response(JobFiguresSerializer(jobs.rows(page), many=True).data)


class JobDetailView(APIView):
    @extend_schema(
        operation_id="job",
        tags=["jobs"],
        summary="One job: coverage with reasons, what it saved by method, and day by day",
        parameters=_RANGE,
        responses={200: JobDetailSerializer, **errors(400, 404)},
    )
    def get(self, request: Request, number: int) -> Response:
        range_ = parse_range(request.query_params)
        viewer = viewer_of_key(key_of(request))
        job = jobs.jobs(viewer.owned()).filter(pk=number).first()
        if job is None:
            raise Unknown(f"There is no job {number}: GET /api/v1/jobs/ lists them.")
        answer = {
            "job": jobs.rows([job])[0],
            "coverage": jobs.coverage(job),
            "saved": jobs.saved(job),
            "days": jobs.over_time(job, range_),
        }
        return Response(JobDetailSerializer(answer).data)
