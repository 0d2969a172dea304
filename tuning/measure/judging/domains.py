"""Which values an input may have: the legal range of each input, from the operators that read it.

Only what would otherwise be illegal (an index beyond the axis) or blind (the logarithm of negative numbers,
a product that underflows) is ruled; everything else gets free values. What ONNX leaves undefined (a shift by
more bits than there are, a fraction cast beyond its type) is never drawn: honest implementations differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from opatlas.identity import Node, Operator
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain, Kind
from tuning.measure.judging.places import places

FREE = Domain()

# What only moves values about, so that a rule for its output is a rule for its first input.
_TRANSPARENT = frozenset({
    "Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Cast", "Expand", "Slice", "Split",
    "Tile", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
_DATA_OF_ALL = frozenset({"Concat"})
_POSITIVE_OF_POSITIVE = frozenset({"Add", "ReduceMean", "ReduceSum"})

_BY_POSITION: dict[str, dict[int, Kind]] = {
    "Log": {0: "positive"},
    "Sqrt": {0: "positive"},
    "Reciprocal": {0: "nonzero"},
    "Div": {1: "nonzero"},
    "Mod": {1: "nonzero"},
    "Acos": {0: "unit"},
    "Asin": {0: "unit"},
    "Atanh": {0: "unit"},
    "Acosh": {0: "above_one"},
    "GridSample": {1: "grid"},
    # Scores of thousands let the rounding of one product decide which value is taken: nobody could be right.
    "Attention": {0: "unit", 1: "unit", 4: "unit"},
    "ReduceProd": {0: "near_one"},
    "ReduceLogSum": {0: "positive"},
    "BatchNormalization": {4: "positive"},
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
            for number in _origins(operator, producers, node.inputs[position], domain.kind):
                if number in found and (found[number].kind in ("free", "weight") or domain.kind in _STRICT):
                    found[number] = domain
    return found


_STRICT = frozenset(
    {"index", "unique", "tuple", "unique_tuple", "length", "in_plane", "boxes", "boxes_of_images"}
)


def _origins(operator: Operator, producers: dict[int, Node], number: int, kind: Kind) -> Iterator[int]:
    """Graph inputs whose values reach ``number`` unchanged, or, of what must be positive, in a sum."""
    if 0 <= number < len(operator.inputs):
        yield number
    elif number in producers:
        node = producers[number]
        summed = kind == "positive" and node.op in _POSITIVE_OF_POSITIVE
        if node.op in _DATA_OF_ALL or summed:
            for source in node.inputs:
                yield from _origins(operator, producers, source, kind)
        elif node.op in _TRANSPARENT:
            yield from _origins(operator, producers, node.inputs[0], kind)


def _rules(operator: Operator, node: Node) -> Iterator[tuple[int, Domain]]:
    for position, kind in _BY_POSITION.get(node.op, {}).items():
        yield position, Domain(kind)
    yield from _weights(operator, node)
    yield from _whole(operator, node)
    yield from places(operator, node)


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


_LARGEST_BASE = 15
_EXPONENTS = {"int32": 7, "int64": 13}
"""Powers of whole numbers stay within their type, and within float64's whole numbers."""


def _whole(operator: Operator, node: Node) -> Iterator[tuple[int, Domain]]:
    """Where whole numbers meet: powers, shifts, and fractions that become whole."""
    dtype = operator.value(node.inputs[0]).dtype if node.inputs and node.inputs[0] >= 0 else ""
    if node.op == "Pow":
        yield from _power(operator, node, dtype)
    elif node.op == "BitShift":
        yield 1, Domain("between", (0, numpy_dtype(dtype).itemsize * 8 - 1))
    elif node.op == "Cast":
        made = numpy_dtype(operator.value(node.outputs[0]).dtype)
        if made.kind in "iu" and numpy_dtype(dtype).kind not in "iub":
            yield 0, Domain("between", (0 if made.kind == "u" else -100, 100))


def _power(operator: Operator, node: Node, dtype: str) -> Iterator[tuple[int, Domain]]:
    exponent = operator.value(node.inputs[1])
    whole = exponent.dtype.startswith(("int", "uint"))
    known = exponent.data
    if known:
        whole = float(known[0]).is_integer()
    if not whole:
        yield 0, Domain("positive")
    elif known and float(known[0]) < 0:
        yield 0, Domain("nonzero")
    elif dtype in _EXPONENTS:
        yield 0, Domain("between", (-_LARGEST_BASE, _LARGEST_BASE))
    if dtype in _EXPONENTS and whole:
        yield 1, Domain("between", (0, _EXPONENTS[dtype]))
