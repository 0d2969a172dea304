"""Nodes, how they hang together, and what types their values have: a model's, or its structure's. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opatlas.graph.linked import LEFT_OUT, BodyPath, Linked
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import ModelStructure, carried_by
from opatlas.graph.types import TensorType
from opatlas.identity.operator_types import types_with

RANK = 4
"""Dimensions of a picture."""
_POINTWISE = types_with("pointwise")


@dataclass(frozen=True)
class HandedValue:
    """What a branch or loop hands on at one place of its outputs: ``begins``, an outer value, is ``formal``
    in a loop's body (both LEFT_OUT of a branch); ``becomes``: what each body makes of it; ``output``: the
    outer value, LEFT_OUT where nobody wants it."""

    begins: int
    formal: int
    becomes: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class TypedBody:
    """``formal``: its numbers of what its node gives it; ``captured``: its numbers of outer values that only
    a run knows, with theirs outside."""

    graph: TypedNodes
    formal: tuple[int, ...]
    captured: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TypedNodes:
    """``types``: of nodes; ``operators``: nodes that are operators of the catalogue; ``bodies``: of branches
    and loops that can be taken apart; ``carried``: how many values these carry from round to round."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: Sequence[Linked]
    types: Sequence[str]
    operators: frozenset[int]
    type_of: Callable[[int], TensorType | None]
    is_constant: Callable[[int], bool]
    bodies: Mapping[int, tuple[TypedBody, ...]] = field(default_factory=dict)
    carried: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of_graph(cls, graph: ModelGraph) -> TypedNodes:
        numbers = range(len(graph.nodes))
        return cls(
            graph.inputs, graph.outputs, graph.nodes, [node.proto.op_type for node in graph.nodes],
            frozenset(one for one in numbers if graph.operator(one) is not None),
            graph.type_of, graph.is_constant,
            {
                at: tuple(TypedBody(cls.of_graph(one.graph), one.formal, one.captured) for one in node.bodies)
                for at, node in enumerate(graph.nodes)
                if node.bodies
            },
            {at: carried_by(node) for at, node in enumerate(graph.nodes) if node.bodies},
        )  # fmt: skip

    @classmethod
    def of_structure(cls, structure: ModelStructure) -> TypedNodes:
        return cls(
            structure.inputs, structure.outputs, structure.nodes,
            [node.op_type for node in structure.nodes],
            frozenset(at for at, node in enumerate(structure.nodes) if node.operator),
            structure.types.__getitem__, structure.constants.__contains__,
            {
                at: tuple(
                    TypedBody(cls.of_structure(one.graph), one.formal, one.captured) for one in node.bodies
                )
                for at, node in enumerate(structure.nodes)
                if node.bodies
            },
            {at: node.carried for at, node in enumerate(structure.nodes) if node.bodies},
        )  # fmt: skip

    @cached_property
    def readers(self) -> dict[int, set[int]]:
        """Of each value, the nodes that read it."""
        found: dict[int, set[int]] = {}
        for at, node in enumerate(self.nodes):
            for value in node.reads:
                found.setdefault(value, set()).add(at)
        return found

    def kind(self, value: int) -> TensorType:
        """Of what an operator reads or makes."""
        found = self.type_of(value)
        assert found is not None
        return found

    def output_of(self, unit: Sequence[int]) -> int:
        """The value that a unit makes."""
        return next(value for value in self.nodes[unit[-1]].outputs if value != LEFT_OUT)

    def read_by(self, unit: Sequence[int]) -> list[int]:
        """Values that only a run knows and a unit reads, each once, in order."""
        made = frozenset().union(*(self.nodes[node].makes for node in unit))
        read = dict.fromkeys(value for node in unit for value in self.nodes[node].inputs if value != LEFT_OUT)
        return [value for value in read if value not in made and not self.is_constant(value)]

    def misfit(self, unit: Sequence[int]) -> str:
        """Why these nodes cannot run channels-last as one, in words; empty where they can."""
        if not unit or sorted(set(unit)) != list(unit) or not 0 <= unit[0] <= unit[-1] < len(self.nodes):
            return f"it must name some of the model's {len(self.nodes)} nodes in their order"
        if strange := [node for node in unit if node not in self.operators or self.nodes[node].captured]:
            return f"node {strange[0]} is no operator"
        touched = frozenset().union(*(self.nodes[node].reads | self.nodes[node].makes for node in unit))
        if any(self.type_of(value) is None for value in touched):
            return "a type of it is only known when the model runs"
        made = [value for value in self.nodes[unit[-1]].outputs if value != LEFT_OUT]
        if len(made) != 1:
            return f"its last node makes {len(made)} values"
        inner = set().union(*(self.nodes[node].makes for node in unit)) - set(made)
        if any(not self.readers.get(value, set()) <= set(unit) for value in inner):
            return "what it makes within is read outside"
        if not inner.isdisjoint(self.outputs):
            return "what it makes within leaves the model"
        if len(self.kind(made[0]).shape) != RANK or not self.turned(unit):
            return f"it reads or makes no value of {RANK} dimensions"
        return ""

    def goes_by_element(self, unit: Sequence[int]) -> bool:
        """Whether each element of all that it makes is made of those in the same place, and of numbers."""
        shape = self.kind(self.output_of(unit)).shape

        def fits(value: int) -> bool:
            kind = self.kind(value)
            return kind.size == 1 or (kind.shape == shape and not self.is_constant(value))

        return all(
            self.types[node] in _POINTWISE
            and all(self.kind(value).shape == shape for value in self.nodes[node].makes)
            and all(fits(value) for value in self.nodes[node].reads)
            for node in unit
        )

    def turned(self, unit: Sequence[int]) -> list[int]:
        """Values that a unit reads channels-last."""
        read = [value for value in self.read_by(unit) if len(self.kind(value).shape) == RANK]
        if not self.goes_by_element(unit):
            return read
        return [value for value in read if self.kind(value).shape == self.kind(self.output_of(unit)).shape]

    # ---- branches and loops -------------------------------------------------------------------------

    def within(self, body: BodyPath) -> TypedNodes:
        """A body's nodes, the model's own for ``()``."""
        return self if not body else self.bodies[body[0]][body[1]].graph.within(body[2:])

    def number_within(self, value: int, body: BodyPath) -> int:
        """What a value that a body reads is called there. Raises ``KeyError`` where it does not."""
        if not body:
            return value
        inner = self.bodies[body[0]][body[1]]
        own = {outer: own for own, outer in inner.captured}
        return inner.graph.number_within(own[value], body[2:])

    def first_carried(self, node: int) -> int:
        """Which of a loop's inputs begins its first carried value: a Loop has a count and a condition before
        it. Its body is given as many before, and makes one less."""
        return 2 if self.types[node] == "Loop" else 0

    def handed(self, node: int) -> list[HandedValue]:
        """By place among the outputs: all that a branch makes, or what a loop carries."""
        bodies, outputs = self.bodies[node], self.nodes[node].outputs
        if self.types[node] == "If":
            return [
                HandedValue(LEFT_OUT, LEFT_OUT, tuple(one.graph.outputs[place] for one in bodies), output)
                for place, output in enumerate(outputs)
            ]
        [body], first, inputs = bodies, self.first_carried(node), self.nodes[node].inputs
        made = body.graph.outputs[first // 2 :]
        return [
            HandedValue(inputs[first + place], body.formal[first + place], (made[place],), outputs[place])
            for place in range(self.carried[node])
        ]

    def can_be_turned(self, node: int, place: int) -> bool:
        """Whether what is handed on there is, wherever it lies, a picture that only a run knows."""
        if not 0 <= place < len(every := self.handed(node)):
            return False
        one, bodies = every[place], self.bodies[node]
        found = [self._is_picture(value) for value in (one.begins, one.output) if value != LEFT_OUT]
        if one.formal != LEFT_OUT:
            found.append(bodies[0].graph._is_picture(one.formal))
        made = zip(bodies, one.becomes, strict=True)
        return all(found) and all(body.graph._is_picture(value) for body, value in made)

    def _is_picture(self, value: int) -> bool:
        kind = self.type_of(value)
        return kind is not None and len(kind.shape) == RANK and not self.is_constant(value)
