"""The drawing of a model's plan: steps as boxes, those of branches and loops in place, and the layouts of
values between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from dashboard.web.charts import plan as drawing
from dashboard.web.charts.drawing import shortened
from dashboard.web.charts.plan_edges import TURNED, PlanEdge
from opatlas.graph.laid_out import FROM_NHWC, TO_NHWC, LaidNode, LaidOutForm
from opatlas.graph.laid_out import TURNED as LIES_TURNED
from opatlas.graph.linked import LEFT_OUT
from opatlas.plan.plan import ByBodies, ByKernel, PlanStep
from tuning.graph.passes.draft import PlanDraft
from tuning.plan_choices import PlanChoice

_WAYS = {TO_NHWC: "row-major to channels-last", FROM_NHWC: "channels-last to row-major"}


class PlanDrawing:
    """A plan's steps as boxes, in ``steps``, and the ``edges`` between them that are channels-last or go
    through a reorder. ``form``: the laid-out form, if some of it is channels-last; ``within``: for a body,
    the drawing around it."""

    def __init__(
        self,
        draft: PlanDraft,
        by_key: Mapping[str, PlanChoice],
        form: LaidOutForm | None,
        within: PlanDrawing | None = None,
    ) -> None:
        self.steps: list[drawing.DrawnStep] = within.steps if within else []
        self.edges: list[PlanEdge] = within.edges if within else []
        self._draft, self._by_key, self._runs = draft, by_key, draft.runs
        self._unit_of = {node: unit for unit in (form.units if form else ()) for node in unit}
        self._step_of = dict[int, int]()  # number of the step that has a node
        self._form = form
        self._nodes: Sequence[LaidNode] = form.nodes if form else ()
        self._reorders = frozenset(form.reorders if form else ())

    def add_all(self, steps: Sequence[PlanStep]) -> None:
        for step in steps:
            self._add(step)
        self._add_edges()

    def _add(self, step: PlanStep) -> None:
        """One box for a step; for a region one for each stretch of one layout; for bodies their steps."""
        if isinstance(step.by, ByKernel):
            self._draw(step.nodes, self._kernel(step, step.by))
        elif isinstance(step.by, ByBodies):
            [node] = step.nodes
            self._step_of[node] = len(self.steps)
            laid = self._nodes[node].bodies if self._nodes else ()
            for which, plan in enumerate(step.by.plans):
                form = laid[which].graph if laid else None
                PlanDrawing(self._draft.bodies[node, which], self._by_key, form, self).add_all(plan.steps)
        else:
            for look, nodes in groupby(step.nodes, self._look):
                these = tuple(nodes)
                self._draw(these, self._left(look, these))

    def _draw(self, nodes: Sequence[int], step: drawing.DrawnStep) -> None:
        self._step_of |= dict.fromkeys(nodes, len(self.steps))
        before_us, after_us = self._runs * step.before_us, self._runs * step.after_us
        self.steps.append(replace(step, before_us=before_us, after_us=after_us))

    def _add_edges(self) -> None:
        """Edges for values between nodes; within a unit, and so within a step, they are as in the model."""
        made = {value: at for at, node in enumerate(self._nodes) for value in node.makes}
        for at, node in enumerate(self._nodes):
            for value in node.inputs:
                if value == LEFT_OUT or self._form is None:
                    continue
                maker = made.get(value)
                is_reorder = not self._reorders.isdisjoint((at, maker))
                if not is_reorder and self._form.values[value].how != LIES_TURNED:
                    continue
                if at not in self._step_of or (maker is not None and maker not in self._step_of):
                    continue  # what no output needs
                source = None if maker is None else self._step_of[maker]
                said = f"{self._called(maker)} → {self._called(at)}, {self._lies(value)}"
                mark = drawing.REORDER if is_reorder else TURNED
                self.edges.append(PlanEdge(source, self._step_of[at], mark, said))

    def _called(self, node: int | None) -> str:
        if node is None:
            return "from outside"
        return "Reorder" if node in self._reorders else _named(self._types(self._unit_of.get(node, (node,))))

    def _lies(self, value: int) -> str:
        assert self._form is not None
        return "channels-last" if self._form.values[value].how == LIES_TURNED else "row-major"

    def _look(self, node: int) -> str:
        return drawing.REORDER if node in self._reorders else "turned" if node in self._unit_of else ""

    def _kernel(self, step: PlanStep, by: ByKernel) -> drawing.DrawnStep:
        one, look = self._by_key[by.operator], self._look(step.nodes[0])
        before_us, after_us = self._before_us(step.nodes), step.predicted_us or 0.0
        if look == drawing.REORDER:
            said = f"{self._way(step.nodes)}, by {by.said}"
            return drawing.DrawnStep(look, "Reorder", shortened(said, 160), before_us, after_us)
        said = f"{'Channels-last: ' if look else ''}{one.summary} by {by.said}"
        return drawing.DrawnStep(
            one.method, _named(self._types(step.nodes)), shortened(said, 160), before_us, after_us, bool(look)
        )

    def _left(self, look: str, nodes: Sequence[int]) -> drawing.DrawnStep:
        before_us = self._before_us(nodes)
        after_us = sum(self._draft.left_us(node) or 0.0 for node in nodes)
        if look == drawing.REORDER:
            said = f"{self._way(nodes)}, left to ONNX Runtime"
            return drawing.DrawnStep(look, "Reorder", said, before_us, after_us)
        types = self._types(nodes)
        said = f"{'Channels-last: ' if look else ''}{_region(types)}"
        return drawing.DrawnStep(drawing.LEFT, _named(types), said, before_us, after_us, bool(look))

    def _before_us(self, nodes: Sequence[int]) -> float:
        return sum(self._draft.default_us(node) or 0.0 for node in nodes)

    def _types(self, nodes: Sequence[int]) -> list[str]:
        """Of the model's own nodes."""
        own = [node for node in nodes if not self._nodes or self._nodes[node].origin != LEFT_OUT]
        return [self._draft.structure.nodes[node].op_type for node in own or nodes]

    def _way(self, nodes: Sequence[int]) -> str:
        perms = {self._nodes[node].perm for node in nodes}
        ways = [said for perm, said in _WAYS.items() if perm in perms]
        return f"Reorder, {' and '.join(ways)}"


def _named(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"{types[0]} … {types[-1]}"


def _region(types: Sequence[str]) -> str:
    count = f"{len(types)} nodes, " if len(types) > 1 else ""
    return f"{count}{shortened(', '.join(types), 120)} left to ONNX Runtime"
