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
from opatlas.graph.structure import ModelStructure
from tuning import planning
from tuning.graph.passes.registry import PASSES, UNLESS_NAMED, passes_named

MOST_PASSES = 16


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


@dataclass(frozen=True)
class PlanWish:
    """A checked request. ``given``: the model; None where a structure was sent."""

    given: models.Model | None
    target: models.Target
    setting: models.Setting
    passes: list[str] | None
    fusions: int = 0


def checked(sent: Mapping[str, Any], has_structure: bool, organisation: models.Organisation) -> PlanWish:
    """What the serializer has let through, with the rows that it names. Raises :class:`RequestError`."""
    if ("model" in sent) == has_structure:
        raise RequestError("Name an uploaded model, or send a structure: one of the two.", where="model")
    given = _model(sent["model"], organisation) if "model" in sent else None
    passes = sent.get("passes")
    passes_named(passes)
    return PlanWish(given, *_place(sent, given), passes, sent.get("fusions", 0))


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
    made = planning.make_plan(structure, wish.target, wish.setting, organisation, wish.passes)
    made = planning.queue_misses(made, wish.target, wish.setting, organisation, api_key, wish.fusions)
    return planning.keep_plan(made, organisation, wish.target, wish.setting, wish.given)


def _model(number: int, organisation: models.Organisation) -> models.Model:
    rows = models.Model.objects.filter(organisation=organisation).select_related("target", "setting")
    return one(rows, number, f"There is no model {number}: GET /api/v1/models/ lists them.")


def _place(sent: Mapping[str, Any], given: models.Model | None) -> tuple[models.Target, models.Setting]:
    if "target" in sent:
        return lookup_json.place_named(sent["target"], sent.get("setting"))
    if "setting" in sent or given is None:
        raise RequestError("A target is needed: its t1: key, its JSON, or 'here'.", where="target")
    return given.target, given.setting
