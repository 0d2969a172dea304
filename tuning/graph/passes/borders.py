"""Drops kernels that do not pay for their cuts (:mod:`opatlas.plan.cuts`), if a profile says what cuts cost.
PURE."""

from __future__ import annotations

from dataclasses import replace

from opatlas.graph.linked import NodeAt
from opatlas.plan.cuts import worth_their_cuts
from opatlas.plan.making import NodeChoice
from tuning.graph.passes.draft import PlanDraft


def worth_their_borders(draft: PlanDraft) -> PlanDraft:
    """The draft with the kernels that make the whole cheaper, region borders included. Channels-last units
    stay."""
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
