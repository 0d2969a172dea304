"""Operators, their implementations, targets and settings: to read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.db.models import BooleanField, Case, QuerySet, Value, When
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import models
from catalog.api import serializers
from catalog.api.authentication import key_of
from catalog.api.describing import errors, path, query
from catalog.best.served import scopes_of
from catalog.best.withdrawing import withdraw
from catalog.charging import charging, check_not_withheld
from catalog.errors import RequestError
from catalog.selectors import known
from catalog.viewing import APPROVE, viewer_of_key

_NAME = re.compile(r"[A-Za-z0-9_.+]{1,100}")
_KEY = path("key", "^o1:[0-9a-f]{64}$", "The operator's key.")


class OperatorListView(ListAPIView[models.Operator]):
    serializer_class = serializers.OperatorSerializer
    queryset = models.Operator.objects.none()

    @extend_schema(
        operation_id="operators",
        tags=["catalogue"],
        summary="Operators that the service knows",
        parameters=[
            query("op_type", "Only this one: Conv, or Conv+Relu where fused."),
            query("dtype", "Only this element type: float32."),
            query("q", "Words, each in the summary or beginning the key.", maxLength=100),
        ],
        responses={200: serializers.OperatorSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.Operator]:
        given = self.request.query_params
        text = given.get("q", "")
        if len(text) > 100 or "\0" in text:
            raise RequestError("q is at most 100 characters, without NUL.", where="q")
        return known.operators(op_type=_name(given, "op_type"), dtype=_name(given, "dtype"), text=text)


class OperatorView(APIView):
    @extend_schema(
        operation_id="operator",
        tags=["catalogue"],
        summary="One operator: its canonical graph, and how it fares",
        parameters=[_KEY],
        responses={200: serializers.OperatorDetailSerializer, **errors(404)},
    )
    def get(self, request: Request, key: str) -> Response:
        row = known.operator(key)
        row.figures = known.use_of(row, viewer_of_key(key_of(request)))  # type: ignore[attr-defined]
        return Response(serializers.OperatorDetailSerializer(row).data)


class OperatorImplementationsView(ListAPIView[models.Implementation]):
    serializer_class = serializers.ImplementationSerializer
    queryset = models.Implementation.objects.none()

    @extend_schema(
        operation_id="operator_implementations",
        tags=["catalogue"],
        summary="Every implementation of one operator",
        parameters=[
            _KEY,
            query("target", "Only for this target's key."),
            query("setting", "Only for this setting's key."),
            query("route", "Only from this route: onnxruntime, tvm, …"),
        ],
        responses={200: serializers.ImplementationSerializer(many=True), **errors(400, 404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.Implementation]:
        given = self.request.query_params
        query = known.implementations(scopes_of(key_of(self.request).organisation)).filter(
            operator=known.operator(self.kwargs["key"])
        )
        for name, column in (("target", "target__key"), ("setting", "setting__key"), ("route", "route")):
            if wanted := _name(given, name, extra=":"):
                query = query.filter(**{column: wanted})
        return query

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        return _without_withheld(self.request, super().paginate_queryset(queryset) or [])


class ImplementationView(APIView):
    @extend_schema(
        operation_id="implementation",
        tags=["catalogue"],
        summary="One implementation with its code and all its evidence",
        description="402 while it is withheld until it is paid, with the price and where to pay.",
        responses={200: serializers.ImplementationDetailSerializer, **errors(402, 404)},
    )
    def get(self, request: Request, number: int) -> Response:
        key = key_of(request)
        row = known.implementation(number, scopes_of(key.organisation))
        check_not_withheld(viewer_of_key(key).payer, row)
        return Response(serializers.ImplementationDetailSerializer(row).data)


class RevokeImplementationView(APIView):
    required_scope = "approve"

    @extend_schema(
        operation_id="revoke_implementation",
        tags=["catalogue"],
        summary="Take an implementation out of service",
        description=(
            "It is no longer served from now on, and never leads again; the best falls back to the next that "
            "was measured. Clients are told with their next lookup. Revoking twice changes nothing."
        ),
        request=serializers.RevokeSerializer,
        responses={200: serializers.ImplementationDetailSerializer, **errors(400, 404)},
    )
    def post(self, request: Request, number: int) -> Response:
        asked = serializers.RevokeSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        scopes = scopes_of(key_of(request).organisation)
        row = known.implementation(number, scopes)
        if not viewer_of_key(key_of(request)).may_on(APPROVE, row):
            raise PermissionDenied(
                "What everybody is served is revoked by approvers of the host organisation alone."
            )
        withdraw(models.Implementation.objects.filter(pk=row.pk), asked.validated_data["reason"])
        (shown,) = _without_withheld(request, [known.implementation(number, scopes)])
        return Response(serializers.ImplementationDetailSerializer(shown).data)


class TargetListView(ListAPIView[models.Target]):
    serializer_class = serializers.TargetSerializer
    queryset = models.Target.objects.none()

    @extend_schema(
        operation_id="targets",
        tags=["catalogue"],
        summary="Hardware that was asked for",
        responses={200: serializers.TargetSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.Target]:
        served = Case(
            When(served_until__gt=timezone.now(), then=Value(True)),
            default=Value(False),
            output_field=BooleanField(),
        )
        return models.Target.objects.annotate(served=served).order_by("-pk")


class SettingListView(ListAPIView[models.Setting]):
    serializer_class = serializers.SettingSerializer
    queryset = models.Setting.objects.order_by("-pk")

    @extend_schema(
        operation_id="settings",
        tags=["catalogue"],
        summary="Threads, cache state and numerics",
        responses={200: serializers.SettingSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


def _without_withheld(request: Request, rows: Sequence[models.Implementation]) -> list[models.Implementation]:
    """These rows; of those that are withheld from the key nothing that would do instead of paying."""
    terms = charging().terms_of(viewer_of_key(key_of(request)).payer, rows)
    for row in rows:
        if row.pk in terms and terms[row.pk].withheld:
            row.candidate, row.schedule, row.source = {}, "", ""
            row.artifact = models.Artifact(sha256="", kind=row.artifact.kind)
            row.price = terms[row.pk].as_json()  # type: ignore[attr-defined]
    return list(rows)


def _name(given: Any, name: str, extra: str = "") -> str:
    """A plain name from the query, or nothing."""
    text = str(given.get(name, ""))
    if text and not _NAME.fullmatch(text.translate({ord(character): None for character in extra})):
        raise RequestError(f"{name} has at most 100 letters, digits and _.+{extra}", where=name)
    return text
