"""The fusion pass (requirement G2): nodes run as one operator if that is faster. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opatlas.graph.fusion.candidates import FusionCandidate
from opatlas.graph.fusion.choosing import FusionOption, choose_fusions
from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.identity.operator_types import types_with
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import Alternative
from tuning.graph.passes.draft import PlanDraft

HEAVY = types_with(family="convolution") | types_with(family="linear") | types_with(family="attention")
"""Types whose time is mostly computation."""
IN_PARTS = "its nodes one after another, each alone, not in place"
"""The label of the alternative to a fused operator."""


def fused_where_faster(draft: PlanDraft) -> PlanDraft:
    """A draft with the set of its ``fusions`` that saves most. Each has a published kernel that is faster
    than its nodes in the draft so far, or is faster in ONNX Runtime, to which its nodes are then left.
    Unpublished ones become ``questions`` of the draft."""
    parts_us = {
        node: time for node in range(len(draft.structure.nodes)) if (time := draft.apart_us(node)) is not None
    }
    options = [
        FusionOption(one.nodes, draft.fused_us(one.nodes), _least_us(draft, one.nodes, parts_us))
        for one in draft.fusions
    ]
    found = choose_fusions(options, parts_us)
    unknown = [one for one in found.questions if _is_unknown(draft, draft.fusions[one.option])]
    ratios = _ratios(draft, options, parts_us)
    chosen = fused_as(draft, [draft.fusions[at] for at in found.chosen])
    return replace(chosen, questions=tuple(unknown), ratios=ratios)


def fused_as(draft: PlanDraft, candidates: Sequence[FusionCandidate]) -> PlanDraft:
    """A draft in which these run as one operator each, instead of the present ones; all their times are
    known."""
    chosen, apart = draft.kernels_apart, dict[int, NodeChoice]()
    together, groups = dict[int, float](), dict[int, tuple[int, ...]]()
    for one in candidates:
        parts_us = math.fsum(draft.apart_us(node) or 0.0 for node in one.nodes)
        apart |= {node: chosen.pop(node) for node in one.nodes if node in chosen}
        if draft.published[one.placed.operator.key].is_left:
            together |= dict.fromkeys(one.nodes, 0.0) | {one.nodes[-1]: draft.fused_us(one.nodes) or 0.0}
            groups[one.nodes[-1]] = one.nodes
        else:
            chosen[one.nodes[-1]] = _choice(draft, one, parts_us)
    if candidates:
        flow = DataFlow.of_structure(draft.structure)
        assert flow.runs_in_some_order(one.nodes for one in candidates)  # docs/plans.md: always
    return replace(draft, chosen=chosen, apart=apart, together=together, groups=groups)


def _ratios(
    draft: PlanDraft, options: Sequence[FusionOption], parts_us: Mapping[int, float]
) -> dict[str, float | None]:
    """Of published ones with known parts; each once."""
    found = dict[str, float | None]()
    for one, option in zip(draft.fusions, options, strict=True):
        key = one.placed.operator.key
        if key not in draft.published or key in found or not parts_us.keys() >= set(one.nodes):
            continue
        total_us = math.fsum(parts_us[node] for node in one.nodes)
        found[key] = total_us / option.fused_us if option.fused_us and total_us else None
    return found


def _least_us(draft: PlanDraft, nodes: Sequence[int], parts_us: Mapping[int, float]) -> float:
    """The time of the products and convolutions among them by each one's fastest kernel (as they run, if none
    is known): a fused kernel saves the traffic between them, not the computation."""
    return math.fsum(_kernel_us(draft, node) or parts_us.get(node, 0.0) for node in heavy_nodes(draft, nodes))


def heavy_nodes(draft: PlanDraft, nodes: Sequence[int]) -> list[int]:
    return [node for node in nodes if draft.structure.nodes[node].op_type in HEAVY]


def _kernel_us(draft: PlanDraft, node: int) -> float | None:
    known = draft.published.get(draft.structure.nodes[node].operator)
    return known.kernel.median_us if known is not None and known.kernel is not None else None


def _is_unknown(draft: PlanDraft, one: FusionCandidate) -> bool:
    """Whether nothing is published of it. One with only a library's call was explored."""
    return one.placed.operator.key not in draft.published


def _choice(draft: PlanDraft, one: FusionCandidate, parts_us: float) -> NodeChoice:
    kernel = draft.published[one.placed.operator.key].kernel
    assert kernel is not None  # else it had no time
    over = Alternative(IN_PARTS, parts_us)
    return kernel.choice(one.placed.operator.key, one.placed.tensors, over, one.nodes)
