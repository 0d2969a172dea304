"""Operators where they stand in a graph, and several nodes as one operator. PURE.

A fused operator is made of the canonical operators of its nodes, so that whoever has the model and whoever
has its structure and the operators alone come to the same key, whatever model the nodes are from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.errors import InvalidOperator
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.normal import ModelGraph
from opatlas.identity.operator import OPSET, Operator
from opatlas.identity.parse import parse_canonical


@dataclass(frozen=True)
class PlacedOperator:
    """A canonical operator in a graph: the value that each of its tensor inputs is, and each of its
    outputs."""

    operator: Operator
    tensors: tuple[int, ...]
    outputs: tuple[int, ...]


def operator_of(graph: ModelGraph, nodes: Collection[int], outputs: Sequence[int]) -> PlacedOperator:
    """The operator that some of a model's nodes are together. ``outputs``: the values that are wanted of
    them; of one node it is all that it makes. Raises :class:`opatlas.errors.InvalidOperator` where they are
    none."""
    parts = []
    for number in sorted(nodes):
        found = graph.operator(number)
        if found is None:
            raise InvalidOperator(f"Node {number} ({graph.nodes[number].proto.op_type}) is no operator.")
        made = tuple(value for value in graph.nodes[number].outputs if value != LEFT_OUT)
        parts.append(PlacedOperator(found[0].operator, found[1], made))
    return parts[0] if len(parts) == 1 else fused(parts, outputs)


def fused(parts: Sequence[PlacedOperator], outputs: Sequence[int]) -> PlacedOperator:
    """Several operators as one, in an order in which they can run; ``outputs``: what is wanted of what they
    make. What one makes and another reads is inside, and a value that several read is one input.

    Raises :class:`opatlas.errors.InvalidOperator` where they are no operator together: an output that none of
    them makes, or more nodes than one may have (:data:`opatlas.identity.bounds.MAX_NODES`).
    """
    made = {value for part in parts for value in part.outputs}
    if missing := [value for value in outputs if value not in made]:
        raise InvalidOperator(f"None of the nodes makes the value {missing[0]}, which is to be an output.")
    graph = _NumberedGraph()
    own = [graph.add_inputs(part, made) for part in parts]
    for part, data in zip(parts, own, strict=True):
        graph.add_nodes(part, data)
    wanted = {graph.numbers[value]: value for value in outputs}
    document = {"opset": OPSET, "inputs": graph.inputs, "nodes": graph.nodes, "outputs": list(wanted)}
    found = parse_canonical(document)
    read = (_number(found.inputs[number]) for number in found.operator.tensor_inputs)
    return PlacedOperator(
        found.operator,
        tuple(graph.values[number] for number in read),
        tuple(wanted[_number(name)] for name in found.outputs),
    )


class _NumberedGraph:
    """A document of :mod:`opatlas.identity.parse` in the making. ``numbers``: of the graph's values in it;
    ``values``: what each of its inputs is, ``LEFT_OUT`` for data that a node has for itself."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}
        self.values: list[int] = []
        self._made = 0

    def add_inputs(self, part: PlacedOperator, made: Collection[int]) -> dict[int, int]:
        """Those of a part that no part makes; gives the numbers of its own data, by its numbers."""
        value_of = dict(zip(part.operator.tensor_inputs, part.tensors, strict=True))
        own = {}
        for number, described in enumerate(part.operator.to_json()["inputs"]):
            value = value_of.get(number, LEFT_OUT)
            if value in made or value in self.numbers:
                continue
            if value == LEFT_OUT:
                own[number] = len(self.inputs)
            else:
                self.numbers[value] = len(self.inputs)
            self.inputs.append(described)
            self.values.append(value)
        return own

    def add_nodes(self, part: PlacedOperator, own: Mapping[int, int]) -> None:
        """Once all inputs are there: they have the first numbers."""
        operator = part.operator
        for value in part.outputs:
            self.numbers[value] = self._new()
        places = zip(
            (*operator.tensor_inputs, *operator.outputs), (*part.tensors, *part.outputs), strict=True
        )
        numbers = {**own, LEFT_OUT: LEFT_OUT} | {number: self.numbers[value] for number, value in places}
        for node in operator.nodes:
            for number in node.outputs:
                if number not in numbers:
                    numbers[number] = self._new()
            self.nodes.append(
                {
                    "op": node.op,
                    "domain": node.domain,
                    "inputs": [numbers[number] for number in node.inputs],
                    "outputs": [numbers[number] for number in node.outputs],
                    "attrs": node.attributes,
                }
            )

    def _new(self) -> int:
        self._made += 1
        return len(self.inputs) + self._made - 1


def _number(name: str | None) -> int:
    """In what the reader of documents calls a value: ``inputs[3]``, ``value 7``."""
    assert name is not None  # a tensor always has one
    return int(name.removeprefix("inputs[").removesuffix("]").removeprefix("value "))
