"""A draft of a model as a draft of its laid-out form. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from opatlas.graph.channels_last import NOTHING, ChannelsLast
from opatlas.graph.fused import PlacedOperator
from opatlas.graph.laid_out import AS_GIVEN, FROM_NHWC, TURNED, LaidNode, LaidOutForm, LaidValue
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.structure import ModelStructure, StructureBody, StructureNode
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import Alternative, ByKernel
from tuning.graph.layout.forms import LayoutForm, transpose
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.passes.draft import BY_ONNX_RUNTIME, AssumedTimes, KnownOperator, PlanDraft

IN_ROW_MAJOR = "in row-major, alone, not in place"
"""The label of the alternative to a channels-last unit."""


class RelaidDraft:
    """For a model, or one of its bodies: ``nhwc`` says what is channels-last in ``form``."""

    def __init__(
        self,
        draft: PlanDraft,
        model: TypedNodes,
        form: LaidOutForm,
        nhwc: ChannelsLast,
        reorders: ReorderCosts,
    ) -> None:
        self._draft, self._model, self._form = draft, model, form
        self._nhwc, self._reorders = nhwc, reorders
        forms = {one.nodes: one for one in draft.forms}
        self._forms = [forms[unit] for unit in nhwc.own_units]
        self._chosen = dict[int, NodeChoice]()
        self._together, self._groups = dict[int, float](), dict[int, tuple[int, ...]]()
        self._assumed = dict[int, AssumedTimes]()
        self._bodies = dict[tuple[int, int], PlanDraft]()

    def made(self) -> PlanDraft:
        self._keep_row_major()
        for one, nodes in zip(self._forms, self._form.units, strict=True):
            self._lay_out(one, nodes)
        for node in self._form.reorders:
            self._reorder(node)
        for node, laid in enumerate(self._form.nodes):
            self._relay_bodies(node, laid)
        return replace(
            self._draft, apart={}, structure=replace(self._structure(), nhwc=self._nhwc), chosen=self._chosen,
            together=self._together, groups=self._groups, assumed=self._assumed, bodies=self._bodies,
            in_place={self._form.node[at]: us for at, us in self._draft.in_place.items()},
        )  # fmt: skip

    def _relay_bodies(self, node: int, laid: LaidNode) -> None:
        """Bodies without a changed layout stay as they are."""
        for which in range(len(self._model.bodies.get(laid.origin, ()))):
            inner = self._draft.bodies[laid.origin, which]
            if laid.bodies:
                body, form = self._model.bodies[laid.origin][which], laid.bodies[which].graph
                nhwc = self._nhwc.bodies.get((laid.origin, which), NOTHING)
                inner = RelaidDraft(inner, body.graph, form, nhwc, self._reorders).made()
                # What of a body lies channels-last is said by the model alone.
                inner = replace(inner, structure=replace(inner.structure, nhwc=NOTHING))
            self._bodies[node, which] = inner

    # ---- choices ------------------------------------------------------------------------------------

    def _keep_row_major(self) -> None:
        laid = {node for one in self._forms for node in one.nodes}
        new = self._form.node
        for last, choice in self._draft.chosen.items():
            if last not in laid:
                fused = tuple(new[node] for node in choice.fused)
                self._chosen[new[last]] = replace(choice, by=self._moved(choice.by), fused=fused)
        for node, us in self._draft.together.items():
            if node not in laid:
                self._together[new[node]] = us
        for last, nodes in self._draft.groups.items():
            if last not in laid:
                self._groups[new[last]] = tuple(new[node] for node in nodes)

    def _moved(self, by: ByKernel) -> ByKernel:
        return replace(by, tensors=tuple(self._number(value) for value in by.tensors))

    def _number(self, value: int, is_turned: bool = False) -> int:
        return self._form.number[LaidValue(value, TURNED if is_turned else AS_GIVEN)]

    def _lay_out(self, one: LayoutForm, nodes: tuple[int, ...]) -> None:
        """By its kernel or in ONNX Runtime, whichever is faster."""
        for node in nodes:
            self._assumed[node] = self._assumed_in(node)
        known = self._draft.published.get(one.placed.operator.key)
        if known is None and len(nodes) == 1:  # by element, as in row-major
            return
        if known is None or known.is_left:  # several by element: as ONNX Runtime does them in row-major
            left = known or self._draft.known_fused(one.nodes)
            assert left is not None and left.onnxruntime_us is not None  # else it had no time
            self._together |= dict.fromkeys(nodes, 0.0) | {nodes[-1]: left.onnxruntime_us}
            self._groups[nodes[-1]] = nodes
            return
        kernel = known.kernel
        assert kernel is not None  # or it were left
        tensors = tuple(self._number(value, value in one.turned) for value in one.placed.tensors)
        over = Alternative(IN_ROW_MAJOR, self._draft.row_major_us(one.nodes) or 0.0)
        fused = nodes if len(nodes) > 1 else ()
        self._chosen[nodes[-1]] = kernel.choice(one.placed.operator.key, tensors, over, fused)

    def _assumed_in(self, node: int) -> AssumedTimes:
        """Of a node in a unit: its time in the model as it was given, and nothing for Transposes."""
        origin = self._form.nodes[node].origin
        if origin == LEFT_OUT:
            return AssumedTimes(0.0, 0.0)
        return AssumedTimes(self._draft.default_us(origin), self._draft.left_us(origin), is_estimate=True)

    def _reorder(self, node: int) -> None:
        laid = self._form.nodes[node]
        kind = self._model.kind(self._form.values[laid.inputs[0]].value)
        source, target = (NHWC, ROW_MAJOR) if laid.perm == FROM_NHWC else (ROW_MAJOR, NHWC)
        cost = self._reorders.cost(kind, source, target)
        self._assumed[node] = AssumedTimes(0.0, cost.us, cost.is_estimate)
        key = transpose(kind, source, target).key
        known: KnownOperator | None = self._draft.published.get(key)
        if known is not None and known.kernel is not None and known.kernel.median_us < known.left_us:
            over = Alternative(BY_ONNX_RUNTIME, known.left_us)
            self._chosen[node] = known.kernel.choice(key, laid.inputs, over)

    # ---- the structure ------------------------------------------------------------------------------

    def _structure(self) -> ModelStructure:
        base, form = self._draft.structure, self._form
        return ModelStructure(
            base.key,
            form.inputs,
            form.outputs,
            tuple(map(self._node, form.nodes)),
            tuple(form.kind(number, base.types.__getitem__) for number in range(len(form.values))),
            frozenset(at for at, one in enumerate(form.values) if one.value in base.constants),
            frozenset(
                at for at, one in enumerate(form.values) if not one.how and one.value in base.beginnings
            ),
        )

    @cached_property
    def _parts(self) -> Mapping[int, PlacedOperator]:
        """For each element-wise channels-last node of the model, its operator there."""
        by_element = (one for one in self._forms if one.parts)
        return {node: part for one in by_element for node, part in zip(one.nodes, one.parts, strict=True)}

    def _node(self, laid: LaidNode) -> StructureNode:
        if laid.origin == LEFT_OUT:
            kind = self._model.kind(self._form.values[laid.inputs[0]].value)
            layouts = (NHWC, ROW_MAJOR) if laid.perm == FROM_NHWC else (ROW_MAJOR, NHWC)
            key = transpose(kind, *layouts).key
            return StructureNode("Transpose", "", laid.inputs, laid.outputs, (), key, laid.inputs)
        base = self._draft.structure.nodes[laid.origin]
        moved = dict(zip(base.inputs, laid.inputs, strict=True))
        operator, tensors = base.operator, base.tensors
        if laid.origin in self._parts:
            part = self._parts[laid.origin]
            operator, tensors = part.operator.key, part.tensors
        return replace(
            base, inputs=laid.inputs, outputs=laid.outputs, captured=laid.captured, operator=operator,
            tensors=tuple(moved[one] for one in tensors), bodies=self._structure_bodies(base, laid),
        )  # fmt: skip

    def _structure_bodies(self, base: StructureNode, laid: LaidNode) -> tuple[StructureBody, ...]:
        if laid.bodies:
            node = self._form.node[laid.origin]
            return tuple(
                StructureBody(self._bodies[node, which].structure, one.formal, one.captured)
                for which, one in enumerate(laid.bodies)
            )
        return tuple(
            replace(one, captured=tuple((own, self._number(outer)) for own, outer in one.captured))
            for one in base.bodies
        )
