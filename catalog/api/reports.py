"""``POST /usage``: hits that a client's own cache answered."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.endpoint import MAX_ID, RestView, operation
from catalog.api.lookup_json import MAX_CALLS, parse_job
from catalog.api.lookup_shapes import OPERATOR_KEY
from catalog.conf import MAX_OPERATORS
from catalog.lookup.reporting import CacheReport, record_report
from catalog.usage.journal_line import MOST_LOOKUPS

MAX_USES = 10**9


class UsedSerializer(serializers.Serializer[Any]):
    implementation = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    calls = serializers.FloatField(
        required=False,
        default=1.0,
        min_value=0,
        max_value=MAX_CALLS,
        help_text="How often the job calls it, by what its lookups said.",
    )
    lookups = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_LOOKUPS,
        help_text="How often it was looked up since the last report; left out: as often as it was called.",
    )
    from_neighbour = serializers.BooleanField(
        required=False, default=False, help_text="The answer was marked so: no gain is counted."
    )


class MissedSerializer(serializers.Serializer[Any]):
    operator = serializers.RegexField(
        OPERATOR_KEY, help_text="Its key; one that is not known counts for the job."
    )
    lookups = serializers.IntegerField(min_value=1, max_value=MOST_LOOKUPS)


class AgreedUseSerializer(serializers.Serializer[Any]):
    agreement = serializers.RegexField(r"^agr_[0-9a-f]{32}$")
    uses = serializers.IntegerField(
        min_value=1, max_value=MAX_USES, help_text="Lookups that a cache answered under it."
    )


def _sum(meaning: str) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=MOST_LOOKUPS, help_text=meaning
    )


class ReportedLookupsSerializer(serializers.Serializer[Any]):
    cache = _sum("Of the lookups in `used`: answered by the machine's cache, not by the process's memory.")
    missed = _sum("Lookups that were answered empty without asking the service; those in `missed` too.")


class ReportedPrefetchSerializer(serializers.Serializer[Any]):
    brought = _sum("Related operators that came along with an answer, because they were predicted.")
    used = _sum("Of those, now or earlier: looked up by the process afterwards, each counted once.")
    bytes = _sum("Answers and manifests of those brought.")
    used_bytes = _sum("And of those used.")
    requests = _sum("Lookups sent for such operators alone.")


class UsageReportSerializer(serializers.Serializer[Any]):
    client = serializers.RegexField(
        r"^[0-9a-f]{32}$", help_text="A random number of the client's own: 32 hexadecimal digits."
    )
    sequence = serializers.IntegerField(
        min_value=0, max_value=2**53, help_text="The report's number: one that arrives twice counts once."
    )
    job = serializers.CharField(required=False, max_length=200, allow_blank=True, default="")
    used = serializers.ListField(
        child=UsedSerializer(),
        max_length=MAX_OPERATORS,
        help_text="May be empty beside `lookups` or `prefetched`.",
    )
    agreed = serializers.ListField(
        child=AgreedUseSerializer(),
        required=False,
        default=list,
        max_length=MAX_OPERATORS,
        help_text="Uses of what is charged, by the agreement that a lookup with `spend_limit` gave this job: "
        "charged now, as far as its limit goes.",
    )
    missed = serializers.ListField(
        child=MissedSerializer(),
        required=False,
        default=list,
        max_length=MAX_OPERATORS,
        help_text="Lookups that were answered empty without asking the service: misses of these operators, "
        "in every hit rate, as if the service had been asked.",
    )
    lookups = ReportedLookupsSerializer(required=False, default=dict, help_text="How lookups ended.")
    prefetched = ReportedPrefetchSerializer(
        required=False, default=dict, help_text="What was fetched for later, and what of it was used."
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not any(sent[name] for name in ("used", "agreed", "missed", "lookups", "prefetched")):
            raise serializers.ValidationError({"used": "Nothing is reported: name what was used."})
        return sent


_COLUMNS = {
    "brought": "prefetched",
    "used": "prefetched_used",
    "bytes": "prefetched_bytes",
    "used_bytes": "prefetched_used_bytes",
    "requests": "prefetch_requests",
}
"""Where what a report says of prefetching is kept (:class:`catalog.models.JobCacheDay`)."""


class UsageReportAnswer(serializers.Serializer[Any]):
    counted = serializers.IntegerField(
        help_text="Of the implementations and agreements named; what is charged without an agreement of the "
        "job's, gone or not to be seen is not counted."
    )
    repeated = serializers.BooleanField(help_text="It was counted when it came before.")
    left_micros = serializers.IntegerField(
        required=False,
        help_text="Comes where agreed uses were charged: what the job may still spend under them.",
    )


class UsageReportView(RestView):
    @operation(UsageReportAnswer, name="usage_report", tag="lookup", takes=UsageReportSerializer)
    def post(self, request: Request) -> dict[str, Any]:
        """Report what a client's own cache answered.

        Every lookup that a cache answered is a hit, of its operator and of this job; every one that it knew
        to be in vain a miss. Uses under an agreement are charged. A report is named by the client's number
        and its own: repeating one (after an answer that got lost) changes nothing."""
        sent = self.sent(UsageReportSerializer)
        used: dict[int, float] = {}
        found: dict[int, int] = {}
        for item in sent["used"]:
            number, calls = item["implementation"], item["calls"]
            used[number] = used.get(number, 0.0) + calls
            found[number] = min(
                found.get(number, 0) + item.get("lookups", max(round(calls), 1)), MOST_LOOKUPS
            )
        job = parse_job(sent["job"])
        lookups, along = sent["lookups"], sent["prefetched"]
        others = {column: along.get(name, 0) for name, column in _COLUMNS.items()}
        others["unasked_misses"] = lookups.get("missed", 0)
        near = {item["implementation"] for item in sent["used"] if item["from_neighbour"]}
        agreed: dict[str, int] = {}
        for item in sent["agreed"]:
            agreed[item["agreement"]] = min(agreed.get(item["agreement"], 0) + item["uses"], MAX_USES)
        missed: dict[str, int] = {}
        for item in sent["missed"]:
            missed[item["operator"]] = min(missed.get(item["operator"], 0) + item["lookups"], MOST_LOOKUPS)
        report = CacheReport(
            sent["client"],
            sent["sequence"],
            used,
            found,
            lookups.get("cache", 0),
            others,
            near,
            agreed,
            missed,
        )
        counted = record_report(self.key.organisation, job, report, self.key.prefix)
        if counted is None:
            return {"counted": 0, "repeated": True}
        left = {"left_micros": counted.left_micros} if counted.left_micros is not None else {}
        return {"counted": counted.implementations, "repeated": False, **left}


urlpatterns = [path("usage", UsageReportView.as_view(), name="usage-report")]
