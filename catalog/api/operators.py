"""Operators, and every implementation of one: to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog import models
from catalog.api.describing import OPERATOR, query
from catalog.api.endpoint import Listing, RestView, listing, operation
from catalog.api.implementations import ImplementationAnswer, without_withheld
from catalog.api.shapes import Document, shape
from catalog.best.served import scopes_of
from catalog.errors import RequestError
from catalog.search import Words
from catalog.selectors import known
from catalog.selectors.targets import HERE, target_named

_NAME = re.compile(r"[A-Za-z0-9_.+]{1,100}")


class OperatorAnswer(serializers.ModelSerializer[models.Operator]):
    class Meta:
        model = models.Operator
        fields = ["key", "op_type", "summary", "dtype", "flops", "bytes_moved", "created_at"]


class OperatorDetailAnswer(OperatorAnswer):
    graph = Document()
    figures = shape(known.OperatorUse, "hit_rate")()

    class Meta(OperatorAnswer.Meta):
        fields = [*OperatorAnswer.Meta.fields, "graph", "figures"]


@listing(
    OperatorAnswer,
    name="operators",
    tag="catalogue",
    parameters=[
        query("op_type", "Only this one: Conv, or Conv+Relu where fused."),
        query("dtype", "Only this element type: float32."),
        query(
            "q",
            "What is looked for, in any writing: conv 56x56, matmul(1000,48), fp16, route:tvm, dim>=1024, "
            "or how a key begins. What can find nothing, a route that there is not, is refused.",
            maxLength=100,
        ),
    ],
)
class OperatorsView(Listing[models.Operator]):
    """Operators that the service knows."""

    def get_queryset(self) -> QuerySet[models.Operator]:
        given = self.request.query_params
        names = {name: _name(given, name) for name in ("op_type", "dtype")}
        return known.operators(**names, words=Words.checked(self.text("q")))


class OperatorView(RestView):
    @operation(OperatorDetailAnswer, name="operator", tag="catalogue", parameters=[OPERATOR])
    def get(self, request: Request, key: str) -> models.Operator:
        """One operator: its canonical graph, and how it fares."""
        row = known.operator(key)
        row.figures = known.use_of(row, self.viewer)  # type: ignore[attr-defined]
        return row


@listing(
    ImplementationAnswer,
    name="operator_implementations",
    tag="catalogue",
    parameters=[
        OPERATOR,
        query("target", "Only for this target's key, or `here`."),
        query("setting", "Only for this setting's key."),
        query("route", "Only from this route: onnxruntime, tvm, …"),
    ],
)
class OperatorImplementationsView(Listing[models.Implementation]):
    """Every implementation of one operator."""

    def get_queryset(self) -> QuerySet[models.Implementation]:
        given = self.request.query_params
        rows = known.implementations(scopes_of(self.key.organisation)).filter(
            operator=known.operator(self.kwargs["key"])
        )
        for name, column in (("target", "target__key"), ("setting", "setting__key"), ("route", "route")):
            if wanted := _name(given, name, extra=":"):
                wanted = target_named(wanted).key if wanted == HERE else wanted
                rows = rows.filter(**{column: wanted})
        return rows

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        return without_withheld(self.viewer, super().paginate_queryset(queryset) or [])


def _name(given: Mapping[str, Any], name: str, extra: str = "") -> str:
    """A plain name from the query, or nothing."""
    text = str(given.get(name, ""))
    if text and not _NAME.fullmatch(text.translate({ord(character): None for character in extra})):
        raise RequestError(f"{name} has at most 100 letters, digits and _.+{extra}", where=name)
    return text


urlpatterns = [
    path("operators/", OperatorsView.as_view(), name="operator-list"),
    path("operators/<operator_key:key>", OperatorView.as_view(), name="operator"),
    path(
        "operators/<operator_key:key>/implementations",
        OperatorImplementationsView.as_view(),
        name="operator-implementations",
    ),
]
