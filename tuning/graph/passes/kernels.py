"""The first pass: each node by its published kernel, where that takes less than the default does. PURE."""

from __future__ import annotations

from dataclasses import replace

from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import Alternative, ByKernel
from tuning.graph.passes.draft import ALONE, BY_ONNX_RUNTIME, PlanDraft


def best_kernels(draft: PlanDraft) -> PlanDraft:
    """A draft in which every node runs by its published kernel that takes less time than ONNX Runtime, which
    would run it otherwise, took alone (than the default, where that is not known). In its place in a model a
    node may take less."""
    chosen = dict(draft.chosen)
    for number, node in enumerate(draft.structure.nodes):
        found = draft.published.get(node.operator)
        kernel = found.kernel if found is not None else None
        if found is None or kernel is None or kernel.median_us >= found.left_us:
            continue
        by = ByKernel(node.operator, kernel.artifact, node.tensors, kernel.said)
        said = ALONE if found.onnxruntime_us is None else BY_ONNX_RUNTIME
        chosen[number] = NodeChoice(by, kernel.median_us, (Alternative(said, found.left_us),))
    return replace(draft, chosen=chosen)
