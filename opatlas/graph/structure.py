"""A model's structure without its weights: what plans are made from where the model itself is not. PURE.

Nodes and values have the numbers of the model's normal form (:class:`opatlas.graph.normal.ModelGraph`), so a
plan that is made from a structure is a plan of every model with its key. No attribute, no constant's value
and no byte of a weight is in it; what a node computes is said by its operator's key. A structure may come
from anybody: it is bounded, and checked when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opatlas import packing
from opatlas.errors import InvalidModel, printable
from opatlas.graph.linked import LEFT_OUT, Linked
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType

STRUCTURE_VERSION = 1
MOST_NODES = 20_000
MOST_LINKS = 400_000
"""Inputs and outputs of all nodes together: one node may name a million."""
MOST_VALUES = 200_000
MOST_RANK = 32
MOST_NAME = 100
"""Characters of a node's name and type: whoever wrote the model chose them."""
MOST_BYTES = 64 << 20
"""Of a structure's JSON, unpacked."""
_MODEL_KEY = re.compile(r"m1:[0-9a-f]{64}")
_OPERATOR_KEY = re.compile(r"o1:[0-9a-f]{64}")


@dataclass(frozen=True)
class StructureNode(Linked):
    """One node. ``operator``: its key, empty where it is none; ``tensors``: the value that each of the
    operator's tensor inputs is."""

    op_type: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...] = ()
    operator: str = ""
    tensors: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelStructure:
    """``inputs`` and ``outputs`` are what a run is given and gives; ``nodes`` stand in an order in which they
    can run. ``types``: of each value, None where only a run knows its shape; ``beginnings``: of those, where
    a part of the model may begin all the same."""

    key: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[StructureNode, ...]
    types: tuple[TensorType | None, ...]
    constants: frozenset[int] = field(default_factory=frozenset)
    beginnings: frozenset[int] = field(default_factory=frozenset)

    @property
    def operators(self) -> dict[str, list[int]]:
        """Nodes by the key of their operator."""
        found: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            if node.operator:
                found.setdefault(node.operator, []).append(number)
        return found

    def can_begin_at(self, number: int) -> bool:
        return self.types[number] is not None or number in self.beginnings

    def to_json(self) -> dict[str, Any]:
        keys = {key: at for at, key in enumerate(self.operators)}
        return {
            "structure": STRUCTURE_VERSION,
            "model": self.key,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "values": [one and [one.element, *one.shape] for one in self.types],
            "constants": sorted(self.constants),
            "beginnings": sorted(self.beginnings),
            "operators": list(keys),
            "nodes": [
                {
                    "op": node.op_type,
                    "name": node.name,
                    "inputs": list(node.inputs),
                    "outputs": list(node.outputs),
                    "captured": list(node.captured),
                    "operator": keys[node.operator] if node.operator else None,
                    "tensors": list(node.tensors),
                }
                for node in self.nodes
            ],
        }

    @classmethod
    def from_json(cls, document: Any) -> ModelStructure:
        """Raises :class:`InvalidModel` with one sentence for what is no structure: broken, of another
        version, beyond the bounds, or with nodes that cannot run in their order."""
        if not isinstance(document, Mapping):
            raise InvalidModel(f"A model's structure is a JSON object, not {type(document).__name__}.")
        if type(document.get("structure")) is not int or document["structure"] != STRUCTURE_VERSION:
            said = str(document.get("structure"))[:20]
            raise InvalidModel(f"The structure is of version {said}; version {STRUCTURE_VERSION} is read.")
        values, nodes = _list(document, "values", MOST_VALUES), _list(document, "nodes", MOST_NODES)
        operators = [_key(one, _OPERATOR_KEY, "operator") for one in _list(document, "operators", MOST_NODES)]
        count = len(values)
        made = cls(
            _key(document.get("model"), _MODEL_KEY, "model"),
            _numbers(document, "inputs", count),
            _numbers(document, "outputs", count),
            tuple(_node(at, one, operators, count) for at, one in enumerate(nodes)),
            tuple(map(_type, values)),
            frozenset(_numbers(document, "constants", count)),
            frozenset(_numbers(document, "beginnings", count)),
        )
        _check_order(made)
        return made

    def packed(self) -> bytes:
        """As it is stored."""
        return packing.packed(self.to_json())

    @classmethod
    def unpacked(cls, data: bytes) -> ModelStructure:
        """Of what :meth:`packed` gave. Raises :class:`InvalidModel`."""
        try:
            return cls.from_json(packing.unpacked(data, MOST_BYTES))
        except (ValueError, RecursionError) as error:
            raise InvalidModel(f"The structure cannot be read: {error}.") from None


def structure_of(graph: ModelGraph) -> ModelStructure:
    """The structure of a model. Raises :class:`InvalidModel` for one beyond the bounds."""
    links = sum(len(node.inputs) + len(node.outputs) + len(node.captured) for node in graph.nodes)
    for count, most, what in (
        (len(graph.nodes), MOST_NODES, "nodes"),
        (links, MOST_LINKS, "inputs and outputs of nodes"),
        (len(graph.names), MOST_VALUES, "values"),
    ):
        if count > most:
            raise InvalidModel(f"The model has {count} {what}; structures of up to {most} are kept.")
    types = tuple(graph.type_of(number) for number in range(len(graph.names)))
    return ModelStructure(
        graph.key,
        graph.inputs,
        graph.outputs,
        tuple(_structure_node(graph, number) for number in range(len(graph.nodes))),
        types,
        frozenset(number for number in range(len(types)) if graph.is_constant(number)),
        frozenset(number for number, kind in enumerate(types) if kind is None and graph.can_begin_at(number)),
    )


def _structure_node(graph: ModelGraph, number: int) -> StructureNode:
    node = graph.nodes[number]
    found = graph.operator(number)
    return StructureNode(
        printable(node.proto.op_type[: 4 * MOST_NAME], MOST_NAME),
        printable((node.proto.name or next(iter(node.proto.output), ""))[: 4 * MOST_NAME], MOST_NAME),
        node.inputs,
        node.outputs,
        node.captured,
        found[0].operator.key if found else "",
        found[1] if found else (),
    )


def _numbers(document: Any, name: str, count: int, least: int = 0) -> tuple[int, ...]:
    """Values by their numbers; ``count``: how many there are."""
    found = _list(document, name, MOST_LINKS)
    if not all(type(one) is int and least <= one < count for one in found):
        raise InvalidModel(f"'{name}' must be numbers of the structure's {count} values.")
    return tuple(found)


def _list(document: Any, name: str, most: int) -> Sequence[Any]:
    found = document.get(name)
    if not isinstance(found, list) or len(found) > most:
        raise InvalidModel(f"'{name}' must be a list of at most {most}.")
    return found


def _key(text: Any, form: re.Pattern[str], what: str) -> str:
    if not isinstance(text, str) or not form.fullmatch(text):
        raise InvalidModel(f"{str(text)[:40]!r} is no key of a{'n' * (what == 'operator')} {what}.")
    return text


def _node(at: int, document: Any, operators: Sequence[str], count: int) -> StructureNode:
    if not isinstance(document, Mapping):
        raise InvalidModel(f"Node {at} of the structure is no JSON object.")
    names = [document.get(one) for one in ("op", "name")]
    if not all(isinstance(one, str) and len(one) <= MOST_NAME and one.isprintable() for one in names):
        raise InvalidModel(
            f"Node {at} of the structure needs an op and a name of at most {MOST_NAME} printable characters."
        )
    number = document.get("operator")
    if number is not None and not (type(number) is int and 0 <= number < len(operators)):
        raise InvalidModel(f"Node {at} of the structure names an operator that is not listed.")
    return StructureNode(
        str(names[0]),
        str(names[1]),
        _numbers(document, "inputs", count, LEFT_OUT),
        _numbers(document, "outputs", count, LEFT_OUT),
        _numbers(document, "captured", count),
        "" if number is None else operators[number],
        _numbers(document, "tensors", count),
    )


def _type(value: Any) -> TensorType | None:
    if value is None:
        return None
    sizes = isinstance(value, list) and all(type(one) is int and 0 <= one < 2**63 for one in value)
    if not sizes or not 1 <= len(value) <= 1 + MOST_RANK or value[0] > 1000:
        raise InvalidModel(
            "A value of the structure is null, or ONNX's number of its element type and sizes."
        )
    return TensorType(value[0], tuple(value[1:]))


def _check_order(made: ModelStructure) -> None:
    """Every value is there before it is read, and made once."""
    links = sum(len(node.inputs) + len(node.outputs) + len(node.captured) for node in made.nodes)
    if links > MOST_LINKS:
        raise InvalidModel(f"The structure has {links} inputs and outputs of nodes; at most {MOST_LINKS}.")
    if not made.nodes or not made.outputs:
        raise InvalidModel("The structure has no nodes, or no outputs.")
    ready = set(made.inputs) | made.constants
    for at, node in enumerate(made.nodes):
        if late := node.reads - ready:
            raise InvalidModel(f"Node {at} of the structure reads value {min(late)} before it is made.")
        if again := node.makes & ready:
            raise InvalidModel(
                f"Node {at} of the structure makes value {min(again)}, which is there already."
            )
        ready |= node.makes
    if missing := [number for number in made.outputs if number not in ready]:
        raise InvalidModel(f"Nothing of the structure makes its output, value {missing[0]}.")
