"""What a request for a plan may say, and the plan that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from catalog import models
from catalog.api import lookup_json
from catalog.api.endpoint import MAX_ID, one
from catalog.api.lookup_shapes import SettingField, TargetField
from catalog.api.shapes import Document
from catalog.errors import RequestError
from opatlas.graph.profile import ModelProfile
from opatlas.graph.structure import ModelStructure
from tuning import planning
from tuning.graph.passes.registry import PASSES, UNLESS_NAMED, passes_named

MOST_PASSES = 16
MOST_ERROR = 1e6


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
        help_text=f"Some of {', '.join(PASSES)}; left out: {', '.join(UNLESS_NAMED)}.",
    )
    fusions = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=planning.MOST_FUSIONS,
        help_text="With the pass fusion: so many of the fused operators that nothing is published of become "
        "misses, those first that might save most. Left out: none.",
    )
    original = serializers.RegexField(
        r"m1:[0-9a-f]{64}",
        required=False,
        help_text="With a structure that is a model's simpler form: that model's own m1: key.",
    )
    layouts = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=planning.MOST_FUSIONS,
        help_text="With the pass layout: so many of the channels-last operators and reorders that nothing is "
        "published of become misses, those first that might change most. Left out: none.",
    )
    profile = Document(
        required=False,
        help_text="What real runs of the model showed: opatlas.graph.profile, as JSON (docs/plans.md). By it "
        "branches and loops are weighed (left out: each of their bodies runs once) and, with what a session "
        "measured beside it, kernels against ONNX Runtime in place.",
    )
    most_error = serializers.FloatField(
        required=False,
        min_value=1,
        max_value=MOST_ERROR,
        help_text="Only kernels whose largest error, as they were checked, is at most so many times ONNX "
        "Runtime's at the same operator. Left out: whatever is published, within what is allowed "
        "(docs/accuracy.md).",
    )


@dataclass(frozen=True)
class PlanWish:
    """A checked request. ``given``: the model; None where a structure was sent. ``profile``: of its runs;
    ``most_error``: as :func:`tuning.planning.make_plan` has it."""

    given: models.Model | None
    target: models.Target
    setting: models.Setting
    passes: list[str] | None
    fusions: int = 0
    layouts: int = 0
    original: str = ""
    profile: ModelProfile | None = None
    most_error: float | None = None


def checked(sent: Mapping[str, Any], has_structure: bool, organisation: models.Organisation) -> PlanWish:
    """What the serializer has let through, with the rows that it names. Raises :class:`RequestError`."""
    if ("model" in sent) == has_structure:
        raise RequestError("Name an uploaded model, or send a structure: one of the two.", where="model")
    given = _model(sent["model"], organisation) if "model" in sent else None
    passes = sent.get("passes")
    passes_named(passes)
    original = sent.get("original", "") if given is None else ""
    asked = sent.get("fusions", 0), sent.get("layouts", 0)
    profile = ModelProfile.from_json(sent["profile"]) if "profile" in sent else None
    place, most_error = _place(sent, given), sent.get("most_error")
    return PlanWish(given, *place, passes, *asked, original, profile, most_error)


def make(
    wish: PlanWish,
    structure: ModelStructure | None,
    organisation: models.Organisation,
    api_key: models.ApiKey | None,
) -> tuple[models.StoredPlan, bool]:
    """The plan's row, and whether it is new; what nothing is published of is queued."""
    if structure is None:
        assert wish.given is not None
        structure = planning.structure_of_model(wish.given)
    made = planning.make_plan(
        structure, wish.target, wish.setting, organisation, wish.passes, wish.profile, wish.most_error
    )
    made = planning.queue_misses(
        made, wish.target, wish.setting, organisation, api_key, wish.fusions, wish.layouts
    )
    return planning.keep_plan(made, organisation, wish.target, wish.setting, wish.given, wish.original)


def _model(number: int, organisation: models.Organisation) -> models.Model:
    rows = models.Model.objects.filter(organisation=organisation).select_related("target", "setting")
    return one(rows, number, f"There is no model {number}: GET /api/v1/models/ lists them.")


def _place(sent: Mapping[str, Any], given: models.Model | None) -> tuple[models.Target, models.Setting]:
    if "target" in sent:
        return lookup_json.place_named(sent["target"], sent.get("setting"))
    if "setting" in sent or given is None:
        raise RequestError("A target is needed: its t1: key, its JSON, or 'here'.", where="target")
    return given.target, given.setting
