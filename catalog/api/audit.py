"""The audit log of the key's organisation: who did what."""

from __future__ import annotations

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from catalog import models
from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, listing
from catalog.api.shapes import ModelAnswer
from catalog.people import audited
from catalog.timerange import RANGES, parse_range


class AuditAnswer(ModelAnswer):
    """Something that was done."""

    organisation = serializers.CharField(source="organisation.name", default="", read_only=True)

    class Meta:
        model = models.AuditEntry
        fields = ["id", "at", "actor", "action", "subject", "organisation", "detail", "request_id", "address"]


@listing(
    AuditAnswer,
    name="audit",
    tag="accounts",
    parameters=[
        query("actor", "Only whose name contains this.", maxLength=100),
        query("action", "Only where what was done, or to what, contains this.", maxLength=100),
        OpenApiParameter("range", str, enum=list(RANGES), description="How far back; 7d."),
        query("since", "From here on, ISO 8601."),
        query("until", "Before this, ISO 8601."),
    ],
)
class AuditLogView(Listing[models.AuditEntry]):
    """The audit log, the latest first."""

    needs = Needs("admin")

    def get_queryset(self) -> QuerySet[models.AuditEntry]:
        texts = {name: self.text(name) for name in ("actor", "action")}
        during = parse_range(self.request.query_params)
        return audited.narrowed(audited.entries(self.viewer), **texts, during=during)


urlpatterns = [path("audit/", AuditLogView.as_view(), name="audit-list")]
