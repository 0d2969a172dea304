"""The first pass: each node by its published kernel, if that is faster than ONNX Runtime. PURE."""

from __future__ import annotations

from dataclasses import replace

from opatlas.plan.plan import IN_PLACE, Alternative
from tuning.graph.passes.draft import ALONE, BY_ONNX_RUNTIME, PlanDraft


def best_kernels(draft: PlanDraft) -> PlanDraft:
    """A draft in which every node runs by its published kernel if that is faster than ONNX Runtime, which
    would run it otherwise: in place, if a profile has that time, else alone, where it may be slower than in
    place (than the default, if neither is known)."""
    chosen = dict(draft.chosen)
    for number, node in enumerate(draft.structure.nodes):
        found, left_us = draft.published.get(node.operator), draft.left_us(number)
        kernel = found.kernel if found is not None else None
        if found is None or kernel is None or left_us is None or kernel.median_us >= left_us:
            continue
        said = ALONE if found.onnxruntime_us is None else BY_ONNX_RUNTIME
        said = IN_PLACE if number in draft.in_place else said
        chosen[number] = kernel.choice(node.operator, node.tensors, Alternative(said, left_us))
    return replace(draft, chosen=chosen)
