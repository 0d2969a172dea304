"""Kernels that do not pay for the cuts which they make run in no plan (:mod:`opatlas.plan.cuts`), where a
profile says what cuts cost. PURE."""

from __future__ import annotations

from dataclasses import replace

from opatlas.graph.linked import NodeAt
from opatlas.plan.cuts import worth_their_cuts
from opatlas.plan.making import NodeChoice
from tuning.graph.passes.draft import PlanDraft


def worth_their_borders(draft: PlanDraft) -> PlanDraft:
    """A draft with those of its kernels that take less in all, ends of regions with them. What runs
    channels-last stays."""
    if draft.borders is None or not draft.chosen:
        return draft
    kept = worth_their_cuts(
        draft.structure,
        dict[NodeAt, NodeChoice](draft.chosen.items()),
        lambda node: draft.left_us(node) or 0.0,
        draft.cut,
        draft.borders,
        {last for last, one in draft.chosen.items() if draft.assumed.keys() & {last, *one.fused}},
    )
    return replace(draft, chosen={at: one for at, one in draft.chosen.items() if at in kept})
