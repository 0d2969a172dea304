"""The alternatives of each node of a draft: alone or in an operator of several nodes, each in row-major or
channels-last. PURE."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from opatlas.graph.fusion.choosing import takes_less
from opatlas.graph.linked import BodyPath
from opatlas.plan.making import needed_nodes
from tuning.graph.layout.forms import LayoutForm
from tuning.graph.layout.names import ROW_MAJOR
from tuning.graph.layout.problem import MarkedCost
from tuning.graph.layout.units import LayoutUnit, RunUnit
from tuning.graph.passes.draft import PlanDraft
from tuning.graph.passes.fusion import heavy_nodes

MOST_OF_NODE = 8
"""The most operators of several nodes for one node, those that save most: tables of dynamic programming
multiply a node's alternatives by its neighbours'."""


class PlanUnits:
    """For a model's draft, or for one of its bodies'."""

    def __init__(self, draft: PlanDraft, body: BodyPath) -> None:
        self.draft, self.body = draft, body
        self._forms = {one.nodes: one for one in draft.forms}
        self._own = frozenset(draft.units.values())  # what is fused now
        self._inner = frozenset(node for unit in self._own for node in unit)
        self._single = {node: self._alone(node) for node in needed_nodes(draft.structure)}
        found = (self._fused(one.nodes) for one in draft.fusions)
        self._several = [one for one in found if one is not None]

    @cached_property
    def known(self) -> list[LayoutUnit]:
        """By published times."""
        return [*self._single.values(), *self._most_promising(self._several)]

    @property
    def unless_fused(self) -> list[LayoutUnit]:
        """The same without units that are not fused now."""
        return [one for one in self.known if len(one.nodes) == 1 or one.nodes in self._own]

    @property
    def own(self) -> list[RunUnit]:
        """What runs now, all in row-major."""
        return [
            (one, ROW_MAJOR)
            for one in self.unless_fused
            if len(one.nodes) > 1 or one.nodes[0] not in self._inner
        ]

    @cached_property
    def hoped(self) -> list[LayoutUnit]:
        """The best possible case: an unpublished unit takes as little channels-last as can be hoped."""
        several = [self._at_best(one) for one in self._several]
        return [*map(self._at_best, self._single.values()), *self._most_promising(several)]

    def asked(self, unit: LayoutUnit) -> tuple[str, float]:
        """The channels-last operator of a hoped unit, and the most that it might save over all its runs: all
        its present time or, for nodes that are not fused now, the excess of their own best times over the
        hoped one."""
        us = self.draft.row_major_us(unit.nodes) or 0.0
        if len(unit.nodes) > 1 and unit.nodes not in self._own and unit.nhwc is not None:
            us = min(us, math.fsum(map(self._least_us, unit.nodes))) - unit.nhwc.us
        return self._forms[unit.nodes].placed.operator.key, self.draft.runs * us

    # ---- times --------------------------------------------------------------------------------------

    def _alone(self, node: int) -> LayoutUnit:
        one = LayoutUnit((node,), self.draft.apart_us(node), body=self.body)
        if (form := self._forms.get(one.nodes)) is None or one.us is None:
            return one
        return replace(one, turned=form.turned, nhwc=self._nhwc(form, self.draft.left_apart_us(node)))

    def _fused(self, nodes: tuple[int, ...]) -> LayoutUnit | None:
        """The fused time, if it is below that of the single nodes in the same layout; None if these are
        unknown."""
        if not self._single.keys() >= set(nodes):
            return None
        parts = [self._single[node] for node in nodes]
        times = [part.us for part in parts if part.us is not None]
        if len(times) < len(parts):
            return None
        known = self.draft.known_fused(nodes)
        us = known.in_plan_us if known is not None else None
        is_less = us is not None and takes_less(us, math.fsum(times))
        one = LayoutUnit(nodes, us if is_less else None, body=self.body)
        if (form := self._forms.get(nodes)) is None:
            return one
        cost = self._nhwc(form, known.onnxruntime_us if known is not None else None)
        laid = [part.nhwc.us for part in parts if part.nhwc is not None]
        if cost is not None and len(laid) == len(parts) and not takes_less(cost.us, math.fsum(laid)):
            cost = None
        return replace(one, turned=form.turned, nhwc=cost)

    def _nhwc(self, form: LayoutForm, left_us: float | None) -> MarkedCost | None:
        """An element-wise node takes as long as in ONNX Runtime in row-major until its time is published.
        None if unknown, or nothing that runs in a plan has it."""
        known = self.draft.published.get(form.placed.operator.key)
        us = known.in_plan_us if known is not None else left_us if form.parts else None
        return None if us is None else MarkedCost(us, is_estimate=known is None)

    def _at_best(self, one: LayoutUnit) -> LayoutUnit:
        form, is_own = self._forms.get(one.nodes), one.nodes in self._own
        if form is None or form.placed.operator.key in self.draft.published:
            return one
        if len(one.nodes) > 1 and not is_own:
            return self._fused_at_best(one, form)
        if one.us is None or (not is_own and one.nodes[0] in self._inner):
            return one  # in what is fused now, the whole of which is asked for
        us = one.us if form.parts else 0.0  # by element no less than now
        return replace(one, turned=form.turned, nhwc=MarkedCost(us, is_estimate=True))

    def _fused_at_best(self, one: LayoutUnit, form: LayoutForm) -> LayoutUnit:
        """Fusion saves the traffic between its nodes, not their computation. The single nodes' operators are
        asked for first. Nothing is hoped of several products or convolutions: one kernel would have to be the
        fastest at each."""
        if any(map(self._is_open, one.nodes)) or len(heavy_nodes(self.draft, one.nodes)) > 1:
            return one
        us = self.draft.fused_us(one.nodes) if form.parts else None  # by element no less than in row-major
        least_us = max(map(self._least_us, one.nodes)) if us is None else us
        return replace(one, turned=form.turned, nhwc=MarkedCost(least_us, is_estimate=True))

    def _least_us(self, node: int) -> float:
        return min(cost.us for _, cost in self._single[node].ways)

    def _is_open(self, node: int) -> bool:
        form = self._forms.get((node,))
        return form is not None and not form.parts and form.placed.operator.key not in self.draft.published

    # ---- bounds -------------------------------------------------------------------------------------

    def _most_promising(self, several: Sequence[LayoutUnit]) -> list[LayoutUnit]:
        """All that can run, within the bound, and all that is fused now."""
        taken, kept = Counter[int](), list[LayoutUnit]()
        for one in sorted((one for one in several if one.ways), key=self._rank):
            if one.nodes in self._own or all(taken[node] < MOST_OF_NODE for node in one.nodes):
                taken.update(one.nodes)
                kept.append(one)
        return kept

    def _rank(self, one: LayoutUnit) -> tuple[bool, float]:
        parts_us = math.fsum(self._single[node].us or 0.0 for node in one.nodes)
        return one.nodes not in self._own, min(cost.us for _, cost in one.ways) - parts_us
