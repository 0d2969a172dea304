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
from catalog.api.endpoint import RestView, one, operation
from catalog.api.parsers import parse_json
from catalog.api.shapes import Document, KeyField, ModelAnswer, shape
from catalog.errors import RequestError, Unknown
from opatlas.graph.structure import ModelStructure
from opatlas.streams.timeline import Timeline
from tuning import planning, timelines
from tuning.api.uploads import WAITING, UploadAnswer, UploadParser, answer_upload, body_of, wait_named
from tuning.plan_choices import PlanChoice
from tuning.uploads import plan_request
from tuning.uploads.intake import UploadWish
from tuning.uploads.models import Upload, UploadKind
from tuning.uploads.plan_request import PlanRequestSerializer

MOST_US = 1e12
MOST_RATIO = 1e6


class PlanParser(UploadParser):
    """JSON of at most 16 MiB: a structure has some hundred bytes a node."""

    media_type = "application/json"
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
    original: Annotated[str, "The key of the model whose simpler form that is; empty: none was named."]
    target: models.Target
    setting: models.Setting
    passes: list[str]
    plan: Annotated[dict[str, Any], "What opatlas.Session(model, plan=…) takes (docs/models.md)."]
    signature: Annotated[str, "Ed25519 over the plan's canonical JSON, hexadecimal; empty: not signed."]
    signer: Annotated[str, "The public key's SHA-256."]
    predicted_us: Annotated[float, "Of one run, over the nodes whose times are known, each alone."]
    default_us: Annotated[float, "The same by the defaults."]
    unknown_nodes: Annotated[int, "Nodes without a known time, which are in neither sum."]
    estimated_us: Annotated[float, "What of the predicted time nobody has measured: reorders, for example."]
    gains: Annotated[dict[str, float], "By pass: predicted before ÷ after it. Empty: an older plan."]
    open_questions: Annotated[int, "Fused and channels-last operators that could change it and are unknown."]
    asking_s: Annotated[float, "Seconds of one worker to explore all of these, by what such took lately."]
    hopeless: Annotated[int, "Further unknown ones that are not asked for: such operators hardly ever pay."]
    hopeless_known: Annotated[int, "Known ones that would not have been asked for, by what the others teach."]
    hopeless_wrong: Annotated[int, "Those of these that take less than their parts all the same."]
    choices: Sequence[PlanChoice]
    measured: Annotated[models.PlanMeasured | None, "Null: not measured yet."]
    created_at: datetime


ChoiceAnswer = shape(PlanChoice, "link")
PlanShape = shape(
    PlanAnswer,
    using=[MeasuredAnswer],
    plan=Document(),
    target=KeyField(),
    setting=KeyField(),
    choices=ChoiceAnswer(many=True),
    measured=MeasuredAnswer(allow_null=True),
)


class MeasuredSerializer(serializers.Serializer[Any]):
    plan_us = serializers.FloatField(min_value=0, max_value=MOST_US)
    default_us = serializers.FloatField(min_value=0, max_value=MOST_US)
    ratio = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    ratio_low = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    ratio_high = serializers.FloatField(min_value=0, max_value=MOST_RATIO)
    chosen = serializers.BooleanField()


class TimelineSerializer(serializers.Serializer[Any]):
    timeline = serializers.IntegerField(help_text="The format's version: 1.")
    rows = serializers.ListField(child=serializers.CharField(), help_text="Names of streams or engines.")
    boxes = serializers.ListField(
        child=serializers.ListField(), help_text="Kernels: [row, start_us, took_us, said, model, by]."
    )
    waits = serializers.ListField(
        child=serializers.ListField(),
        help_text="Waits: [row, start_us, took_us, expected_us or null, said, model].",
    )
    left_out = serializers.IntegerField(required=False, help_text="Boxes and waits beyond the bounds.")


@dataclass(frozen=True)
class TimelineAnswer:
    """One run of a plan as a session reported it, last."""

    timeline: Annotated[dict[str, Any], "Rows, boxes and waits, as they were reported."]
    took_us: Annotated[float, "From its begin to the last end, in microseconds."]
    at: Annotated[datetime, "Of the report."]


TimelineShape = shape(TimelineAnswer, timeline=Document())


class PlansView(RestView):
    parser_classes = [PlanParser]

    @operation(
        PlanShape,
        name="plans_create",
        takes=PlanRequestSerializer,
        parameters=WAITING,
        responses={201: PlanShape, 202: UploadAnswer},
        fails=(404, 408, 429),
    )
    def post(self, request: Request) -> Response:
        """Make a plan of a model: which of its nodes run by which published kernel, and why.

        Takes an uploaded `model` (its place is the plan's unless a `target` is given) or a `structure` with a
        `target`. What nothing is published of is recorded as misses, as lookups do. Times are of operators
        alone, not in place: who runs the plan times it against the whole model first. The plan names
        implementations that are charged, and delivers none. The same plan made again is the same row: 200 in
        place of 201. A worker makes it: 202 with the upload's address (`Location`) where that takes longer
        than `wait_s`."""
        wait_s = wait_named(request)
        row = body_of(request).receive(_wish, self.key)
        return answer_upload(row, wait_s, lambda done: PlanShape(_kept(done)).data)


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


class PlanTimelineView(RestView):
    @operation(TimelineShape, name="plans_timeline_retrieve")
    def get(self, request: Request, pk: int) -> TimelineAnswer:
        """The run of a plan that was reported last: streams or engines as rows, kernels as boxes, waits."""
        row = getattr(_plan(self.key.organisation, pk), "timeline", None)
        if row is None:
            raise Unknown(f"Nobody has reported a timeline of plan {pk} yet.")
        return _timeline_answer(row)

    @operation(TimelineShape, name="plans_timeline", takes=TimelineSerializer)
    def post(self, request: Request, pk: int) -> TimelineAnswer:
        """Report one run of a plan as it was where it ran.

        The last report counts. At most 16 rows, 2,000 boxes and 2,000 waits; times in microseconds from the
        run's begin. Shown to the plan's organisation alone."""
        plan = _plan(self.key.organisation, pk)
        return _timeline_answer(timelines.keep_timeline(plan, Timeline.from_json(request.data)))


def _timeline_answer(row: models.PlanTimeline) -> TimelineAnswer:
    found = timelines.kept_timeline(row)
    return TimelineAnswer(found.to_json(), found.took_us, row.at)


def _plan(organisation: models.Organisation, number: int) -> models.StoredPlan:
    """404 for another's as for none."""
    return one(planning.plans_of(organisation), number, f"There is no plan {number}: POST plans makes one.")


def _wish(small: bytes | None, key: models.ApiKey) -> UploadWish:
    """What can be refused at once is: a request without a large structure is small."""
    if small is not None:
        document = parse_json(small)
        sent = PlanRequestSerializer(data=document)
        sent.is_valid(raise_exception=True)
        structure = sent.validated_data.get("structure")
        if structure is not None:
            ModelStructure.from_json(structure)
        plan_request.checked(sent.validated_data, structure is not None, key.organisation)
    return UploadWish(UploadKind.PLAN, "plan")


def _kept(done: Upload) -> PlanAnswer:
    row = _plan(done.organisation, done.plan_id or 0)
    return _answer(row, planning.kept_plan(row))


def _answer(row: models.StoredPlan, made: planning.MadePlan) -> PlanAnswer:
    return PlanAnswer(
        row.pk, row.given_id, row.key, row.original, row.target, row.setting, list(made.passes),
        made.plan.to_json(), row.signature, row.signer, made.predicted_us, made.default_us,
        made.unknown_nodes, made.estimated_us, made.gains, made.open_questions, made.asking_s,
        made.hopeless.count, made.hopeless.known, made.hopeless.wrong, made.choices,
        getattr(row, "measured", None), row.created_at,
    )  # fmt: skip


urlpatterns = [
    path("plans", PlansView.as_view(), name="plan-make"),
    path("plans/<int:pk>", PlanView.as_view()),
    path("plans/<int:pk>/measured", PlanMeasuredView.as_view(), name="plan-measured"),
    path("plans/<int:pk>/timeline", PlanTimelineView.as_view(), name="plan-timeline"),
]
