"""``POST /usage``: hits that a client's own cache answered."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import MAX_ID, RestView, operation
from catalog.api.lookup_json import MAX_CALLS, parse_job
from catalog.conf import MAX_OPERATORS
from catalog.lookup.reporting import record_report


class UsedSerializer(serializers.Serializer[Any]):
    implementation = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    calls = serializers.FloatField(
        required=False,
        default=1.0,
        min_value=0,
        max_value=MAX_CALLS,
        help_text="How often it was looked up since the last report.",
    )


class UsageReportSerializer(serializers.Serializer[Any]):
    client = serializers.RegexField(
        r"^[0-9a-f]{32}$", help_text="A random number of the client's own: 32 hexadecimal digits."
    )
    sequence = serializers.IntegerField(
        min_value=0, max_value=2**53, help_text="The report's number: one that arrives twice counts once."
    )
    job = serializers.CharField(required=False, max_length=200, allow_blank=True, default="")
    used = serializers.ListField(child=UsedSerializer(), min_length=1, max_length=MAX_OPERATORS)


class UsageReportAnswer(serializers.Serializer[Any]):
    counted = serializers.IntegerField(
        help_text="Of the implementations named; what is charged, gone or not to be seen is not counted."
    )
    repeated = serializers.BooleanField(help_text="It was counted when it came before.")


class UsageReportView(RestView):
    @operation(UsageReportAnswer, name="usage_report", tag="lookup", takes=UsageReportSerializer)
    def post(self, request: Request) -> dict[str, Any]:
        """Report what a client's own cache answered.

        Each implementation counts as one hit of this job, with its calls. A report is named by the client's
        number and its own: repeating one (after an answer that got lost) changes nothing."""
        sent = self.sent(UsageReportSerializer)
        used: dict[int, float] = {}
        for item in sent["used"]:
            used[item["implementation"]] = used.get(item["implementation"], 0.0) + item["calls"]
        job = parse_job(sent["job"])
        counted = record_report(self.key.organisation, job, sent["client"], sent["sequence"], used)
        return {"counted": counted or 0, "repeated": counted is None}


urlpatterns = [path("usage", UsageReportView.as_view(), name="usage-report")]
