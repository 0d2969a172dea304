"""What an operator's shapes allow a library route to try. Imports no library."""

from __future__ import annotations

import math

from opatlas.identity import Node, Operator

TURNED_ELEMENTS = 1 << 20
"""A second operand above this is not turned round in every run: moving it costs more than a product gains."""


def constant(operator: Operator, number: int) -> bool:
    """Whether a value is a constant input."""
    return 0 <= number < len(operator.inputs) and operator.inputs[number].role == "const"


def dense_inputs(operator: Operator) -> bool:
    """Whether every input lies row-major in memory."""
    return all(value.strides is None for value in operator.inputs)


def shape(operator: Operator, number: int) -> tuple[int, ...]:
    return operator.value(number).shape


def side_by_side(operator: Operator, node: Node) -> bool:
    """Whether a convolution's windows lie side by side, so that it is one matrix product."""
    attrs = node.attributes
    if attrs["group"] != 1 or any(attrs["pads"]) or any(attrs.get("output_padding", ())):
        return False
    small, large = shape(operator, node.inputs[0])[2:], shape(operator, node.outputs[0])[2:]
    if node.op == "Conv":
        small, large = large, small
    return all(
        (stride == size or (node.op == "Conv" and count == 1))
        and size * count == length
        and (dilation == 1 or size == 1)
        for stride, size, count, length, dilation in zip(
            attrs["strides"], attrs["kernel_shape"], small, large, attrs["dilations"], strict=True
        )
    )


def with_vector(operator: Operator, node: Node) -> bool:
    """Whether a product has one row or one column."""
    a, b = shape(operator, node.inputs[0]), shape(operator, node.inputs[1])
    return len(b) == 2 and len(a) >= 2 and (b[1] == 1 or (len(a) == 2 and a[0] == 1))


def turnable(operator: Operator, node: Node) -> bool:
    """Whether a product's second operand comes with every run, is a dense matrix, and is small beside it."""
    attrs = node.attributes
    if attrs.get("transB") or any(attrs.get(name, 1.0) != 1 for name in ("alpha", "beta")):
        return False
    b = operator.value(node.inputs[1])
    rows = math.prod(shape(operator, node.outputs[0])[:-1])
    if len(b.shape) != 2 or b.strides is not None or constant(operator, node.inputs[1]) or rows < 64:
        return False
    return min(b.shape) > 1 and b.shape[0] * b.shape[1] <= TURNED_ELEMENTS


def plain_attention(operator: Operator, node: Node) -> bool:
    """Whether attention can be written out: four dimensions, as many key heads as query heads, no cache."""
    if len(shape(operator, node.inputs[0])) != 4 or len(node.outputs) > 1:
        return False
    cached = any(number >= 0 for number in node.inputs[4:])
    heads = {shape(operator, number)[1] for number in node.inputs[:3]}
    return not cached and len(heads) == 1 and not node.attributes["softcap"]
