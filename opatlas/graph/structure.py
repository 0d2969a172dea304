"""A model's structure without its weights: what plans are made from where the model itself is not. PURE.

Nodes and values have the numbers of the model's normal form (:class:`opatlas.graph.normal.ModelGraph`), so a
plan that is made from a structure is a plan of every model with its key. No attribute, no constant's value
and no byte of a weight is in it; what a node computes is said by its operator's key. The bodies of branches
and loops are structures in it; whoever wrote one before they were has none, and whoever does not know them
reads past them. A structure may come from anybody: it is bounded, and checked when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opatlas import packing
from opatlas.errors import InvalidModel, printable
from opatlas.graph.bodies import scan_form
from opatlas.graph.channels_last import NOTHING, ChannelsLast
from opatlas.graph.linked import LEFT_OUT, Linked
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.types import TensorType

STRUCTURE_VERSION = 1
MOST_NODES = 20_000
"""Those of bodies with them; so are values."""
MOST_DEPTH = 16
"""Bodies within bodies."""
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
    operator's tensor inputs is. ``bodies``: of a branch or loop, in the order then, else; ``carried``: how
    many values a Loop or Scan carries from one round to the next, first among its outputs."""

    op_type: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...] = ()
    operator: str = ""
    tensors: tuple[int, ...] = ()
    bodies: tuple[StructureBody, ...] = ()
    carried: int = 0


@dataclass(frozen=True)
class StructureBody:
    """As :class:`opatlas.graph.normal.GraphBody`, without weights."""

    graph: ModelStructure
    formal: tuple[int, ...]
    captured: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ModelStructure:
    """``inputs`` and ``outputs`` are what a run is given and gives; ``nodes`` stand in an order in which they
    can run. ``types``: of each value, None where only a run knows its shape; ``beginnings``: of those, where
    a part of the model may begin all the same. ``nhwc``: of the structure of a laid-out form
    (:mod:`opatlas.graph.laid_out`), which is never stored, what of its base lies channels-last."""

    key: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[StructureNode, ...]
    types: tuple[TensorType | None, ...]
    constants: frozenset[int] = field(default_factory=frozenset)
    beginnings: frozenset[int] = field(default_factory=frozenset)
    nhwc: ChannelsLast = NOTHING

    @property
    def operators(self) -> dict[str, list[int]]:
        """Its own nodes, without those of bodies, by the key of their operator."""
        found: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            if node.operator:
                found.setdefault(node.operator, []).append(number)
        return found

    @property
    def operator_keys(self) -> list[str]:
        """Of all nodes, those of bodies with them, each once."""
        own = dict.fromkeys(self.operators)
        for node in self.nodes:
            for body in node.bodies:
                own |= dict.fromkeys(body.graph.operator_keys)
        return list(own)

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
            "nodes": [node_json(node, keys) for node in self.nodes],
        }

    @classmethod
    def from_json(cls, document: Any) -> ModelStructure:
        """Raises :class:`InvalidModel` with one sentence for what is no structure: broken, of another
        version, beyond the bounds, or with nodes that cannot run in their order."""
        made = _structure(document, 0)
        _check_bounds(made)
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
    if len(graph.nodes) > MOST_NODES or len(graph.names) > MOST_VALUES:  # not to be made first
        raise _beyond(len(graph.nodes), 0, len(graph.names))
    made = _structure_of(graph)
    _check_bounds(made)
    return made


def _structure_of(graph: ModelGraph) -> ModelStructure:
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
        tuple(StructureBody(_structure_of(one.graph), one.formal, one.captured) for one in node.bodies),
        carried_by(node),
    )


def carried_by(node: GraphNode) -> int:
    """How many values a Loop or Scan that can be taken apart carries from one round to the next."""
    if not node.bodies or node.proto.op_type == "If":
        return 0
    return len(node.inputs) - 2 if node.proto.op_type == "Loop" else scan_form(node.proto).states


def node_json(node: StructureNode, keys: Mapping[str, int]) -> dict[str, Any]:
    """``keys``: numbers of operators."""
    document = {
        "op": node.op_type,
        "name": node.name,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "captured": list(node.captured),
        "operator": keys[node.operator] if node.operator else None,
        "tensors": list(node.tensors),
    }
    if not node.bodies:
        return document
    bodies = [
        {
            "graph": body.graph.to_json(),
            "formal": list(body.formal),
            "captured": [list(pair) for pair in body.captured],
        }
        for body in node.bodies
    ]
    return document | {"bodies": bodies, "carried": node.carried}


def _structure(document: Any, depth: int) -> ModelStructure:
    """``depth``: of a body's."""
    if not isinstance(document, Mapping):
        raise InvalidModel(f"A model's structure is a JSON object, not {type(document).__name__}.")
    if type(document.get("structure")) is not int or document["structure"] != STRUCTURE_VERSION:
        said = str(document.get("structure"))[:20]
        raise InvalidModel(f"The structure is of version {said}; version {STRUCTURE_VERSION} is read.")
    values, nodes = _list(document, "values", MOST_VALUES), _list(document, "nodes", MOST_NODES)
    operators = [_key(one, _OPERATOR_KEY, "operator") for one in _list(document, "operators", MOST_NODES)]
    count = len(values)
    made = ModelStructure(
        _key(document.get("model"), _MODEL_KEY, "model"),
        _numbers(document, "inputs", count),
        _numbers(document, "outputs", count),
        tuple(_node(at, one, operators, count, depth) for at, one in enumerate(nodes)),
        tuple(map(_type, values)),
        frozenset(_numbers(document, "constants", count)),
        frozenset(_numbers(document, "beginnings", count)),
    )
    _check_order(made, least=0 if depth else 1)
    return made


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


def _node(at: int, document: Any, operators: Sequence[str], count: int, depth: int) -> StructureNode:
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
    made = StructureNode(
        str(names[0]),
        str(names[1]),
        _numbers(document, "inputs", count, LEFT_OUT),
        _numbers(document, "outputs", count, LEFT_OUT),
        _numbers(document, "captured", count),
        "" if number is None else operators[number],
        _numbers(document, "tensors", count),
    )
    if "bodies" not in document:
        return made
    if depth >= MOST_DEPTH:
        raise InvalidModel(f"The structure's bodies are nested deeper than {MOST_DEPTH} levels.")
    bodies = tuple(_body(at, one, made, depth) for one in _list(document, "bodies", 2))
    carried = document.get("carried")
    if type(carried) is not int or not _fit(made, bodies, carried):
        raise InvalidModel(f"Node {at} of the structure has bodies that do not fit it.")
    return replace(made, bodies=bodies, carried=carried)


def _body(at: int, document: Any, node: StructureNode, depth: int) -> StructureBody:
    if not isinstance(document, Mapping):
        raise InvalidModel(f"A body of node {at} of the structure is no JSON object.")
    graph = _structure(document.get("graph"), depth + 1)
    pairs = _list(document, "captured", MOST_LINKS)
    given, outside = frozenset(graph.inputs), frozenset(node.captured)
    if not all(isinstance(pair, list) and [type(one) for one in pair] == [int, int] for pair in pairs) or any(
        own not in given or outer not in outside for own, outer in pairs
    ):
        raise InvalidModel(f"A body of node {at} of the structure captures what its node does not.")
    formal = _numbers(document, "formal", len(graph.types))
    return StructureBody(graph, formal, tuple((own, outer) for own, outer in pairs))


def _fit(node: StructureNode, bodies: Sequence[StructureBody], carried: int) -> bool:
    """Whether a node of its type may have these."""
    made = [len(body.graph.outputs) for body in bodies]
    given = [len(body.formal) for body in bodies]
    if any(set(one.graph.inputs) != {*one.formal, *(own for own, _ in one.captured)} for one in bodies):
        return False
    outputs, inputs = len(node.outputs), len(node.inputs)
    if node.op_type == "If":
        return made == [outputs] * 2 and given == [0, 0] and carried == 0
    if node.op_type == "Loop":
        fits = made == [outputs + 1] and given == [inputs] and carried == inputs - 2
    else:
        fits = node.op_type == "Scan" and made == [outputs] and given == [inputs] and carried < inputs
    return fits and 0 <= carried <= outputs


def _type(value: Any) -> TensorType | None:
    if value is None:
        return None
    sizes = isinstance(value, list) and all(type(one) is int and 0 <= one < 2**63 for one in value)
    if not sizes or not 1 <= len(value) <= 1 + MOST_RANK or value[0] > 1000:
        raise InvalidModel(
            "A value of the structure is null, or ONNX's number of its element type and sizes."
        )
    return TensorType(value[0], tuple(value[1:]))


def _check_bounds(made: ModelStructure) -> None:
    nodes, links, values = _size(made)
    if nodes > MOST_NODES or links > MOST_LINKS or values > MOST_VALUES:
        raise _beyond(nodes, links, values)


def _size(made: ModelStructure) -> tuple[int, int, int]:
    """Nodes, their inputs and outputs, and values, those of bodies with them."""
    links = sum(len(node.inputs) + len(node.outputs) + len(node.captured) for node in made.nodes)
    sizes = [(len(made.nodes), links, len(made.types))]
    sizes += [_size(body.graph) for node in made.nodes for body in node.bodies]
    nodes, links, values = map(sum, zip(*sizes, strict=True))
    return nodes, links, values


def _beyond(nodes: int, links: int, values: int) -> InvalidModel:
    for count, most, what in (
        (nodes, MOST_NODES, "nodes"),
        (links, MOST_LINKS, "inputs and outputs of nodes"),
        (values, MOST_VALUES, "values"),
    ):
        if count > most:
            return InvalidModel(f"The model has {count} {what}; structures of up to {most} are kept.")
    raise AssertionError("the structure is within the bounds")


def _check_order(made: ModelStructure, least: int) -> None:
    """Every value is there before it is read, and made once; there are so many nodes and outputs at
    ``least``."""
    if len(made.nodes) < least or len(made.outputs) < least:
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
