"""Plans over REST: make one, read it, report what it came to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import models
from catalog.api import lookup_json
from catalog.api.endpoint import MAX_ID, RestView, one, operation
from catalog.api.lookup_shapes import SettingField, TargetField
from catalog.api.parsers import BoundedJSONParser
from catalog.api.shapes import Document, KeyField, ModelAnswer, shape
from catalog.errors import RequestError
from opatlas.graph.structure import ModelStructure
from tuning import planning
from tuning.graph.passes.registry import PASSES

MOST_PASSES = 16
MOST_US = 1e12
MOST_RATIO = 1e6


class PlanParser(BoundedJSONParser):
    """JSON of at most 16 MiB: a structure has some hundred bytes a node."""

    max_bytes = 16 << 20


class MeasuredAnswer(ModelAnswer):
    """What a session reported last. Times in µs of one run, the plan's and the default framework's."""

    class Meta:
        model = models.PlanMeasured
        fields = ["plan_us", "default_us", "ratio", "ratio_low", "ratio_high", "chosen", "reports", "at"]


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, and why it is as it is."""

    id: int
    model: Annotated[int | None, "The uploaded model that it was made of; null for a structure."]
    key: Annotated[str, "The model's: m1: and 64 digits. The plan is good for every model with it."]
    target: models.Target
    setting: models.Setting
    passes: list[str]
    plan: Annotated[dict[str, Any], "What opatlas.Session(model, plan=…) takes (docs/models.md)."]
    signature: Annotated[str, "Ed25519 over the plan's canonical JSON, hexadecimal; empty: not signed."]
    signer: Annotated[str, "The public key's SHA-256."]
    predicted_us: Annotated[float, "Of one run, over the nodes whose times are known, each alone."]
    default_us: Annotated[float, "The same by the defaults."]
    unknown_nodes: Annotated[int, "Nodes without a known time, which are in neither sum."]
    choices: Sequence[planning.PlanChoice]
    measured: Annotated[models.PlanMeasured | None, "Null: not measured yet."]
    created_at: datetime


ChoiceAnswer = shape(planning.PlanChoice, "link")
PlanShape = shape(
    PlanAnswer,
    using=[MeasuredAnswer],
    plan=Document(),
    target=KeyField(),
    setting=KeyField(),
    choices=ChoiceAnswer(many=True),
    measured=MeasuredAnswer(allow_null=True),
)


class PlanRequestSerializer(serializers.Serializer[Any]):
    model = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_ID, help_text="An uploaded model's id."
    )
    structure = Document(
        required=False, help_text="In place of a model: opatlas.graph.structure, as JSON (docs/models.md)."
    )
    target = TargetField(required=False, help_text="Left out: the model's own place.")
    setting = SettingField(required=False, help_text="Left out: the target's default.")
    passes = serializers.ListField(
        child=serializers.CharField(max_length=40),
        required=False,
        max_length=MOST_PASSES,
        help_text=f"Left out: all of {', '.join(PASSES)}.",
    )


class MeasuredSerializer(serializers.Serializer[Any]):
    plan_us = serializers.FloatField(min_value=0, max_value=MOST_US)
    default_us = serializers.FloatField(min_value=0, max_value=MOST_US)
    ratio = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    ratio_low = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    ratio_high = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    chosen = serializers.BooleanField()


class PlansView(RestView):
    parser_classes = [PlanParser]

    @operation(
        PlanShape, name="plans_create", takes=PlanRequestSerializer, responses={201: PlanShape}, fails=(404,)
    )
    def post(self, request: Request) -> Response:
        """Make a plan of a model: which of its nodes run by which published kernel, and why.

        Takes an uploaded `model` (its place is the plan's unless a `target` is given) or a `structure` with a
        `target`. What nothing is published of is recorded as misses, as lookups do. Times are of operators
        alone, not in place: who runs the plan times it against the whole model first. The plan names
        implementations that are charged, and delivers none. The same plan made again is the same row: 200 in
        place of 201."""
        sent = self.sent(PlanRequestSerializer)
        given, structure = _given(sent, self.key.organisation)
        target, setting = _place(sent, given)
        organisation = self.key.organisation
        made = planning.make_plan(structure, target, setting, organisation, sent.get("passes"))
        made = planning.queue_misses(made, target, setting, organisation, self.key)
        row, is_new = planning.keep_plan(made, organisation, target, setting, given)
        return Response(PlanShape(_answer(row, made)).data, status=201 if is_new else 200)


class PlanView(RestView):
    @operation(PlanShape, name="plans_retrieve")
    def get(self, request: Request, pk: int) -> PlanAnswer:
        """A plan that was made, with what was measured of it."""
        row = _plan(self.key.organisation, pk)
        return _answer(row, planning.kept_plan(row))


class PlanMeasuredView(RestView):
    @operation(MeasuredAnswer, name="plans_measured", takes=MeasuredSerializer)
    def post(self, request: Request, pk: int) -> models.PlanMeasured:
        """Report what a plan came to where it ran.

        In turns with the whole model in the default framework; the last report counts. Shown to the plan's
        organisation alone, and no evidence: nothing is published or withdrawn for it."""
        found = planning.MeasuredPlan(**self.sent(MeasuredSerializer))
        if not all(map(math.isfinite, asdict(found).values())):
            raise RequestError("Times and ratios must be finite numbers.", where="plan_us")
        if not found.ratio_low <= found.ratio <= found.ratio_high:
            raise RequestError("The ratio must lie in its interval.", where="ratio")
        return planning.keep_measured(_plan(self.key.organisation, pk), found)


def _plan(organisation: models.Organisation, number: int) -> models.StoredPlan:
    """404 for another's as for none."""
    return one(planning.plans_of(organisation), number, f"There is no plan {number}: POST plans makes one.")


def _given(
    sent: dict[str, Any], organisation: models.Organisation
) -> tuple[models.Model | None, ModelStructure]:
    if ("model" in sent) == ("structure" in sent):
        raise RequestError("Name an uploaded model, or send a structure: one of the two.", where="model")
    if "structure" in sent:
        return None, ModelStructure.from_json(sent["structure"])
    rows = models.Model.objects.filter(organisation=organisation).select_related("target", "setting")
    missing = f"There is no model {sent['model']}: GET /api/v1/models/ lists them."
    row = one(rows, sent["model"], missing)
    return row, planning.structure_of_model(row)


def _place(sent: dict[str, Any], given: models.Model | None) -> tuple[models.Target, models.Setting]:
    if "target" in sent:
        return lookup_json.place_named(sent["target"], sent.get("setting"))
    if "setting" in sent or given is None:
        raise RequestError("A target is needed: its t1: key, its JSON, or 'here'.", where="target")
    return given.target, given.setting


def _answer(row: models.StoredPlan, made: planning.MadePlan) -> PlanAnswer:
    return PlanAnswer(
        row.pk, row.given_id, row.key, row.target, row.setting, list(made.passes), made.plan.to_json(),
        row.signature, row.signer, made.predicted_us, made.default_us, made.unknown_nodes, made.choices,
        getattr(row, "measured", None), row.created_at,
    )  # fmt: skip


urlpatterns = [
    path("plans", PlansView.as_view(), name="plan-make"),
    path("plans/<int:pk>", PlanView.as_view()),
    path("plans/<int:pk>/measured", PlanMeasuredView.as_view(), name="plan-measured"),
]
