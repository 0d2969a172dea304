"""What became of each operator of a model in a plan, in words: by whom it runs and why, or what it waits
for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from catalog import models
from catalog.best.served import Hit
from catalog.charging import charging
from catalog.lookup.misses import MissAnswer, states_now
from opatlas.graph.linked import unique_name
from opatlas.identity.cost import describe
from opatlas.plan.plan import ByKernel, ModelPlan, PlanStep
from tuning.fusions import UnknownFusion
from tuning.graph.passes.draft import KnownOperator, PlanDraft
from tuning.layouts import UnknownLayout

BATCH = 1024
"""Operators in one statement."""
UNSEEN = "The catalogue has never seen this operator: look it up with its graph."
NO_KERNEL = "No compiled kernel of it is published, and a library's call does not run in a plan"
ASKED = "asked for, and not explored yet"
NOT_ASKED = "not asked for on this target yet"
FUSED = "Part of fused operators that take less."
LAID_OUT = "Channels-last with its neighbours; its time in that layout is an estimate."
REORDER = "Brings values from one layout into another, as channels-last operators need it."
CHANNELS_LAST = "Channels-last: with its neighbours, and reorders counted, the whole takes less so."


@dataclass(frozen=True)
class PlanChoice:
    """What became of one operator's nodes, and why. Times in microseconds of one call, alone."""

    operator: str
    summary: str
    nodes: Annotated[
        Sequence[int],
        "Numbers of the model's nodes that are this operator; with layouts, of its laid-out form's.",
    ]
    by: Annotated[
        str, "kernel, default, fused: inside of other choices, or miss: nothing is published of it yet."
    ]
    reason: str
    state: Annotated[str, "Of a miss."] = ""
    in_bodies: Annotated[
        Sequence[str], "Where its nodes in bodies of branches and loops are: node/body/node there, and so on."
    ] = ()
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
    def places(self) -> int:
        """How many nodes it is, those in bodies with them."""
        return len(self.nodes) + len(self.in_bodies)

    @property
    def link(self) -> str:
        """The page with its evidence."""
        return f"/operators/{self.operator}"


def batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]


def operators_known(keys: Sequence[str]) -> dict[str, tuple[int, str]]:
    """By key: number and summary of those that the catalogue has seen."""
    return {
        key: (number, summary)
        for batch in batches(keys)
        for key, number, summary in models.Operator.objects.filter(key__in=batch).values_list(
            "key", "pk", "summary"
        )
    }


def choices_of(
    draft: PlanDraft, plan: ModelPlan, kernels: Mapping[str, Hit], organisation: models.Organisation | None
) -> list[PlanChoice]:
    """One for each operator, in the order in which the model comes to them. What is in bodies too, and runs
    otherwise there, is told by how it runs in the model."""
    parts = list(draft.parts(plan))
    keys = dict.fromkeys(
        key for _, one, steps in parts for key in (*one.structure.operators, *_fused_nodes(steps))
    )
    seen = operators_known(list(keys))
    payer = organisation.pk if organisation else 0
    priced = charging().concerns(payer, [(hit, 1.0) for hit in kernels.values()]) if kernels else False
    made = dict[str, PlanChoice]()
    for body, one, steps in parts:
        for choice in _choices_in(one, steps, draft.published, seen):
            if choice.artifact and priced:
                charged = charging().concerns(payer, [(kernels[choice.operator], 1.0)])
                choice = replace(choice, charged=charged)
            if body:
                places = [unique_name((*body, node)) for node in choice.nodes]
                before = made.get(choice.operator, replace(choice, nodes=[]))
                choice = replace(before, in_bodies=[*before.in_bodies, *places])
            made[choice.operator] = choice
    return list(made.values())


def _choices_in(
    draft: PlanDraft,
    steps: Sequence[PlanStep],
    published: Mapping[str, KnownOperator],
    seen: Mapping[str, tuple[int, str]],
) -> Iterator[PlanChoice]:
    """Of a model's own nodes, or of one body's. ``seen``: as :func:`operators_known` gives it."""
    own, fused = draft.structure.operators, _fused_nodes(steps)
    nodes_of = {key: [*own.get(key, ()), *fused.get(key, ())] for key in (*own, *fused)}
    within = frozenset(node for nodes in fused.values() for node in nodes)
    taken = frozenset(step.nodes[0] for step in kernel_steps(steps) if len(step.nodes) == 1)
    for key, nodes in nodes_of.items():
        found = published.get(key)
        summary = seen[key][1] if key in seen else ""
        if found is None and draft.assumed.keys() >= set(nodes):
            is_within = within.issuperset(nodes)
            yield _laid_out(draft, PlanChoice(key, summary, nodes, "default", LAID_OUT), is_within)
            continue
        if found is None:
            yield PlanChoice(key, summary, nodes, "miss", NOT_ASKED if key in seen else UNSEEN)
            continue
        kernel = found.kernel
        by = _by(key, nodes, fused, taken, within)
        choice = PlanChoice(
            key, summary, nodes, by,
            CHANNELS_LAST if not draft.assumed.keys().isdisjoint(fused.get(key, ()))
            else _why(found, by, key in fused),
            default_us=found.default_us, left_us=found.onnxruntime_us,
        )  # fmt: skip
        if kernel is not None:
            choice = replace(
                choice, route=kernel.route, method=kernel.method, label=kernel.label,
                median_us=kernel.median_us, ratio=kernel.ratios.ratio, ratio_low=kernel.ratios.low,
                ratio_high=kernel.ratios.high, implementation=kernel.implementation,
                artifact=kernel.artifact,
            )  # fmt: skip
        yield choice


def _laid_out(draft: PlanDraft, one: PlanChoice, is_within: bool) -> PlanChoice:
    """Of nodes that the pass for layouts put in, or into another layout, without a published time."""
    if is_within:
        return replace(one, by="fused", reason=FUSED)
    node = draft.structure.nodes[one.nodes[0]]
    is_own = node.op_type != "Transpose" or bool(node.name)  # what was put in has no name
    left_us = draft.left_us(one.nodes[0])
    return replace(one, left_us=left_us) if is_own else replace(one, left_us=left_us, reason=REORDER)


def kernel_steps(steps: Sequence[PlanStep]) -> list[PlanStep]:
    return [step for step in steps if isinstance(step.by, ByKernel)]


def _fused_nodes(steps: Sequence[PlanStep]) -> dict[str, list[int]]:
    """Nodes by the fused operators that they run in."""
    found: dict[str, list[int]] = {}
    for step in steps:
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
    if found.inexact:
        return found.inexact
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


def asked_layout(one: UnknownLayout) -> PlanChoice:
    """A miss of what layouts would need."""
    if one.places:
        return _asked(one, f"Channels-last it might save {one.gain_us:.1f} µs of a run at best.")
    return _asked(one, f"Reorders are said to take {one.gain_us:.1f} µs of a run, which is an estimate.")


def asked_fusion(one: UnknownFusion) -> PlanChoice:
    """A miss of a fused operator."""
    return _asked(one, f"As one operator it might save {one.gain_us:.1f} µs of a run at best.")


def _asked(one: UnknownFusion | UnknownLayout, reason: str) -> PlanChoice:
    paths = sorted(path for place in one.places for path in place)
    return PlanChoice(
        one.operator.key, describe(one.operator).summary, [path[0] for path in paths if len(path) == 1],
        "miss", reason, in_bodies=[unique_name(path) for path in paths if len(path) > 1],
    )  # fmt: skip


def answered(one: PlanChoice, state: MissAnswer | None, otherwise: str) -> PlanChoice:
    """With what became of a miss; ``otherwise``: the reason of a miss that has none of its own."""
    return one if state is None else replace(one, state=state.state, reason=state.reason or otherwise)


def with_misses(
    choices: Sequence[PlanChoice], target: models.Target, setting: models.Setting
) -> list[PlanChoice]:
    """What is known of those that nothing is published of."""
    missing = [one.operator for one in choices if one.by == "miss"]
    rows = operators_known(missing)
    states = dict[str, MissAnswer]()
    for batch in batches(missing):
        states |= states_now({key: rows[key][0] for key in batch if key in rows}, target, setting)
    return [answered(one, states.get(one.operator), ASKED) for one in choices]
