"""``POST /failures``: implementations that failed where a job ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import MAX_ID, RestView, operation
from catalog.api.lookup_json import parse_job
from catalog.api.shapes import shape
from catalog.errors import RequestError
from opatlas.errors import printable
from tuning.models import Failing
from tuning.rechecks.reporting import ReportAnswer, ReportedFailure, report_failures

MOST_FAILED, MOST_VERSIONS = 32, 32


@dataclass(frozen=True)
class FailuresAnswer:
    """What becomes of each, in the order given."""

    results: list[ReportAnswer]


class FailedSerializer(serializers.Serializer[Any]):
    implementation = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    artifact = serializers.RegexField(r"^[0-9a-f]{64}$", help_text="The artifact's SHA-256.")
    where = serializers.ChoiceField(choices=Failing.choices)
    error = serializers.CharField(max_length=80, help_text="The error's class.")
    message = serializers.CharField(max_length=300, required=False, allow_blank=True, default="")


class FailuresSerializer(serializers.Serializer[Any]):
    failed = serializers.ListField(child=FailedSerializer(), min_length=1, max_length=MOST_FAILED)
    job = serializers.CharField(required=False, max_length=200, allow_blank=True, default="")
    versions = serializers.DictField(
        child=serializers.CharField(max_length=60),
        required=False,
        help_text='What is installed there: {"torch": "2.13.0"}.',
    )


class FailuresView(RestView):
    @operation(shape(FailuresAnswer), name="failures_report", tag="lookup", takes=FailuresSerializer)
    def post(self, request: Request) -> FailuresAnswer:
        """Report implementations that failed where a job ran.

        A worker of the target proves each again, once a day at most: what fails there is withdrawn for
        everybody, what does not stays. Sent again it says what is known by now. A report is shown to its own
        organisation only."""
        sent = self.sent(FailuresSerializer)
        versions = sent.get("versions", {})
        if len(versions) > MOST_VERSIONS or any(len(name) > 60 for name in versions):
            raise RequestError(f"versions has at most {MOST_VERSIONS} names.", where="versions")
        failed = [
            ReportedFailure(
                one["implementation"],
                one["artifact"],
                one["where"],
                printable(one["error"]),
                printable(one["message"]),
            )
            for one in sent["failed"]
        ]
        told = {printable(name): printable(version) for name, version in versions.items()}
        return FailuresAnswer(report_failures(self.key.organisation, parse_job(sent["job"]), told, failed))


urlpatterns = [path("failures", FailuresView.as_view(), name="failures-report")]
