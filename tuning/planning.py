"""Plans of models, made of what the catalogue knows: by passes (``tuning.graph.passes``), kept with the
reason of each choice, and compared with what sessions report.

A plan names implementations and delivers none: whoever runs it looks its operators up like any job, so that
what is charged is charged there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import F, Q

from catalog import models
from catalog.best.evidence import evidence_of
from catalog.best.served import Accepts, Hit, bests_of_route, find_bests, scopes_of
from catalog.best.signers import register_signer
from catalog.errors import RequestError, StoreError
from catalog.lookup.misses import Wanted, Where, record_misses
from opatlas import packing
from opatlas.evidence import Ratios
from opatlas.graph.profile import ModelProfile
from opatlas.graph.structure import ModelStructure
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.identity.operator import Operator, canonical_json
from opatlas.identity.place.kinds import CPU
from opatlas.load.signing import public_bytes, sign_plan
from opatlas.plan.making import DEFAULT
from opatlas.plan.plan import KERNEL_KINDS, ModelPlan
from tuning.fusions import UnknownFusion, answered_fusions, operators_of, unknown_fusions, with_fusions
from tuning.graph.layout.counts import control_flow, expected_counts
from tuning.graph.passes.borders import worth_their_borders
from tuning.graph.passes.draft import KnownOperator, PlanDraft, PublishedKernel
from tuning.graph.passes.registry import FUSION, LAYOUT, passes_named, run_passes
from tuning.layouts import UnknownLayout, answered_layouts, exploring_s, unknown_layouts, with_forms
from tuning.plan_choices import (
    ASKED,
    PlanChoice,
    answered,
    asked_fusion,
    asked_layout,
    batches,
    choices_of,
    kernel_steps,
    operators_known,
    with_misses,
)
from tuning.plan_odds import CHANNELS_LAST, FUSED, AnsweredQuestion, HopelessQuestions, QuestionOdds

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MOST_PLANS = 200
"""Of an organisation: the latest are kept."""
MOST_BYTES = 64 << 20
"""Of a stored plan's JSON, unpacked."""
MOST_FUSIONS = 64
"""Fused operators that one plan asks for, and channels-last ones: an exploration of each takes minutes."""


@dataclass(frozen=True)
class MadePlan:
    """A plan with its reasons. ``predicted_us`` and ``default_us`` are of one run, over the nodes whose times
    are known, each alone; ``unknown_nodes`` are those without. ``estimated_us``: what of the predicted time
    nobody has measured (reorders, and operators in another layout); ``passed_us``: what was predicted before
    any pass (under ``""``) and after each. ``fusions`` and ``layouts``: operators that nothing is published
    of, which a kept plan does not have; ``open_questions``: how many they were, and ``asking_s``: what
    exploring all of them would take one worker, in seconds; ``hopeless``: those that are none of these, since
    they have no chance. ``draft``: what the passes came to, which a kept
    plan does not have either."""

    plan: ModelPlan
    passes: tuple[str, ...]
    choices: Sequence[PlanChoice]
    predicted_us: float
    default_us: float
    unknown_nodes: int
    fusions: Sequence[UnknownFusion] = ()
    layouts: Sequence[UnknownLayout] = ()
    open_questions: int = 0
    asking_s: float = 0.0
    hopeless: HopelessQuestions = field(default_factory=HopelessQuestions)
    estimated_us: float = 0.0
    passed_us: Mapping[str, float] = field(default_factory=dict)
    draft: PlanDraft | None = field(default=None, repr=False, compare=False)

    @property
    def gains(self) -> dict[str, float]:
        """By pass: what was predicted before it ÷ after it, by operators' times alone."""
        pairs = pairwise(self.passed_us.items())
        return {name: before_us / us for (_, before_us), (name, us) in pairs if us}

    @property
    def nodes(self) -> int:
        """All that do work: those of bodies, and no branch or loop that has bodies. None of a kept plan."""
        if self.draft is None:
            return 0
        return sum(
            (node, 0) not in part.bodies
            for _, part, steps in self.draft.parts(self.plan)
            for step in steps
            for node in step.nodes
        )

    @property
    def sha256(self) -> str:
        return hashlib.sha256(canonical_json(self.plan.to_json())).hexdigest()

    @property
    def misses(self) -> list[PlanChoice]:
        return [one for one in self.choices if one.by == "miss"]


def structure_of_model(row: models.Model) -> ModelStructure:
    """Raises :class:`RequestError` where none was kept, and says why."""
    kept = models.StoredStructure.objects.filter(model=row).first()
    if kept is not None:
        return ModelStructure.unpacked(bytes(kept.packed))
    raise RequestError(why_no_structure(row), where="model")


def why_no_structure(row: models.Model) -> str:
    """Of a model of which none was kept."""
    if row.form != "onnx":
        return "An operator list has no structure, so there is no plan of it: give the model as ONNX."
    return (
        "This model's structure was not kept: it was given before structures were, or is too large. "
        "Give the model again."
    )


def make_plan(
    structure: ModelStructure,
    target: models.Target,
    setting: models.Setting,
    organisation: models.Organisation | None,
    passes: Collection[str] | None = None,
    profile: ModelProfile | None = None,
    most_error: float | None = None,
) -> MadePlan:
    """By all passes unless some are named. Reads alone: nothing is counted, recorded or charged.
    ``profile``: by whose runs branches and loops are weighed (without one each of their bodies runs once),
    and, where its times count, kernels against what ONNX Runtime takes in place, with what they cut.
    ``most_error``: a kernel takes part only where its largest error, as it was checked, is at most so many
    times ONNX Runtime's at the same operator; without it whatever is published does.
    Raises :class:`opatlas.plan.plan.InvalidPlan` for an unknown pass,
    :class:`opatlas.graph.profile.InvalidProfile` for a profile of another model."""
    names = passes_named(passes)
    if target.kind != CPU.name:
        raise RequestError(f"Plans are made for CPUs; {target.capability} is none.", where="target")
    if profile is not None:
        profile.check(structure.key)
    counts = expected_counts(control_flow(TypedNodes.of_structure(structure)), profile)
    keys = structure.operator_keys
    known = _Bests(target, setting, organisation, most_error)
    draft = PlanDraft.of_bodies(structure, known.published(keys), counts, profile=profile)
    own = operators_of(keys) if {FUSION, LAYOUT}.intersection(names) else {}
    operators, unknown, answered = dict[str, Operator](), list[UnknownFusion](), list[AnsweredQuestion]()
    worth, plan = draft, draft.plan(target.key, setting.key)
    sums = _sums(draft, plan)
    passed_us = {"": sums[0]}
    for name in names:
        if name == FUSION:
            draft = with_fusions(draft, target, setting, own, known.published)
        if name == LAYOUT:
            draft, operators = with_forms(draft, own, known.published)
        draft = run_passes(draft, [name])
        if name == FUSION:  # before layouts give nodes other numbers
            unknown, answered = unknown_fusions(draft), answered_fusions(draft)
        worth = draft.each(lambda _, one: worth_their_borders(one))
        plan = worth.plan(target.key, setting.key)
        sums = _sums(worth, plan)
        passed_us[name] = sums[0]
    draft = worth
    choices = with_misses(choices_of(draft, plan, known.kernels, organisation), target, setting)
    found = draft.layouts
    layouts = unknown_layouts(found.questions, operators) if found is not None else []
    odds = QuestionOdds([*answered, *answered_layouts(draft, operators)])
    hopeful = [one for one in unknown if not odds.is_hopeless(one.operator, FUSED)]
    laid = [one for one in layouts if not one.places or not odds.is_hopeless(one.operator, CHANNELS_LAST)]
    hopeless = replace(odds.in_hindsight, count=len(unknown) + len(layouts) - len(hopeful) - len(laid))
    asking = [*(one.operator for one in hopeful), *(one.operator for one in laid)]
    return MadePlan(
        plan, names, choices, *sums, hopeful, laid, len(asking), exploring_s(asking), hopeless,
        estimated_us=found.estimated_us if found is not None else 0.0, passed_us=passed_us,
        draft=draft,
    )  # fmt: skip


def queue_misses(
    made: MadePlan,
    target: models.Target,
    setting: models.Setting,
    organisation: models.Organisation | None,
    api_key: models.ApiKey | None = None,
    fusions: int = 0,
    layouts: int = 0,
) -> MadePlan:
    """What nothing is published of becomes misses, as in a lookup; with what became of each. ``fusions`` and
    ``layouts``: of the plan's unknown fused operators, and of those that its layouts would need, so many do
    so too, those first that might save most."""
    asked, laid = made.fusions[:fusions], made.layouts[:layouts]
    rows = operators_known([one.operator for one in made.misses])
    wanted = [
        Wanted(one.operator, float(one.places), rows[one.operator][0])
        for one in made.misses
        if one.operator in rows
    ]
    questions: list[UnknownFusion | UnknownLayout] = [*asked, *laid]
    wanted += [
        Wanted(one.operator.key, float(max(len(one.places), 1)), graph=one.operator) for one in questions
    ]
    states = record_misses(wanted, Where(target, setting, api_key=api_key, organisation=organisation))
    choices = [answered(one, states.get(one.operator), ASKED) for one in made.choices]
    new = [*map(asked_fusion, asked), *map(asked_layout, laid)]
    choices += [answered(one, states.get(one.operator), one.reason) for one in new]
    return replace(made, choices=choices, fusions=made.fusions[fusions:], layouts=made.layouts[layouts:])


def keep_plan(
    made: MadePlan,
    organisation: models.Organisation,
    target: models.Target,
    setting: models.Setting,
    given: models.Model | None = None,
    original: str = "",
) -> tuple[models.StoredPlan, bool]:
    """The plan's row, and whether it is new: the same plan is the same row, with today's reasons.
    ``original``: the key of the model whose simpler form it is of."""
    document = {
        "plan": made.plan.to_json(),
        "choices": [asdict(one) for one in made.choices],
        "estimated_us": made.estimated_us,
        "passed_us": list(made.passed_us.items()),
        "open_questions": made.open_questions,
        "asking_s": made.asking_s,
        "hopeless": asdict(made.hopeless),
    }
    columns = {
        "passes": list(made.passes),
        "packed": packing.packed(document),
        "predicted_us": made.predicted_us,
        "default_us": made.default_us,
        "unknown_nodes": made.unknown_nodes,
    }
    if original and original != made.plan.model:
        columns["original"] = original
    place = {"key": made.plan.model, "target": target, "setting": setting}
    with transaction.atomic():
        row, is_new = models.StoredPlan.objects.update_or_create(
            organisation=organisation,
            given=given,
            sha256=made.sha256,
            defaults=columns,
            create_defaults=columns | place,
        )
        if is_new:
            mine = models.StoredPlan.objects.filter(organisation=organisation).order_by("-pk")
            old = list(mine.values_list("pk", flat=True)[MOST_PLANS:])
            mine.filter(pk__in=old).delete()
    return row, is_new


def kept_plan(row: models.StoredPlan) -> MadePlan:
    """What :func:`keep_plan` kept."""
    document = packing.unpacked(bytes(row.packed), MOST_BYTES)
    choices = [PlanChoice(**one) for one in document["choices"]]
    plan = ModelPlan.from_json(document["plan"])
    return MadePlan(
        plan, tuple(row.passes), choices, row.predicted_us, row.default_us, row.unknown_nodes,
        # Plans that were kept before have none of these.
        estimated_us=document.get("estimated_us", 0.0), passed_us=dict(document.get("passed_us", ())),
        open_questions=document.get("open_questions", 0), asking_s=document.get("asking_s", 0.0),
        hopeless=HopelessQuestions(**document.get("hopeless", {})),
    )  # fmt: skip


def sign_stored(row: models.StoredPlan, signing_key: Ed25519PrivateKey) -> None:
    """Vouch for a plan, so that whoever has it knows where it is from. Raises :class:`StoreError` where the
    key was retired."""
    signer = register_signer(public_bytes(signing_key))
    if signer.retired_at is not None:
        raise StoreError(f"The signing key {signer} was retired: give this worker another one.")
    row.signature = sign_plan(kept_plan(row).plan.to_json(), signing_key).hex()
    row.signer = signer.sha256
    row.save(update_fields=["signature", "signer"])


def plans_of(organisation: models.Organisation | None) -> Any:
    """Plans that an organisation may see: its own."""
    return models.StoredPlan.objects.filter(organisation=organisation).select_related(
        "target", "setting", "given", "measured"
    )


def plans_of_model(model: models.Model) -> Any:
    """An uploaded model's plans for its place: those that were made of it, and those that its organisation's
    sessions asked for, of the same structure or of its simpler form."""
    of_model = Q(given=model)
    if model.structure_key:
        named = Q(key=model.structure_key) | Q(original=model.structure_key)
        of_model |= Q(given=None, organisation=model.organisation_id) & named
    return models.StoredPlan.objects.filter(of_model, target=model.target_id, setting=model.setting_id)


@dataclass(frozen=True)
class MeasuredPlan:
    """One run by the plan and by the whole model in the default framework, taken in turns, in microseconds;
    ``ratio`` is default ÷ plan with its interval; ``chosen``: whether the plan is what runs."""

    plan_us: float
    default_us: float
    ratio: float
    ratio_low: float
    ratio_high: float
    chosen: bool


def keep_measured(row: models.StoredPlan, found: MeasuredPlan) -> models.PlanMeasured:
    """The last report counts; how many there were is counted."""
    values = asdict(found)
    kept, is_new = models.PlanMeasured.objects.get_or_create(plan=row, defaults=values)
    if not is_new:
        for name, value in values.items():
            setattr(kept, name, value)
        kept.reports = F("reports") + 1  # type: ignore[assignment]
        kept.save()
        kept.refresh_from_db()
    return kept


# ---- what is known ------------------------------------------------------------------------------


class _Bests:
    """What is published at a place, by operator: who is fastest, who is fastest of those that run in a model
    and as exact as is asked for, and ONNX Runtime, which runs what a plan leaves. ``kernels``: the second, of
    all that were asked for."""

    def __init__(
        self,
        target: models.Target,
        setting: models.Setting,
        organisation: models.Organisation | None,
        most_error: float | None,
    ) -> None:
        self._place = (target, setting, scopes_of(organisation))
        self._most_error = most_error
        self.kernels = dict[str, Hit]()

    def published(self, keys: Sequence[str]) -> dict[str, KnownOperator]:
        accepts = Accepts(kinds=frozenset(KERNEL_KINDS))
        found = dict[str, KnownOperator]()
        for batch in batches(keys):
            winners = find_bests(batch, *self._place)
            kernels = find_bests(batch, *self._place, accepts)
            left = bests_of_route(batch, *self._place, DEFAULT.framework)
            inexact = self._inexact(kernels, left)
            kernels = {key: hit for key, hit in kernels.items() if key not in inexact}
            self.kernels |= kernels
            known = {key: _published(hit, kernels.get(key), left.get(key)) for key, hit in winners.items()}
            found |= known | {key: replace(known[key], inexact=why) for key, why in inexact.items()}
        return found

    def _inexact(self, kernels: Mapping[str, Hit], left: Mapping[str, Hit]) -> dict[str, str]:
        """Kernels that are less exact than is asked for, each with the reason. A lookup serves the fastest,
        so no slower one takes their place."""
        if self._most_error is None:
            return {}
        hits = (*kernels.values(), *left.values())
        seen = evidence_of(hit.implementation_id for hit in hits)
        error_of = {number: one["max_error"] for number, one in seen.items()}
        found = dict[str, str]()
        for key, hit in kernels.items():
            theirs = error_of.get(left[key].implementation_id) if key in left else None
            mine = error_of.get(hit.implementation_id)
            if theirs is None or mine is None:
                found[key] = "Nobody knows how exact its kernel is beside ONNX Runtime."
            elif mine > self._most_error * theirs:
                times = (
                    f"{mine / theirs:.1f} times ONNX Runtime's" if theirs else "not none, as ONNX Runtime's"
                )
                found[key] = (
                    f"Its kernel's error is {times}: at most {self._most_error:g} times is asked for."
                )
        return found


def _published(winner: Hit, kernel: Hit | None, left: Hit | None) -> KnownOperator:
    best, default_us = f"{winner.route} {winner.label}", (kernel or winner).default_us
    # By their ratios, since the two may be from different races.
    left_us = default_us / left.ratio_to_default if left is not None and left.ratio_to_default else None
    if kernel is None:
        return KnownOperator(default_us, best, None, left_us)
    found = PublishedKernel(
        kernel.implementation_id, kernel.artifact_sha256, kernel.route, kernel.method, kernel.label,
        kernel.median_us, kernel.default_us,
        Ratios(kernel.ratio_to_default, kernel.ratio_low, kernel.ratio_high), kernel.is_default,
    )  # fmt: skip
    return KnownOperator(default_us, best, found, left_us)


def _sums(draft: PlanDraft, plan: ModelPlan) -> tuple[float, float, int]:
    """Predicted and default time of one run over what is known, bodies as often as they run, and how many
    nodes are not."""
    predicted, defaults, unknown = list[float](), list[float](), 0
    for _, part, steps in draft.parts(plan):
        kernels = kernel_steps(steps)
        by_kernel = {node for step in kernels for node in step.nodes}
        nodes = [node for step in steps for node in step.nodes if (node, 0) not in part.bodies]
        times = {node: time for node in nodes if (time := part.default_us(node)) is not None}
        predicted += [part.runs * (step.predicted_us or 0.0) for step in kernels]
        predicted += [part.runs * (part.left_us(node) or 0.0) for node in times if node not in by_kernel]
        defaults += [part.runs * time for time in times.values()]
        unknown += len(nodes) - len(times)
    return math.fsum([*predicted, draft.cut_us(plan)]), math.fsum(defaults), unknown
