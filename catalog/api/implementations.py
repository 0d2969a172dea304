"""Implementations: one with its code and all its evidence, and taking one out of service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from catalog import models
from catalog.api.authentication import Needs
from catalog.api.describing import PriceSerializer
from catalog.api.endpoint import RestView, operation
from catalog.api.shapes import Document, KeyField, shape
from catalog.best.machine_code import KeptCode, code_of
from catalog.best.served import scopes_of
from catalog.best.withdrawing import withdraw
from catalog.charging import charging, check_not_withheld
from catalog.selectors import known
from catalog.viewing import APPROVE, Viewer


class MeasurementAnswer(serializers.ModelSerializer[models.Measurement]):
    samples_us = serializers.ListField(child=serializers.FloatField())

    class Meta:
        model = models.Measurement
        exclude = ["implementation"]


class ImplementationAnswer(serializers.ModelSerializer[models.Implementation]):
    operator = KeyField()
    target = KeyField()
    setting = KeyField()
    artifact = serializers.CharField(source="artifact.sha256")
    kind = serializers.CharField(source="artifact.kind")
    candidate = Document()
    versions = Document(source="environment.versions")
    price = PriceSerializer(
        required=False,
        help_text="Comes where it is withheld until it is paid: the candidate and the artifact's address are "
        "left empty.",
    )

    class Meta:
        model = models.Implementation
        fields = [
            "id", "operator", "target", "setting", "scope", "route", "method", "label", "kind", "artifact",
            "candidate", "versions", "build_s", "created_at", "revoked_at", "revoked_reason", "price",
        ]  # fmt: skip


KeptCodeAnswer = shape(KeptCode)


class ImplementationDetailAnswer(ImplementationAnswer):
    """With its schedule and code, and all its evidence, the newest first."""

    machine_code = serializers.SerializerMethodField()
    measurements = MeasurementAnswer(many=True)

    class Meta(ImplementationAnswer.Meta):
        fields = [*ImplementationAnswer.Meta.fields, "schedule", "source", "machine_code", "measurements"]

    @extend_schema_field(KeptCodeAnswer)
    def get_machine_code(self, row: models.Implementation) -> dict[str, Any]:
        return dict(KeptCodeAnswer(code_of(row)).data)


class RevokeSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=300, help_text="Why, in a sentence that people will read.")


class ImplementationView(RestView):
    @operation(ImplementationDetailAnswer, name="implementation", tag="catalogue", fails=[402])
    def get(self, request: Request, number: int) -> models.Implementation:
        """One implementation with its code and all its evidence.

        402 while it is withheld until it is paid, with the price and where to pay."""
        row = known.implementation(number, scopes_of(self.key.organisation))
        check_not_withheld(self.viewer.payer, row)
        return row


class RevokeImplementationView(RestView):
    needs = Needs("approve")

    @operation(
        ImplementationDetailAnswer, name="revoke_implementation", tag="catalogue", takes=RevokeSerializer
    )
    def post(self, request: Request, number: int) -> models.Implementation:
        """Take an implementation out of service.

        It is no longer served from now on, and never leads again; the best falls back to the next that was
        measured. Clients are told with their next lookup. Revoking twice changes nothing."""
        reason = self.sent(RevokeSerializer)["reason"]
        scopes = scopes_of(self.key.organisation)
        row = known.implementation(number, scopes)
        if not self.viewer.may_on(APPROVE, row):
            raise PermissionDenied(
                "What everybody is served is revoked by approvers of the host organisation alone."
            )
        withdraw(models.Implementation.objects.filter(pk=row.pk), reason)
        (shown,) = without_withheld(self.viewer, [known.implementation(number, scopes)])
        return shown


def without_withheld(viewer: Viewer, rows: Sequence[models.Implementation]) -> list[models.Implementation]:
    """These rows; of those that are withheld from the viewer nothing that would do instead of paying."""
    terms = charging().terms_of(viewer.payer, rows)
    for row in rows:
        if row.pk in terms and terms[row.pk].withheld:
            row.candidate, row.schedule, row.source = {}, "", ""
            row.artifact = models.Artifact(sha256="", kind=row.artifact.kind, manifest={})
            row.price = terms[row.pk].as_json()  # type: ignore[attr-defined]
    return list(rows)


urlpatterns = [
    path("implementations/<row_id:number>", ImplementationView.as_view(), name="implementation"),
    path(
        "implementations/<row_id:number>/revoke",
        RevokeImplementationView.as_view(),
        name="revoke-implementation",
    ),
]
