"""Shapes of what the kernels' REST interface takes and answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tuning.routes.manual.flags import ALLOWED, LANGUAGES


class EditSerializer(serializers.Serializer[Any]):
    """A version to submit: C or C++ source, the operators that it serves, and whose it is."""

    source = serializers.CharField(  # type: ignore[assignment]
        trim_whitespace=False, help_text="At most 128 KiB; defines opatlas_run."
    )
    language = serializers.CharField(default="c", max_length=5, help_text=f"One of {', '.join(LANGUAGES)}.")
    pattern = serializers.DictField(help_text="Which operators it serves: docs/kernels.md.")
    flags = serializers.ListField(
        child=serializers.CharField(max_length=60), default=list, help_text=f"Of {', '.join(ALLOWED)}."
    )
    author = serializers.CharField(max_length=200)
    licence = serializers.CharField(max_length=60, help_text="An SPDX expression: MIT, Apache-2.0.")
    description = serializers.CharField(max_length=500, default="", allow_blank=True)
    example = serializers.CharField(
        max_length=80, default="", allow_blank=True, help_text="Key of an operator to evaluate it on."
    )


class SubmissionSerializer(EditSerializer):
    """A kernel to submit, by name; a name that there is makes a new version of it."""

    name = serializers.CharField(max_length=80)


class KernelReasonSerializer(serializers.Serializer[Any]):
    """Why: kept in the history, and read by people."""

    reason = serializers.CharField(max_length=500)


class KernelSerializer(serializers.Serializer[Any]):
    """A kernel and where its newest version stands."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    organisation = serializers.CharField(source="organisation.name")
    created_by = serializers.CharField(source="created_by.username")
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField(source="latest_number")
    state = serializers.CharField(source="latest_state")
    changed_at = serializers.DateTimeField(source="latest_at")


class VersionSerializer(serializers.Serializer[Any]):
    """One version, without its source."""

    id = serializers.IntegerField()
    kernel = serializers.IntegerField(source="kernel_id")
    name = serializers.CharField(source="kernel.name")
    version = serializers.IntegerField(source="number")
    language = serializers.CharField()
    source_sha256 = serializers.CharField()
    pattern = serializers.DictField()
    flags = serializers.ListField(child=serializers.CharField())
    author = serializers.CharField()
    licence = serializers.CharField()
    example = serializers.CharField(source="example.key", allow_null=True, default=None)
    state = serializers.CharField()
    state_reason = serializers.CharField(allow_blank=True)
    submitted_by = serializers.CharField(source="submitted_by.username")
    submitted_at = serializers.DateTimeField()
    decided_by = serializers.CharField(source="decided_by.username", allow_null=True, default=None)
    decided_at = serializers.DateTimeField(allow_null=True)
    approved_at = serializers.DateTimeField(allow_null=True)
    withdrawn_at = serializers.DateTimeField(allow_null=True)


class SourceSerializer(VersionSerializer):
    """One version with its source."""

    source = serializers.CharField()  # type: ignore[assignment]


class TimeSerializer(serializers.Serializer[Any]):
    """One line of a comparison: the kernel, the default, the incumbent or another route's best."""

    what = serializers.CharField()
    method = serializers.CharField()
    route = serializers.CharField(allow_blank=True)
    label = serializers.CharField()  # type: ignore[assignment]
    median_us = serializers.FloatField()
    ratio_to_default = serializers.FloatField()
    ratio_low = serializers.FloatField()
    ratio_high = serializers.FloatField()


class EvaluationSerializer(serializers.Serializer[Any]):
    """A version tried on one operator. Times in µs; ratios are default ÷ candidate."""

    operator = serializers.CharField(source="operator.key")
    summary = serializers.CharField(source="operator.summary")
    target = serializers.CharField(source="target.key")
    setting = serializers.CharField(source="setting.key")
    state = serializers.CharField()
    doing = serializers.CharField(allow_blank=True)
    status = serializers.CharField(allow_blank=True)
    detail = serializers.CharField(allow_blank=True)
    log_tail = serializers.CharField(allow_blank=True)
    max_error = serializers.FloatField(allow_null=True)
    tolerance = serializers.FloatField(allow_null=True)
    median_us = serializers.FloatField(allow_null=True)
    default_us = serializers.FloatField(allow_null=True)
    ratio_to_default = serializers.FloatField(allow_null=True)
    ratio_low = serializers.FloatField(allow_null=True)
    ratio_high = serializers.FloatField(allow_null=True)
    incumbent_route = serializers.CharField(allow_blank=True)
    incumbent_label = serializers.CharField(allow_blank=True)
    incumbent_us = serializers.FloatField(allow_null=True)
    incumbent_ratio = serializers.FloatField(allow_null=True)
    incumbent_low = serializers.FloatField(allow_null=True)
    incumbent_high = serializers.FloatField(allow_null=True)
    times = TimeSerializer(many=True)
    build_s = serializers.FloatField(allow_null=True)
    tier = serializers.CharField(allow_blank=True)
    worker = serializers.CharField(allow_blank=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class StandingSerializer(serializers.Serializer[Any]):
    """How an approved version does on one operator; rank 0 is the winner."""

    operator = serializers.CharField(source="operator.key")
    summary = serializers.CharField(source="operator.summary")
    target = serializers.CharField(source="target.key")
    setting = serializers.CharField(source="setting.key")
    status = serializers.CharField()
    detail = serializers.CharField(allow_blank=True)
    rank = serializers.IntegerField(allow_null=True)
    median_us = serializers.FloatField(allow_null=True)
    ratio_to_default = serializers.FloatField(allow_null=True)
    winner_label = serializers.CharField(allow_blank=True)
    winner_route = serializers.CharField(allow_blank=True)
    winner_us = serializers.FloatField(allow_null=True)


class EvidenceSerializer(serializers.Serializer[Any]):
    """All that a decision rests on."""

    version = VersionSerializer()
    diff = serializers.CharField(allow_blank=True, help_text="Unified, against the version before.")
    evaluations = EvaluationSerializer(many=True)
    standings = StandingSerializer(many=True)


class DecisionSerializer(serializers.Serializer[Any]):
    """One step of the history."""

    version = serializers.IntegerField(source="version.number")
    step = serializers.CharField()
    who = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
