"""``POST /explain``: why a lookup answers as it does."""

from __future__ import annotations

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api import lookup_json
from catalog.api.endpoint import RestView, operation
from catalog.api.lookup_shapes import AcceptsSerializer, AskedSerializer, SettingField, TargetField
from catalog.api.parsers import BoundedJSONParser
from catalog.api.shapes import shape
from catalog.errors import RequestError
from catalog.models import Operator
from opatlas import identity
from tuning.statistics.explaining import ExplainRequest, Explanation, explain


class ExplainRequestSerializer(serializers.Serializer[Any]):
    target = TargetField()
    setting = SettingField(required=False)
    accepts = AcceptsSerializer(required=False)
    operator = AskedSerializer()


class ExplainView(RestView):
    parser_classes = [BoundedJSONParser]

    @operation(shape(Explanation), name="explain", tag="lookup", takes=ExplainRequestSerializer)
    def post(self, request: Request) -> Explanation:
        """Explain what a lookup of one operator answers, and which known entry is nearest to it.

        Takes what a lookup takes, with one `operator`; records nothing."""
        body = dict(request.data) if isinstance(request.data, dict) else {}
        if "operator" not in body:
            raise RequestError("Name the operator as a lookup does.", where="operator")
        parsed = lookup_json.parse_lookup(
            {name: value for name, value in body.items() if name != "operator"}
            | {"operators": [body["operator"]]}
        )
        (asked,) = parsed.operators
        target, setting = lookup_json.resolve(parsed)
        row = Operator.objects.filter(key=asked.key).first()
        graph = identity.Operator.from_json(row.graph) if row is not None else asked.read_graph()
        return explain(
            ExplainRequest(asked.key, graph, target, setting, self.key.organisation, parsed.accepts)
        )


urlpatterns = [path("explain", ExplainView.as_view(), name="explain")]
