"""Environments over REST: which are declared, declaring another, and what became of the bests."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors
from catalog.best.served import scopes_of
from catalog.errors import RequestError, Unknown
from catalog.models import Target
from catalog.viewing import OPERATE, viewer_of_key
from tuning.environments import declaring, revalidation
from tuning.environments import known as environments
from tuning.models import Revalidation, Worker


class OfferSerializer(serializers.Serializer[Any]):
    """An environment that workers bring, or that was declared before."""

    environment = serializers.CharField(help_text="Its digest: what declaring it names.")
    versions = serializers.DictField(child=serializers.CharField())
    workers = serializers.ListField(child=serializers.CharField(), help_text="Live ones that bring it.")
    declared = serializers.BooleanField()
    difference = serializers.CharField(help_text="From the declared one, in words.")


class RouteEnvironmentsSerializer(serializers.Serializer[Any]):
    """A route on a target, and the environments that it has there."""

    target = serializers.CharField(source="target.key")
    capability = serializers.CharField(source="target.capability")
    route = serializers.CharField()
    environments = OfferSerializer(many=True, source="offers")
    revalidation = serializers.IntegerField(source="open.pk", default=None, allow_null=True)


class DeclareSerializer(serializers.Serializer[Any]):
    """Either ``worker``, with the routes to take from it (all, if left out), or a target, a route and one of
    its environments."""

    worker = serializers.CharField(max_length=100, required=False)
    routes = serializers.ListField(child=serializers.CharField(max_length=40), required=False, min_length=1)
    target = serializers.RegexField(r"^t1:[0-9a-f]{64}$", required=False)
    route = serializers.CharField(max_length=40, required=False)
    environment = serializers.RegexField(r"^[0-9a-f]{64}$", required=False)


class RevalidatedSerializer(serializers.Serializer[Any]):
    """One best that is measured again. Ratios are default ÷ implementation."""

    operator = serializers.CharField(source="exploration.operator.key")
    summary = serializers.CharField(source="exploration.operator.summary")
    route = serializers.CharField()
    verdict = serializers.CharField()
    ratio_before = serializers.FloatField()
    ratio_after = serializers.FloatField(allow_null=True)
    detail = serializers.CharField()


class RevalidationSerializer(serializers.ModelSerializer[Revalidation]):
    """Another environment was declared: what came of measuring its bests again."""

    target = serializers.CharField(source="target.key", read_only=True)
    before = serializers.DictField(source="before.versions", allow_null=True, default=None, read_only=True)
    after = serializers.DictField(source="after.versions", read_only=True)
    summary = serializers.SerializerMethodField()
    total = serializers.SerializerMethodField()
    waiting = serializers.SerializerMethodField()

    class Meta:
        model = Revalidation
        fields = [
            "id", "target", "route", "before", "after", "asked_by", "asked_at", "finished_at", "superseded",
            "summary", "total", "waiting",
        ]  # fmt: skip
        read_only_fields = fields

    def get_summary(self, row: Revalidation) -> str:
        """``7 re-measured, 2 better, 1 worse, 0 failed``."""
        return str(self._report(row))

    def get_total(self, row: Revalidation) -> int:
        return self._report(row).total

    def get_waiting(self, row: Revalidation) -> int:
        return self._report(row).waiting

    def _report(self, row: Revalidation) -> revalidation.RevalidationReport:
        """Asked of the database once for each row."""
        if not hasattr(row, "counted"):
            row.counted = revalidation.report(row, limit=0, scopes=self._scopes())  # type: ignore[attr-defined]
        return row.counted  # type: ignore[attr-defined, no-any-return]

    def _scopes(self) -> tuple[str, ...]:
        return scopes_of(key_of(self.context["request"]).organisation)


class RevalidationDetailSerializer(RevalidationSerializer):
    bests = serializers.SerializerMethodField()

    class Meta(RevalidationSerializer.Meta):
        fields = [*RevalidationSerializer.Meta.fields, "bests"]
        read_only_fields = fields

    @extend_schema_field(RevalidatedSerializer(many=True))
    def get_bests(self, row: Revalidation) -> Any:
        """What failed or became worse comes first; at most 500."""
        rows = revalidation.report(row, limit=500, scopes=self._scopes()).rows
        return RevalidatedSerializer(rows, many=True).data


class Environments(APIView):
    @extend_schema(
        operation_id="environments",
        tags=["environments"],
        summary="Which versions count, by target and route",
        responses={200: RouteEnvironmentsSerializer(many=True), **errors()},
    )
    def get(self, request: Request) -> Response:
        return Response(RouteEnvironmentsSerializer(environments.route_environments(), many=True).data)


class DeclareEnvironment(APIView):
    required_scope = "operate"

    @extend_schema(
        operation_id="declare_environment",
        tags=["environments"],
        summary="Let another environment's evidence move the bests",
        description=(
            "The bests are served on, measured again in the background and replaced, better or worse. What "
            "had been measured in this environment before is served at once: declaring the previous one "
            "rolls back. The answer has one entry for each route that changed."
        ),
        request=DeclareSerializer,
        responses={200: RevalidationSerializer(many=True), **errors(400, 404)},
    )
    def post(self, request: Request) -> Response:
        if not viewer_of_key(key_of(request)).may(OPERATE):
            raise PermissionDenied("Environments are declared for everybody: by the host organisation alone.")
        serializer = DeclareSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        rows = _declare(serializer.validated_data, f"key {key_of(request).prefix}")
        return Response(RevalidationSerializer(rows, many=True, context={"request": request}).data)


class Revalidations(generics.ListAPIView[Revalidation]):
    """Declarations, the latest first, and what came of them."""

    serializer_class = RevalidationSerializer
    queryset = Revalidation.objects.select_related("target", "before", "after").order_by("-pk")


class RevalidationDetail(generics.RetrieveAPIView[Revalidation]):
    """One declaration with its bests: what failed or became worse first."""

    serializer_class = RevalidationDetailSerializer
    queryset = Revalidation.objects.select_related("target", "before", "after")


def _declare(asked: dict[str, Any], asked_by: str) -> list[Revalidation]:
    if "worker" in asked:
        worker = Worker.objects.select_related("target").filter(name=asked["worker"]).first()
        if worker is None:
            raise Unknown("There is no worker by this name.", where="worker")
        return declaring.declare_worker(worker, asked_by, asked.get("routes"))
    if not {"target", "route", "environment"} <= asked.keys():
        raise RequestError("Name a worker, or a target, a route and an environment.")
    target = Target.objects.filter(key=asked["target"]).first()
    if target is None:
        raise Unknown("This target is not known.", where="target")
    row = declaring.declare_known(target, asked["route"], asked["environment"], asked_by)
    return [row] if row else []
