"""Several calls of an aten graph as one operator, as the service plans it: ``options={"plan": True}``.

The graph goes to the service as a structure, without weights; of the plan that it gives only what it fuses is
taken, and made again here of the calls' own operators: nothing that a plan says is believed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import fx
from torch.utils import _pytree as pytree

from opatlas.client.client import Client
from opatlas.dynamo.aten import AtenGraph
from opatlas.dynamo.operators import NodeOperator, made_by
from opatlas.errors import OpatlasError
from opatlas.graph.fused import PlacedOperator, fused
from opatlas.graph.fusion.candidates import POINTWISE
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.graph.types import TensorType
from opatlas.identity import Operator
from opatlas.identity.dtypes import CODES
from opatlas.plan.plan import ByKernel, ModelPlan
from opatlas.session.given_plan import ASKED_FUSIONS, made_by_service

PASSES = ("kernels", "fusion")


@dataclass(frozen=True)
class FusedCalls:
    """Calls in their order, of which the last makes what is read outside; ``read``: their operator."""

    nodes: tuple[fx.Node, ...]
    read: NodeOperator


def fused_calls(
    aten: AtenGraph, operators: Mapping[str, NodeOperator], weights: Collection[fx.Node], client: Client
) -> list[FusedCalls]:
    """What the service's plan fuses, no call twice. Raises :class:`OpatlasError` where it gives none."""
    numbered = NumberedCalls(aten, operators, weights)
    answer = made_by_service(client, numbered.structure(), PASSES, fusions=ASKED_FUSIONS)
    found, taken = list[FusedCalls](), set[fx.Node]()
    for step in ModelPlan.from_json(answer["plan"]).steps:
        if isinstance(step.by, ByKernel) and len(step.nodes) > 1:
            one = numbered.fused(step.nodes)
            if one.read.operator.key == step.by.operator and taken.isdisjoint(one.nodes):
                taken.update(one.nodes)
                found.append(one)
    return found


class NumberedCalls:
    """A graph's values by number: its inputs, what calls make, and constants that calls themselves say."""

    def __init__(
        self, aten: AtenGraph, operators: Mapping[str, NodeOperator], weights: Collection[fx.Node]
    ) -> None:
        self._aten, self._operators, self._weights = aten, operators, weights
        self._kinds: list[TensorType | None] = []
        self._values: dict[tuple[fx.Node, int], int] = {}  # by node and place among what it makes
        self._constants: dict[int, tuple[fx.Node, int]] = {}  # whose input of which number
        self._nodes: list[StructureNode] = []
        self._calls: list[fx.Node] = []
        self._placed: list[PlacedOperator | None] = []
        for node in aten.placeholders:
            self._define(node)
        for node in aten.calls:
            if node in weights:  # a view of one
                self._define(node)
            else:
                self._add(node)

    def structure(self) -> ModelStructure:
        """What the service plans."""
        graph = self._aten.module.graph
        [end] = [node for node in graph.nodes if node.op == "output"]
        left = [one for one in pytree.tree_leaves(end.args) if isinstance(one, fx.Node)]
        constants = {number for (node, _), number in self._values.items() if node in self._weights}
        inputs = [self._values[node, 0] for node in self._aten.placeholders if (node, 0) in self._values]
        outputs = dict.fromkeys(number for one in left if (number := self._value(one)) is not None)
        return ModelStructure(
            f"m1:{self._aten.digest()}",
            tuple(number for number in inputs if number not in constants),
            tuple(number for number in outputs if number not in constants),
            tuple(self._nodes),
            tuple(self._kinds),
            frozenset(constants | self._constants.keys()),
        )

    def fused(self, numbers: tuple[int, ...]) -> FusedCalls:
        """Calls by their numbers in the structure, as one. Raises :class:`OpatlasError` where they are no
        operator together."""
        if sorted(set(numbers)) != list(numbers) or not 0 <= numbers[0] <= numbers[-1] < len(self._calls):
            raise OpatlasError("The plan names calls that the graph does not have.")
        calls = [self._calls[number] for number in numbers]
        parts = [part for number in numbers if (part := self._placed[number]) is not None]
        if len(parts) < len(calls) or any(len(part.outputs) != 1 for part in parts):
            raise OpatlasError("The plan fuses calls that are no operators of one result.")
        inner = calls[:-1]
        if any(user not in calls for one in inner for user in one.users):
            raise OpatlasError("The plan fuses calls whose results are read elsewhere.")
        made = fused(parts, parts[-1].outputs)
        node_of = {self._value(one): one for call in calls for one in call.all_input_nodes}
        tensors, said = dict[int, fx.Node](), {}
        for number, value in zip(made.operator.tensor_inputs, made.tensors, strict=True):
            if value in self._constants:
                owner, of = self._constants[value]
                said[number] = self._operators[owner.name].numbers[of]
            else:
                tensors[number] = node_of[value]
        return FusedCalls(tuple(calls), NodeOperator(made.operator, tensors, said, (0,)))

    # ---- numbering ----------------------------------------------------------------------------------

    def _define(self, node: fx.Node) -> tuple[int, ...]:
        """Of each tensor that it makes a number."""
        found = []
        for place, value in enumerate(made_by(node)):
            if isinstance(value, torch.Tensor):
                self._values[node, place] = self._new(str(value.dtype), tuple(value.shape))
                found.append(self._values[node, place])
        return tuple(found)

    def _new(self, dtype: str, shape: tuple[int, ...]) -> int:
        code = CODES.get(dtype.removeprefix("torch."))
        self._kinds.append(TensorType(code, shape) if code is not None else None)
        return len(self._kinds) - 1

    def _value(self, node: fx.Node) -> int | None:
        if node.op == "call_function" and node.target.__name__ == "getitem":  # type: ignore[union-attr]
            owner, place = node.args
            return self._values.get((owner, place))  # type: ignore[arg-type]
        return self._values.get((node, 0))

    def _add(self, node: fx.Node) -> None:
        read = dict.fromkeys(
            number for one in node.all_input_nodes if (number := self._value(one)) is not None
        )
        operator = self._operators.get(node.name)
        tensors = self._tensors(node, operator) if operator is not None else None
        made = self._define(node)
        if operator is not None and tensors is not None and len(made) == len(operator.operator.outputs) == 1:
            found = operator.operator
            self._placed.append(PlacedOperator(found, tensors, made))
            inputs = tuple(dict.fromkeys((*read, *tensors)))
            kind, key = _type_of(found), found.key
        else:
            self._placed.append(None)
            inputs, tensors, kind, key = tuple(read), (), node.target.__name__, ""  # type: ignore[union-attr]
        self._calls.append(node)
        self._nodes.append(StructureNode(kind[:100], node.name[:100], inputs, made, (), key, tensors))

    def _tensors(self, node: fx.Node, found: NodeOperator) -> tuple[int, ...] | None:
        numbers = []
        for number in found.operator.tensor_inputs:
            if number in found.tensors:
                value = self._value(found.tensors[number])
                if value is None:
                    return None
                numbers.append(value)
            else:
                described = found.operator.inputs[number]
                numbers.append(self._new(described.dtype, described.shape))
                self._constants[numbers[-1]] = (node, number)
        return tuple(numbers)


def _type_of(operator: Operator) -> str:
    """What patterns go by: of a call that is several nodes, the first that is not elementwise."""
    return next((one for one in operator.op_types if one not in POINTWISE), operator.op_types[-1])
