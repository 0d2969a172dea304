"""Plans of models, made of what the catalogue knows: by passes (``tuning.graph.passes``), kept with the
reason of each choice, and compared with what sessions report.

A plan names implementations and delivers none: whoever runs it looks its operators up like any job, so that
what is charged is charged there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from django.db import transaction
from django.db.models import F

from catalog import models
from catalog.best.served import Accepts, Hit, bests_of_route, find_bests, scopes_of
from catalog.best.signers import register_signer
from catalog.charging import charging
from catalog.errors import RequestError, StoreError
from catalog.lookup.misses import MissAnswer, Wanted, Where, record_misses, states_now
from opatlas import packing
from opatlas.evidence import Ratios
from opatlas.graph.structure import ModelStructure
from opatlas.identity.cost import describe
from opatlas.identity.operator import canonical_json
from opatlas.identity.place.kinds import CPU
from opatlas.load.signing import public_bytes, sign_plan
from opatlas.plan.making import DEFAULT
from opatlas.plan.plan import KERNEL_KINDS, ByKernel, ModelPlan, PlanStep
from tuning.fusions import UnknownFusion, fusions_of, unknown_fusions
from tuning.graph.passes.draft import KnownOperator, PlanDraft, PublishedKernel
from tuning.graph.passes.registry import passes_named, run_passes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BATCH = 1024
"""Operators in one statement."""
MOST_PLANS = 200
"""Of an organisation: the latest are kept."""
MOST_BYTES = 64 << 20
"""Of a stored plan's JSON, unpacked."""
UNSEEN = "The catalogue has never seen this operator: look it up with its graph."
NO_KERNEL = "No compiled kernel of it is published, and a library's call does not run in a plan"
MOST_FUSIONS = 64
"""Fused operators that one plan asks for: an exploration of each takes minutes."""
ASKED = "asked for, and not explored yet"
NOT_ASKED = "not asked for on this target yet"
FUSED = "Part of fused operators that take less."


@dataclass(frozen=True)
class PlanChoice:
    """What became of one operator's nodes, and why. Times in microseconds of one call, alone."""

    operator: str
    summary: str
    nodes: Annotated[Sequence[int], "Numbers of the model's nodes that are this operator."]
    by: Annotated[
        str, "kernel, default, fused: inside of other choices, or miss: nothing is published of it yet."
    ]
    reason: str
    state: Annotated[str, "Of a miss."] = ""
    route: str = ""
    method: str = ""
    label: str = ""
    median_us: float | None = None
    default_us: float | None = None
    left_us: Annotated[float | None, "By ONNX Runtime, which runs what a plan leaves, where known."] = None
    ratio: Annotated[float | None, "Default ÷ kernel, with its 95 % interval."] = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    implementation: int | None = None
    artifact: str = ""
    charged: Annotated[bool, "A lookup of it has a price: the plan names it and does not deliver it."] = False

    @property
    def link(self) -> str:
        """The page with its evidence."""
        return f"/operators/{self.operator}"


@dataclass(frozen=True)
class MadePlan:
    """A plan with its reasons. ``predicted_us`` and ``default_us`` are of one run, over the nodes whose times
    are known, each alone; ``unknown_nodes`` are those without. ``fusions``: fused operators that nothing is
    published of, which a kept plan does not have."""

    plan: ModelPlan
    passes: tuple[str, ...]
    choices: Sequence[PlanChoice]
    predicted_us: float
    default_us: float
    unknown_nodes: int
    fusions: Sequence[UnknownFusion] = ()

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
    if row.form != "onnx":
        raise RequestError(
            "An operator list has no structure, so there is no plan of it: give the model as ONNX.",
            where="model",
        )
    raise RequestError(
        "This model's structure was not kept: it was given before structures were, or is too large. "
        "Give the model again.",
        where="model",
    )


def make_plan(
    structure: ModelStructure,
    target: models.Target,
    setting: models.Setting,
    organisation: models.Organisation | None,
    passes: Collection[str] | None = None,
) -> MadePlan:
    """By all passes unless some are named. Reads alone: nothing is counted, recorded or charged. Raises
    :class:`opatlas.plan.plan.InvalidPlan` for an unknown pass."""
    names = passes_named(passes)
    if target.kind != CPU.name:
        raise RequestError(f"Plans are made for CPUs; {target.capability} is none.", where="target")
    keys = list(structure.operators)
    fusions = fusions_of(structure, target, setting) if "fusion" in names else ()
    keys += dict.fromkeys(one.placed.operator.key for one in fusions)
    winners, kernels, left = _bests(keys, target, setting, organisation)
    published = {key: _published(hit, kernels.get(key), left.get(key)) for key, hit in winners.items()}
    draft = run_passes(PlanDraft(structure, published, fusions=fusions), names)
    plan = draft.plan(target.key, setting.key)
    choices = _choices(structure, plan, published, kernels, organisation)
    choices = _with_misses(choices, target, setting)
    unknown = unknown_fusions(fusions, draft.questions)
    return MadePlan(plan, names, choices, *_sums(draft, plan), unknown)


def queue_misses(
    made: MadePlan,
    target: models.Target,
    setting: models.Setting,
    organisation: models.Organisation | None,
    api_key: models.ApiKey | None = None,
    fusions: int = 0,
) -> MadePlan:
    """What nothing is published of becomes misses, as in a lookup; with what became of each. ``fusions``: of
    the plan's unknown fused operators so many do so too, those first that might save most."""
    asked = made.fusions[:fusions]
    rows = _operators([one.operator for one in made.misses])
    wanted = [
        Wanted(one.operator, float(len(one.nodes)), rows[one.operator][0])
        for one in made.misses
        if one.operator in rows
    ]
    wanted += [Wanted(one.operator.key, float(len(one.places)), graph=one.operator) for one in asked]
    states = record_misses(wanted, Where(target, setting, api_key=api_key, organisation=organisation))
    choices = [_answered(one, states.get(one.operator), ASKED) for one in made.choices]
    choices += [_answered(one, states.get(one.operator), one.reason) for one in map(_asked_fusion, asked)]
    return replace(made, choices=choices, fusions=made.fusions[fusions:])


def keep_plan(
    made: MadePlan,
    organisation: models.Organisation,
    target: models.Target,
    setting: models.Setting,
    given: models.Model | None = None,
) -> tuple[models.StoredPlan, bool]:
    """The plan's row, and whether it is new: the same plan is the same row, with today's reasons."""
    document = {"plan": made.plan.to_json(), "choices": [asdict(one) for one in made.choices]}
    columns = {
        "passes": list(made.passes),
        "packed": packing.packed(document),
        "predicted_us": made.predicted_us,
        "default_us": made.default_us,
        "unknown_nodes": made.unknown_nodes,
    }
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
    return MadePlan(plan, tuple(row.passes), choices, row.predicted_us, row.default_us, row.unknown_nodes)


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


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]


def _bests(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    organisation: models.Organisation | None,
) -> tuple[dict[str, Hit], dict[str, Hit], dict[str, Hit]]:
    """By operator: who is fastest, who is fastest of those that run in a model, and ONNX Runtime, which runs
    what a plan leaves."""
    scopes = scopes_of(organisation)
    accepts = Accepts(kinds=frozenset(KERNEL_KINDS))
    winners, kernels, left = dict[str, Hit](), dict[str, Hit](), dict[str, Hit]()
    for batch in _batches(keys):
        winners |= find_bests(batch, target, setting, scopes)
        kernels |= find_bests(batch, target, setting, scopes, accepts)
        left |= bests_of_route(batch, target, setting, scopes, DEFAULT.framework)
    return winners, kernels, left


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


def _operators(keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """By key: number and summary of those that the catalogue has seen."""
    return {
        key: (number, summary)
        for batch in _batches(keys)
        for key, number, summary in models.Operator.objects.filter(key__in=batch).values_list(
            "key", "pk", "summary"
        )
    }


def _choices(
    structure: ModelStructure,
    plan: ModelPlan,
    published: Mapping[str, KnownOperator],
    kernels: Mapping[str, Hit],
    organisation: models.Organisation | None,
) -> list[PlanChoice]:
    """One for each operator, in the order in which the model comes to them."""
    own, fused = structure.operators, _fused_nodes(plan)
    nodes_of = {key: [*own.get(key, ()), *fused.get(key, ())] for key in (*own, *fused)}
    seen = _operators(list(nodes_of))
    within = frozenset(node for nodes in fused.values() for node in nodes)
    taken = frozenset(step.nodes[0] for step in _kernel_steps(plan) if len(step.nodes) == 1)
    payer = organisation.pk if organisation else 0
    priced = charging().concerns(payer, [(hit, 1.0) for hit in kernels.values()]) if kernels else False
    made = []
    for key, nodes in nodes_of.items():
        found = published.get(key)
        summary = seen[key][1] if key in seen else ""
        if found is None:
            made.append(PlanChoice(key, summary, nodes, "miss", NOT_ASKED if key in seen else UNSEEN))
            continue
        kernel = found.kernel
        by = _by(key, nodes, fused, taken, within)
        choice = PlanChoice(
            key, summary, nodes, by, _why(found, by, key in fused),
            default_us=found.default_us, left_us=found.onnxruntime_us,
        )  # fmt: skip
        if kernel is not None:
            choice = replace(
                choice, route=kernel.route, method=kernel.method, label=kernel.label,
                median_us=kernel.median_us, ratio=kernel.ratios.ratio, ratio_low=kernel.ratios.low,
                ratio_high=kernel.ratios.high, implementation=kernel.implementation,
                artifact=kernel.artifact,
                charged=priced and charging().concerns(payer, [(kernels[key], 1.0)]),
            )  # fmt: skip
        made.append(choice)
    return made


def _kernel_steps(plan: ModelPlan) -> list[PlanStep]:
    return [step for step in plan.steps if isinstance(step.by, ByKernel)]


def _fused_nodes(plan: ModelPlan) -> dict[str, list[int]]:
    """Nodes by the fused operators that they run in."""
    found: dict[str, list[int]] = {}
    for step in plan.steps:
        if isinstance(step.by, ByKernel) and len(step.nodes) > 1:
            found.setdefault(step.by.operator, []).extend(step.nodes)
    return found


def _by(
    key: str, nodes: Sequence[int], fused: Mapping[str, Any], taken: frozenset[int], within: frozenset[int]
) -> str:
    """By what an operator's nodes run; where some are in fused operators, what the others do."""
    if key in fused or taken.intersection(nodes):
        return "kernel"
    return "fused" if within.issuperset(nodes) else "default"


def _why(found: KnownOperator, by: str, is_fused: bool) -> str:
    if by == "fused":
        return FUSED
    if is_fused:
        return "Faster as one operator than its nodes one after another, each alone."
    kernel = found.kernel
    if kernel is None:
        return f"{NO_KERNEL} (fastest alone: {found.best})."
    if by != "kernel":
        if found.left_us <= kernel.median_us < kernel.default_us:
            return "Faster than the default alone, and not than ONNX Runtime, which runs it otherwise."
        if kernel.median_us < kernel.default_us:
            return (
                "Faster alone, but ONNX Runtime does it faster with its neighbours, the model cannot be cut "
                "there, or the pass for it was left out."
            )
        return "Its kernel is not faster than the default."
    if kernel.ratios.low <= 1:
        return "Faster than the default alone, though not told apart from it with certainty."
    return "Faster than the default alone."


def _asked_fusion(one: UnknownFusion) -> PlanChoice:
    nodes = sorted(node for place in one.places for node in place)
    reason = f"As one operator it might save {one.gain_us:.1f} µs of a run at best."
    return PlanChoice(one.operator.key, describe(one.operator).summary, nodes, "miss", reason)


def _answered(one: PlanChoice, state: MissAnswer | None, otherwise: str) -> PlanChoice:
    """``otherwise``: the reason of a miss that has none of its own."""
    return one if state is None else replace(one, state=state.state, reason=state.reason or otherwise)


def _with_misses(
    choices: Sequence[PlanChoice], target: models.Target, setting: models.Setting
) -> list[PlanChoice]:
    """What is known of those that nothing is published of."""
    missing = [one.operator for one in choices if one.by == "miss"]
    rows = _operators(missing)
    states = dict[str, MissAnswer]()
    for batch in _batches(missing):
        states |= states_now({key: rows[key][0] for key in batch if key in rows}, target, setting)
    return [_answered(one, states.get(one.operator), ASKED) for one in choices]


def _sums(draft: PlanDraft, plan: ModelPlan) -> tuple[float, float, int]:
    """Predicted and default time of one run over what is known, and how many nodes are not."""
    kernels = _kernel_steps(plan)
    by_kernel = {node for step in kernels for node in step.nodes}
    nodes = [node for step in plan.steps for node in step.nodes]
    defaults = {node: time for node in nodes if (time := draft.default_us(node)) is not None}
    predicted = [step.predicted_us or 0.0 for step in kernels]
    predicted += [draft.left_us(node) or 0.0 for node in defaults if node not in by_kernel]
    return math.fsum(predicted), math.fsum(defaults.values()), len(nodes) - len(defaults)
