"""The first pass: each node by its published kernel, where that takes less than the default does. PURE."""

from __future__ import annotations

from dataclasses import replace

from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import Alternative, ByKernel
from tuning.graph.passes.draft import ALONE, PlanDraft


def best_kernels(draft: PlanDraft) -> PlanDraft:
    """A draft in which every node whose published kernel takes less time than the default took in the same
    race runs by it. Both were timed alone: in its place in a model a node may take less."""
    chosen = dict(draft.chosen)
    for number, node in enumerate(draft.structure.nodes):
        found = draft.published.get(node.operator)
        kernel = found.kernel if found is not None else None
        if kernel is None or kernel.median_us >= kernel.default_us:
            continue
        by = ByKernel(node.operator, kernel.artifact, node.tensors, kernel.said)
        chosen[number] = NodeChoice(by, kernel.median_us, (Alternative(ALONE, kernel.default_us),))
    return replace(draft, chosen=chosen)
