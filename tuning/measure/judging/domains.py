"""Which values an input may have: the legal range of each input, from the operators that read it.

Only what would otherwise be illegal (an index beyond the axis) or blind (the logarithm of negative numbers,
a product that underflows) is ruled; everything else gets free values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from opatlas.identity import Node, Operator

Kind = Literal[
    "free", "weight",
    "index", "unique", "tuple", "unique_tuple",
    "positive", "nonzero", "unit", "above_one", "near_one", "scale",
]  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """``bounds``: for indices, the extents (one, or one per column of a tuple). ``fan_in``: for weights."""

    kind: Kind = "free"
    bounds: tuple[int, ...] = ()
    axis: int = 0
    fan_in: int = 1


FREE = Domain()

# What only moves values about, so that a rule for its output is a rule for its first input.
_TRANSPARENT = frozenset({
    "Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Cast", "Expand", "Slice", "Split",
    "Tile", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
_DATA_OF_ALL = frozenset({"Concat"})

_BY_POSITION: dict[str, dict[int, Kind]] = {
    "Log": {0: "positive"},
    "Sqrt": {0: "positive"},
    "Pow": {0: "positive"},
    "Reciprocal": {0: "nonzero"},
    "Div": {1: "nonzero"},
    "Mod": {1: "nonzero"},
    "Acos": {0: "unit"},
    "Asin": {0: "unit"},
    "Atanh": {0: "unit"},
    "Acosh": {0: "above_one"},
    "GridSample": {1: "unit"},
    # Scores of thousands let the rounding of one product decide which value is taken: nobody could be right.
    "Attention": {0: "unit", 1: "unit"},
    "ReduceProd": {0: "near_one"},
    "ReduceLogSum": {0: "positive"},
    "BatchNormalization": {1: "positive", 4: "positive"},
    "NegativeLogLikelihoodLoss": {2: "positive"},
    "SoftmaxCrossEntropyLoss": {2: "positive"},
    "QuantizeLinear": {1: "scale"},
    "DequantizeLinear": {1: "scale"},
    "QLinearConv": {1: "scale", 4: "scale", 6: "scale"},
    "QLinearMatMul": {1: "scale", 4: "scale", 6: "scale"},
}


def domains(operator: Operator) -> dict[int, Domain]:
    """The domain of every tensor input. A strict rule wins over a loose one."""
    found = dict.fromkeys(operator.tensor_inputs, FREE)
    producers = {number: node for node in operator.nodes for number in node.outputs if number >= 0}
    for node in operator.nodes:
        for position, domain in _rules(operator, node):
            if position >= len(node.inputs):
                continue
            for number in _origins(operator, producers, node.inputs[position]):
                if number in found and (found[number].kind in ("free", "weight") or domain.kind in _STRICT):
                    found[number] = domain
    return found


_STRICT = frozenset({"index", "unique", "tuple", "unique_tuple"})


def _origins(operator: Operator, producers: dict[int, Node], number: int) -> Iterator[int]:
    """Graph inputs whose values reach ``number`` unchanged."""
    if 0 <= number < len(operator.inputs):
        yield number
    elif number in producers:
        node = producers[number]
        if node.op in _TRANSPARENT:
            yield from _origins(operator, producers, node.inputs[0])
        elif node.op in _DATA_OF_ALL:
            for source in node.inputs:
                yield from _origins(operator, producers, source)


def _rules(operator: Operator, node: Node) -> Iterator[tuple[int, Domain]]:
    for position, kind in _BY_POSITION.get(node.op, {}).items():
        yield position, Domain(kind)
    yield from _weights(operator, node)
    yield from _indices(operator, node)


def _weights(operator: Operator, node: Node) -> Iterator[tuple[int, Domain]]:
    """Weights are scaled by their fan-in, so that outputs keep a magnitude of about one."""

    def shape(position: int) -> tuple[int, ...]:
        return operator.value(node.inputs[position]).shape

    if node.op == "Conv":
        yield 1, Domain("weight", fan_in=prod(shape(1)[1:]))
    elif node.op == "ConvTranspose":
        yield 1, Domain("weight", fan_in=shape(1)[0] * prod(shape(1)[2:]))
    elif node.op == "MatMul":
        yield 1, Domain("weight", fan_in=shape(1)[-2 if len(shape(1)) > 1 else 0])
        yield 0, Domain("weight", fan_in=shape(0)[-1])
    elif node.op == "Gemm":
        yield 1, Domain("weight", fan_in=shape(1)[1 if node.attributes.get("transB") else 0])
    elif node.op in ("LSTM", "GRU", "RNN"):
        yield 1, Domain("weight", fan_in=shape(1)[-1])
        yield 2, Domain("weight", fan_in=shape(2)[-1])


def _indices(operator: Operator, node: Node) -> Iterator[tuple[int, Domain]]:
    def shape(position: int) -> tuple[int, ...]:
        return operator.value(node.inputs[position]).shape

    attributes = node.attributes
    if node.op in ("Gather", "GatherElements"):
        axis = attributes.get("axis", 0)
        yield 1, Domain("index", (shape(0)[axis],))
    elif node.op == "ScatterElements":
        axis = attributes.get("axis", 0) % len(shape(0))
        yield 1, Domain("unique", (shape(0)[axis],), axis)
    elif node.op in ("GatherND", "ScatterND"):
        skip = attributes.get("batch_dims", 0) if node.op == "GatherND" else 0
        extents = shape(0)[skip : skip + shape(1)[-1]]
        yield 1, Domain("tuple" if node.op == "GatherND" else "unique_tuple", extents)
    elif node.op == "ReverseSequence":
        yield 1, Domain("index", (shape(0)[attributes.get("time_axis", 0)],))
    elif node.op == "OneHot":
        depth = operator.value(node.inputs[1]).data
        yield 0, Domain("index", (int(depth[0]) if depth else 2,))
    elif node.op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        yield 1, Domain("index", (shape(0)[1],))
    elif node.op == "Pow" and operator.value(node.inputs[1]).dtype.startswith(("int", "uint")):
        yield 1, Domain("index", (4,))  # what overflows is for nobody to say
    elif node.op == "RoiAlign":
        yield 2, Domain("index", (shape(0)[0],))
    elif node.op == "RotaryEmbedding" and len(node.inputs) > 3:
        yield 3, Domain("index", (shape(1)[0],))
