"""Targets and settings: what was asked for."""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.urls import path
from django.utils import timezone
from rest_framework import serializers

from catalog import models
from catalog.api.endpoint import Listing, listing
from catalog.api.shapes import Document, ModelAnswer


class TargetAnswer(ModelAnswer):
    description = Document()
    served = serializers.BooleanField(help_text="Whether a live worker explores for it now.")

    class Meta:
        model = models.Target
        fields = ["key", "kind", "arch", "capability", "description", "served", "created_at"]


class SettingAnswer(serializers.ModelSerializer[models.Setting]):
    description = Document()

    class Meta:
        model = models.Setting
        fields = ["key", "threads", "cache", "description"]


@listing(TargetAnswer, name="targets", tag="catalogue")
class TargetsView(Listing[models.Target]):
    """Hardware that was asked for."""

    def get_queryset(self) -> QuerySet[models.Target]:
        served = Q(served_until__isnull=False, served_until__gt=timezone.now())
        return models.Target.objects.annotate(served=served).order_by("-pk")


@listing(SettingAnswer, name="settings", tag="catalogue")
class SettingsView(Listing[models.Setting]):
    """Threads, cache state and numerics."""

    queryset = models.Setting.objects.order_by("-pk")


urlpatterns = [
    path("targets/", TargetsView.as_view(), name="target-list"),
    path("settings/", SettingsView.as_view(), name="setting-list"),
]
