"""Models over REST: give one, list them, read the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from catalog.api.parsers import parse_json
from catalog.api.shapes import KeyField, ModelAnswer, shape
from catalog.errors import RequestError, Unknown
from catalog.selectors.jobs import Coverage
from catalog.selectors.targets import target_named
from opatlas import identity
from tuning import ingest
from tuning.api.uploads import WAITING, Given, UploadAnswer, UploadParser, answer_upload, body_of, wait_named
from tuning.management.commands.add_model import read_dims
from tuning.statistics.models import coverage, saved_us
from tuning.uploads.intake import UploadWish
from tuning.uploads.models import Upload, UploadKind

MAX_ONNX_BYTES = 128 << 20
MAX_LIST_BYTES = 16 << 20
MAX_SAMPLE_BYTES = 4096

_PLACE = [
    query(
        "target",
        "A target's t1: key, or `here`: that of the worker seen last; else a target that is served, else the "
        "service's own machine.",
    ),
    query("setting", "A setting's s1: key, with a target; else all of the target's cores."),
]
_GIVEN = [
    query("name", "The model's name; a sample's own otherwise.", maxLength=200),
    query("dims", "Sizes of symbolic dimensions: batch:1,sequence:128."),
    OpenApiParameter("as_float32", bool, description="Map an operator list's half precision to float32."),
    *_PLACE,
    *WAITING,
]


class RawModelParser(UploadParser):
    """Up to 128 MiB: an ONNX file."""

    media_type = "application/octet-stream"
    max_bytes = MAX_ONNX_BYTES


class ListParser(UploadParser):
    """An operator list or a sample's name: what is stored is what was given."""

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
    status=serializers.ChoiceField(["hit", "withheld", "miss", "unsupported", "failed"]),
)


@dataclass(frozen=True)
class GivenModel:
    """What is known of a model now."""

    model: models.Model
    totals: ingest.Totals
    coverage: Coverage
    saved_us: Annotated[float, "Of one run, over the operators that are known."]
    rows: Sequence[ingest.ReportedOperator]


_TotalsAnswer = shape(ingest.Totals, "speedup")
ReportAnswer = shape(
    GivenModel, using=[ModelRowAnswer, CoverageAnswer, _TotalsAnswer], rows=OperatorRowAnswer(many=True)
)


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
        responses={201: ReportAnswer, 202: UploadAnswer},
        fails=(408, 429),
    )
    def post(self, request: Request) -> Response:
        """Give a model: it is taken apart and its operators looked up.

        Send an ONNX file as `application/octet-stream` (weights' values are not needed), or as JSON an
        operator list (`[{"op": "aten.mm.default", "inputs": [...], "count": 3}]`) or a sample (`{"sample":
        "resnet50"}`). What is not known is recorded as misses. The same content given again is the same
        model: 200 in place of 201. A worker takes it apart: 202 with the upload's address (`Location`) where
        that takes longer than `wait_s`. A key, and an organisation, may have few uploads at a time: one more
        is a 429."""
        wait_s = wait_named(request)
        row = body_of(request).receive(partial(_wish, request), self.key)
        failpoints.at("upload")
        return answer_upload(row, wait_s, lambda done: ReportAnswer(_report_of(done)).data)


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


def _report_of(done: Upload) -> GivenModel:
    return _report(_owned(done.organisation).get(pk=done.model_id or 0))


def _wish(request: Request, small: bytes | None, key: models.ApiKey) -> Given:
    """What is asked for of the body; a sample is put in its place. What can be refused at once is."""
    name, sample = request.query_params.get("name", ""), None
    if request.content_type.startswith("application/json"):
        document = _small_object(small)
        if "sample" in document:
            if not isinstance(document["sample"], str) or set(document) != {"sample"}:
                raise RequestError('A sample is asked for as {"sample": "resnet50"}.', where="sample")
            sample = ingest.sample_graph(document["sample"])
            name = name or document["sample"]
    elif (small or b"").lstrip()[:1] in (b"[", b"{"):
        raise RequestError("The body looks like JSON: send it as application/json.")
    if not name:
        raise RequestError("The model needs a name: add ?name=…", where="name")
    target, setting = _place(request)
    wish = UploadWish(
        UploadKind.MODEL,
        ingest.checked_name(name),
        _dims(request),
        _flag(request, "as_float32"),
        target,
        setting,
    )
    return wish if sample is None else (wish, sample)


def _small_object(small: bytes | None) -> dict[str, Any]:
    """The JSON of a body that may name a sample; empty for an operator list. Raises RequestError."""
    if small is None or len(small) > MAX_SAMPLE_BYTES:
        return {}
    document = parse_json(small)
    if not isinstance(document, list | dict):
        raise RequestError("The JSON must be an operator list (records), or name a sample.")
    return document if isinstance(document, dict) else {}


def _dims(request: Request) -> dict[str, int]:
    text = request.query_params.get("dims", "")
    return read_dims([part.strip() for part in text.split(",") if part.strip()], ":")


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise RequestError(f"{name} must be true or false.", where=name)
    return text in ("true", "1")


def _place(request: Request) -> tuple[models.Target | None, models.Setting | None]:
    """The rows that are named; none: one that is served, its default setting."""
    target_key, setting_key = request.query_params.get("target"), request.query_params.get("setting")
    if not target_key:
        if setting_key:
            raise RequestError("A setting needs a target: add ?target=t1:…", where="setting")
        return None, None
    target = target_named(target_key)
    if not setting_key:
        return target, None
    setting = models.Setting.objects.filter(key=setting_key[:100]).first()
    if setting is None:
        raise Unknown("This setting is not known: GET /api/v1/settings/ lists them.", where="setting")
    hardware = identity.Target.from_json(target.description)
    identity.check_setting(identity.Setting.from_json(setting.description), hardware)
    return target, setting


urlpatterns = [
    path("models/", ModelsView.as_view(), name="api-models"),
    path("models/<int:pk>", ModelView.as_view()),
]
