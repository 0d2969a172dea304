"""Shapes of what tuning's REST interface answers and takes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from catalog.models import Miss
from tuning.models import Exploration, Pause, State, Trial, Worker
from tuning.priority import PRIORITIES, Priority
from tuning.queue.permissions import MAX_AT_ONCE, MISS_VERBS, VERBS


class _KeyedSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """Rows about one (operator, target, setting), named by their keys."""

    operator = serializers.CharField(source="operator.key", read_only=True)
    summary = serializers.CharField(source="operator.summary", read_only=True)
    target = serializers.CharField(source="target.key", read_only=True)
    setting = serializers.CharField(source="setting.key", read_only=True)


class ExplorationSerializer(_KeyedSerializer):
    """Where an exploration stands."""

    stage_name = serializers.CharField(source="get_stage_display", read_only=True)

    class Meta:
        model = Exploration
        fields = [
            "id", "operator", "summary", "target", "setting", "scope", "capability", "stage", "stage_name",
            "priority", "worth", "calls", "state", "reason", "doing", "steps_done", "steps_total", "tries",
            "max_tries", "error", "round", "tuning_slices", "max_tuning_slices", "expected_gain", "spent_s",
            "lease_owner",
            "lease_expires_at", "fence", "asked_at", "first_result_at", "created_at", "updated_at",
            "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class TrialSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """One candidate that was tried, failures included."""

    operator = serializers.CharField(source="exploration.operator.key", read_only=True)
    candidate = serializers.SerializerMethodField()
    versions = serializers.SerializerMethodField()

    class Meta:
        model = Trial
        fields = [
            "id", "exploration", "operator", "route", "method", "label", "candidate", "stage", "round",
            "fence", "status", "detail", "median_us", "ratio_to_default", "ratio_low", "ratio_high",
            "max_error", "tolerance", "build_s", "took_s", "tier", "log_tail", "implementation", "versions",
            "worker", "started_at", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_candidate(self, trial: Trial) -> dict[str, Any]:
        return trial.candidate

    def get_versions(self, trial: Trial) -> dict[str, str] | None:
        return trial.environment.versions if trial.environment else None


class WorkerSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    """A worker, what it can do and what it does."""

    target = serializers.CharField(source="target.key", read_only=True)
    capability = serializers.CharField(source="target.capability", read_only=True)
    alive = serializers.BooleanField(read_only=True)
    routes = serializers.DictField(read_only=True)

    class Meta:
        model = Worker
        fields = [
            "name", "host", "pid", "target", "capability", "routes", "tier", "memory_bytes", "doing", "warm",
            "alive", "started_at", "last_seen_at", "stopped_at",
        ]  # fmt: skip
        read_only_fields = fields


class MissSerializer(_KeyedSerializer):
    """What was asked for and is not known."""

    class Meta:
        model = Miss
        fields = [
            "id", "operator", "summary", "target", "setting", "scope", "count", "calls", "related", "state",
            "reason", "first_asked_at", "last_asked_at",
        ]  # fmt: skip
        read_only_fields = fields


class PauseSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
    class Meta:
        model = Pause
        fields = ["capability", "reason", "created_at"]
        read_only_fields = fields


class ReasonSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """Why, in a sentence that people will read."""

    reason = serializers.CharField(max_length=300, required=False, default="", allow_blank=True)


class PrioritySerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The explore queue to move to; 0 is the most urgent."""

    priority = serializers.ChoiceField(choices=PRIORITIES)


class QueueSerializer(ReasonSerializer):
    """Which queues: a capability such as ``cpu.zen3``, or ``*`` for all."""

    capability = serializers.CharField(max_length=80, required=False, default="*")


class QueuesSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The queues after a change."""

    paused = PauseSerializer(many=True)


class AccuracySerializer(serializers.Serializer):  # type: ignore[type-arg]
    """Expected against gained, over ``count`` slices of tuning; gains and errors are shares of the time."""

    count = serializers.IntegerField()
    mean_expected = serializers.FloatField()
    mean_gained = serializers.FloatField()
    mean_absolute_error = serializers.FloatField()
    rank_correlation = serializers.FloatField(allow_null=True, help_text="Spearman's; null where undefined.")


class TuningAccuracySerializer(serializers.Serializer):  # type: ignore[type-arg]
    """How well the expectations held that tuning's order goes by."""

    overall = AccuracySerializer(allow_null=True, help_text="Null while nothing was tuned.")
    by_op_type = serializers.DictField(child=AccuracySerializer())


def _ids() -> serializers.ListField:
    one = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    return serializers.ListField(child=one, min_length=1, max_length=MAX_AT_ONCE)


class ExploreSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """The explore queue that a miss is sent to; 0 is the most urgent."""

    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, default=Priority.HIGH)


class BulkSerializer(ReasonSerializer):
    """One thing to do to several explorations."""

    ids = _ids()
    action = serializers.ChoiceField(choices=VERBS)
    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["action"] == "prioritise" and attrs["priority"] is None:
            raise serializers.ValidationError({"priority": "To prioritise takes a priority from 0 to 3."})
        return attrs


class MissBulkSerializer(ReasonSerializer):
    """One thing to do to several misses."""

    ids = _ids()
    action = serializers.ChoiceField(choices=MISS_VERBS)
    priority = serializers.ChoiceField(choices=PRIORITIES, required=False, default=Priority.HIGH)


class RefusedSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One row to which nothing was done, and why."""

    id = serializers.IntegerField()
    error = serializers.CharField()


class DoneSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What came of an order for several rows."""

    done = serializers.ListField(child=serializers.IntegerField())
    refused = RefusedSerializer(many=True)


class LineSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One entry of a log."""

    at = serializers.DateTimeField()
    level = serializers.ChoiceField(choices=["info", "warn", "error"])
    source = serializers.CharField()  # type: ignore[assignment]
    text = serializers.CharField()


class LogSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """An exploration's latest entries, the oldest of them first."""

    state = serializers.ChoiceField(choices=State.choices)
    doing = serializers.CharField()
    lines = LineSerializer(many=True)
