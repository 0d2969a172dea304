"""Models, tables and problems of layouts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opatlas.graph.linked import BodyPath, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from tuning.graph.layout.costing import costs_of
from tuning.graph.layout.problem import (
    InvalidLayouts,
    LayoutNode,
    LayoutOption,
    LayoutProblem,
    LayoutRead,
    LayoutValue,
    MarkedCost,
)

F = TensorProto.FLOAT


# ---- models -----------------------------------------------------------------------------------------


def of(kind: str, name: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """``inputs`` and ``outputs`` are names in a text; ``-`` is one that is left out."""
    given = ["" if one == "-" else one for one in inputs.split()]
    return helper.make_node(kind, given, outputs.split(), name=name, **attributes)


def body(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[str]) -> onnx.GraphProto:
    ends = [helper.make_value_info(one, onnx.TypeProto()) for one in outputs]
    return helper.make_graph(nodes, "body", inputs, ends)


def value(name: str, shape: Sequence[int] | None, element: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def built(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[str], **weights: Any
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "model",
        inputs,
        [helper.make_value_info(one, onnx.TypeProto()) for one in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def paths(graph: ModelGraph, within: BodyPath = ()) -> dict[str, NodePath]:
    """Where the node of each name is."""
    found = {}
    for number, node in enumerate(graph.nodes):
        found[node.proto.name] = (*within, number)
        for which, inner in enumerate(node.bodies):
            found |= paths(inner.graph, (*within, number, which))
    return found


# ---- tables -----------------------------------------------------------------------------------------


def option(us: float, inputs: str, outputs: str) -> LayoutOption:
    return LayoutOption(tuple(inputs.split()), tuple(outputs.split()), MarkedCost(us))


def same(**us: float) -> list[LayoutOption]:
    """Of an operator with one input and one output, in one layout: its times by layout."""
    return [option(time, layout, layout) for layout, time in us.items()]


@dataclass(frozen=True)
class Reorders:
    """Those that are known, whatever the size."""

    us: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def cost(self, kind: TensorType, source: str, target: str) -> MarkedCost | None:
        known = self.us.get((source, target))
        return None if known is None else MarkedCost(known)


# ---- problems ---------------------------------------------------------------------------------------

LAYOUTS = ("A", "B", "C")
BODIES: tuple[BodyPath, ...] = ((), (9, 0), (9, 1), (9, 0, 7, 0))
RUNS = (0.1, 0.5, 1.0, 3.0, 10.0)


def random_problem(seed: int, nodes: int = 5, reads: int = 2, misses: float = 0.15) -> LayoutProblem:
    """Values that several read, in the body that makes them and further in; values of a body that leave it;
    a value that its own maker reads, as a loop carries it; reorders that are not known."""
    chance = random.Random(seed)
    counts = {where: chance.choice(RUNS) if where else 1.0 for where in BODIES}
    values: dict[str, LayoutValue] = {}
    made: list[LayoutNode] = []
    for number in range(nodes):
        where = chance.choice(BODIES)
        own = [f"v{number}.{at}" for at in range(chance.choice((1, 1, 2)))]
        for name in own:
            pairs = itertools.permutations(LAYOUTS, 2)
            reorders = {
                pair: MarkedCost(float(chance.randint(0, 9)), chance.random() < 0.3)
                for pair in pairs
                if chance.random() >= misses
            }
            values[name] = LayoutValue(where, reorders)
        read = []
        for _ in range(chance.randint(0, reads)):
            name = chance.choice(sorted(values))
            of_it = values[name].body
            inside = where[: len(of_it)] == of_it
            read.append(LayoutRead(name, where if inside else of_it))
        options = tuple(
            LayoutOption(
                tuple(chance.choice(LAYOUTS) for _ in read),
                tuple(chance.choice(LAYOUTS) for _ in own),
                MarkedCost(float(chance.randint(0, 20)), chance.random() < 0.3),
            )
            for _ in range(chance.randint(1, 3))
        )
        made.append(LayoutNode(f"n{number}", where, tuple(read), tuple(own), options))
    return LayoutProblem(tuple(made), values, counts)


def alternatives(problem: LayoutProblem) -> Iterator[tuple[dict[str, int], float]]:
    """Every choice that fits together, and what it costs."""
    names = [node.name for node in problem.nodes]
    for numbers in itertools.product(*(range(len(node.options)) for node in problem.nodes)):
        chosen = dict(zip(names, numbers, strict=True))
        try:
            yield chosen, costs_of(problem, chosen).total_us
        except InvalidLayouts:
            continue
