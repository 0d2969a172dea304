"""All passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from opatlas.plan.plan import InvalidPlan
from tuning.graph.passes.draft import PlanDraft, PlanPass
from tuning.graph.passes.fusion import fused_where_faster
from tuning.graph.passes.kernels import best_kernels
from tuning.graph.passes.layout import laid_out_where_faster

FUSION = "fusion"
"""The pass that needs the possible fusions."""
LAYOUT = "layout"
"""The pass that needs the possible channels-last units, single or fused, and that takes the model and its
bodies together; the others take each alone."""
PASSES: Mapping[str, PlanPass] = {
    "kernels": best_kernels,
    FUSION: fused_where_faster,
    LAYOUT: laid_out_where_faster,
}
UNLESS_NAMED = ("kernels",)
"""A page's passes unless its address names others: making a model's fused operators and looking them up takes
up to seconds."""


def passes_named(names: Collection[str] | None) -> tuple[str, ...]:
    """These passes in their order; for None the default ones. Raises :class:`InvalidPlan` for an unknown
    name."""
    if names is None:
        return UNLESS_NAMED
    if unknown := [name for name in names if name not in PASSES]:
        raise InvalidPlan(f"There is no pass {unknown[0][:40]!r}; there are: {', '.join(PASSES)}.")
    return tuple(name for name in PASSES if name in names)


def run_passes(draft: PlanDraft, names: Collection[str]) -> PlanDraft:
    """Run them one after the other."""
    for name in names:
        draft = PASSES[name](draft) if name == LAYOUT else _each(draft, PASSES[name])
    return draft


def _each(draft: PlanDraft, change: PlanPass) -> PlanDraft:
    return draft.each(lambda _, one: change(one))
