"""Trials: every candidate that was tried."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from catalog.api.endpoint import Listing, listing
from catalog.api.shapes import ModelAnswer
from tuning.api import filters
from tuning.api.explorations import OPERATOR
from tuning.models import Trial
from tuning.withheld import shown_trials


class TrialAnswer(ModelAnswer):
    """One candidate that was tried, failures included."""

    operator = serializers.CharField(source="exploration.operator.key")
    candidate = serializers.DictField()
    versions = serializers.DictField(
        source="environment.versions", child=serializers.CharField(), allow_null=True
    )
    device = serializers.DictField(
        help_text="What a GPU said while it was timed, and what the copies took that no run contains: inputs "
        "to it (``upload_us``), outputs from it (``download_us``); and what a run took by its own clock, "
        "with warm and with cold caches (``warm_us``, ``cold_us``; ``launch_bound``: most of a run's time "
        "it waits for the host). Empty where the processor computes."
    )

    class Meta:
        model = Trial
        fields = [
            "id", "exploration", "operator", "route", "method", "label", "candidate", "stage", "round",
            "fence", "status", "detail", "median_us", "ratio_to_default", "ratio_low", "ratio_high",
            "max_error", "tolerance", "build_s", "took_s", "tier", "log_tail", "implementation", "versions",
            "device", "worker", "started_at", "created_at",
        ]  # fmt: skip


@listing(
    TrialAnswer, parameters=[OPERATOR, OpenApiParameter("exploration", int, description="Only of this one.")]
)
class TrialsView(Listing[Trial]):
    """Candidates that were tried, the latest first."""

    def get_queryset(self) -> QuerySet[Trial]:
        rows = Trial.objects.filter(self.viewer.shown("exploration__"))
        if operator := filters.key(self.request, "operator"):
            rows = rows.filter(exploration__operator__key=operator)
        if (pk := filters.number(self.request, "exploration")) is not None:
            rows = rows.filter(exploration=pk)
        return rows.select_related("exploration__operator", "environment").order_by("-pk")

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        """A page; what is withheld until it is paid does not show how it was made, nor do the tries that led
        to it, which are made alike."""
        return shown_trials(self.viewer, super().paginate_queryset(queryset) or [])


urlpatterns = [path("trials/", TrialsView.as_view())]
