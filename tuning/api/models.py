"""Models over REST: give one, list them, read the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from django.db.models import Count, QuerySet
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import failpoints, models
from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.jobs import CoverageAnswer
from catalog.api.parsers import BoundedParser, parse_json
from catalog.api.shapes import KeyField, ModelAnswer, shape
from catalog.errors import RequestError, TooLarge, Unknown
from catalog.selectors.jobs import Coverage
from opatlas import identity
from tuning import ingest
from tuning.management.commands.add_model import read_dims
from tuning.statistics.models import coverage, saved_us

MAX_ONNX_BYTES = 128 << 20
MAX_LIST_BYTES = 16 << 20

_PLACE = [
    query("target", "A target's t1: key; else a target that is served, else the service's own machine."),
    query("setting", "A setting's s1: key, with a target; else all of the target's cores."),
]
_GIVEN = [
    query("name", "The model's name; a sample's own otherwise.", maxLength=200),
    query("dims", "Sizes of symbolic dimensions: batch:1,sequence:128."),
    OpenApiParameter("as_float32", bool, description="Map an operator list's half precision to float32."),
    *_PLACE,
]


class RawModelParser(BoundedParser):
    """Up to 128 MiB: an ONNX file."""

    media_type = "application/octet-stream"
    max_bytes = MAX_ONNX_BYTES

    def too_large(self) -> TooLarge:
        return TooLarge(
            f"The body is larger than {self.max_bytes >> 20} MiB: export the model with generated constants "
            "for weights (their values are not needed), or use manage.py add_model."
        )


class ListParser(RawModelParser):
    """An operator list or a sample's name, kept as bytes: what is stored is what was given."""

    media_type = "application/json"
    max_bytes = MAX_LIST_BYTES


class ModelRowAnswer(ModelAnswer):
    """A model that was given."""

    operators = serializers.IntegerField(source="operator_count")

    class Meta:
        model = models.Model
        fields = [
            "id", "name", "form", "sha256", "target", "setting", "calls", "operators", "unmapped",
            "hits_before", "created_at",
        ]  # fmt: skip


OperatorRowAnswer = shape(
    ingest.ReportedOperator,
    without=["miss_state"],
    operator=KeyField(),
    summary=serializers.CharField(source="operator.summary"),
    status=serializers.ChoiceField(["hit", "miss", "unsupported", "failed"]),
)


@dataclass(frozen=True)
class GivenModel:
    """What is known of a model now."""

    model: models.Model
    totals: ingest.Totals
    coverage: Coverage
    saved_us: Annotated[float, "Of one run, over the operators that are known."]
    rows: Sequence[ingest.ReportedOperator]


ReportAnswer = shape(GivenModel, using=[ModelRowAnswer, CoverageAnswer], rows=OperatorRowAnswer(many=True))


@listing(ModelRowAnswer)
class ModelsView(Listing[models.Model]):
    """Models that were given, the latest first."""

    needs = Needs("models")
    parser_classes = [RawModelParser, ListParser]

    def get_queryset(self) -> QuerySet[models.Model]:
        return _owned(self.key.organisation).order_by("-created_at", "-pk")

    @operation(
        ReportAnswer,
        parameters=_GIVEN,
        takes={
            "application/octet-stream": OpenApiTypes.BINARY,
            "application/json": {
                "oneOf": [
                    {"type": "array", "items": {"type": "object"}, "minItems": 1},
                    {
                        "type": "object",
                        "properties": {"sample": {"type": "string", "enum": list(ingest.SAMPLES)}},
                    },
                ]
            },
        },
        responses={201: ReportAnswer},
    )
    def post(self, request: Request) -> Response:
        """Give a model: it is taken apart and its operators looked up.

        Send an ONNX file as `application/octet-stream` (weights' values are not needed), or as JSON an
        operator list (`[{"op": "aten.mm.default", "inputs": [...], "count": 3}]`) or a sample (`{"sample":
        "resnet50"}`). What is not known is recorded as misses. The same content given again is the same
        model: 200 in place of 201."""
        data, name = _content(request)
        target, setting = _place(request)
        failpoints.at("upload")
        before = models.Model.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        row = ingest.add_model(
            data,
            name,
            dims=_dims(request),
            organisation=self.key.organisation,
            target=target,
            setting=setting,
            api_key=self.key,
            as_float32=_flag(request, "as_float32"),
        )
        return Response(ReportAnswer(_report(row)).data, status=201 if row.pk > before else 200)


class ModelView(RestView):
    needs = Needs("models")

    @operation(ReportAnswer)
    def get(self, request: Request, pk: int) -> GivenModel:
        """What is known of a model's operators."""
        missing = f"There is no model {pk}: GET /api/v1/models/ lists them."
        return _report(one(_owned(self.key.organisation), pk, missing))


def _owned(organisation: models.Organisation) -> QuerySet[models.Model]:
    rows = models.Model.objects.filter(organisation=organisation)
    return rows.select_related("target", "setting", "organisation").annotate(
        operator_count=Count("operators")
    )


def _report(row: models.Model) -> GivenModel:
    report = ingest.model_report(row)
    row.operator_count = report.totals.operators  # type: ignore[attr-defined]
    return GivenModel(row, report.totals, coverage(report), saved_us(report), report.rows)


def _content(request: Request) -> tuple[bytes, str]:
    """The model's bytes and its name."""
    given: Any = request.data
    data: bytes = given if isinstance(given, bytes) else b""  # an empty body is not parsed at all
    name = request.query_params.get("name", "")
    if request.content_type.startswith("application/json"):
        document = parse_json(data)
        if isinstance(document, dict) and "sample" in document:
            if not isinstance(document["sample"], str) or set(document) != {"sample"}:
                raise RequestError('A sample is asked for as {"sample": "resnet50"}.', where="sample")
            return ingest.sample_graph(document["sample"]), name or document["sample"]
        if not isinstance(document, list | dict):
            raise RequestError("The JSON must be an operator list (records), or name a sample.")
    elif data.lstrip()[:1] in (b"[", b"{"):
        raise RequestError("The body looks like JSON: send it as application/json.")
    if not name:
        raise RequestError("The model needs a name: add ?name=…", where="name")
    return data, name


def _dims(request: Request) -> dict[str, int]:
    text = request.query_params.get("dims", "")
    return read_dims([part.strip() for part in text.split(",") if part.strip()], ":")


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise RequestError(f"{name} must be true or false.", where=name)
    return text in ("true", "1")


def _place(request: Request) -> tuple[Any, Any]:
    """Target and setting, as rows where there are rows: nothing is written before the model is read."""
    target_key, setting_key = request.query_params.get("target"), request.query_params.get("setting")
    if not target_key:
        if setting_key:
            raise RequestError("A setting needs a target: add ?target=t1:…", where="setting")
        return ingest.default_place()
    target = models.Target.objects.filter(key=target_key[:100]).first()
    if target is None:
        raise Unknown("This target is not known: GET /api/v1/targets/ lists them.", where="target")
    hardware = identity.Target.from_json(target.description)
    if not setting_key:
        return target, identity.default_setting(hardware)
    setting = models.Setting.objects.filter(key=setting_key[:100]).first()
    if setting is None:
        raise Unknown("This setting is not known: GET /api/v1/settings/ lists them.", where="setting")
    identity.check_setting(identity.Setting.from_json(setting.description), hardware)
    return target, setting


urlpatterns = [
    path("models/", ModelsView.as_view(), name="api-models"),
    path("models/<int:pk>", ModelView.as_view()),
]
