"""Graphs of several ONNX nodes that are one call for a user of PyTorch.

ONNX has no node for ``silu`` or ``ne``, so an operator may be a small graph that stands for one call. The
default must be that call: timed node by node it would look slower than what users have. References are never
computed this way, so that a wrong pattern shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.identity.operator import Node, Operator
from opatlas.load.torch.ops.site import TorchSite
from opatlas.load.torch.ops.types import TORCH_TYPES

Call = Callable[..., Any]


def whole_call(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    """One call that makes all the operator's outputs, and the numbers of the inputs it takes; else None."""
    pattern = _PATTERNS.get("+".join(_folded(operator.op_types)))
    return pattern(operator) if pattern else None


def _folded(ops: tuple[str, ...]) -> list[str]:
    """Op types with runs of one type written once: a stack may have any number of Unsqueezes."""
    return [op for index, op in enumerate(ops) if index == 0 or ops[index - 1] != op]


def _single_output(operator: Operator) -> bool:
    return operator.outputs == operator.nodes[-1].outputs


def _silu(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    sigmoid, product = operator.nodes
    wanted = {sigmoid.inputs[0], sigmoid.outputs[0]}
    return (F.silu, sigmoid.inputs) if set(product.inputs) == wanted and _single_output(operator) else None


def _not_equal(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    equal, _ = operator.nodes
    return (torch.ne, equal.inputs) if _single_output(operator) else None


def _rsqrt(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    return (torch.rsqrt, operator.nodes[0].inputs) if _single_output(operator) else None


def _cast_softmax(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    cast, softmax = operator.nodes
    if not _single_output(operator):
        return None
    axis = softmax.attributes["axis"]
    dtype = TORCH_TYPES[operator.value(cast.outputs[0]).dtype]
    function = torch.softmax if softmax.op == "Softmax" else torch.log_softmax
    return (lambda x: function(x, axis, dtype=dtype)), cast.inputs


def _stack(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    *lifts, join = operator.nodes
    axis = join.attributes["axis"]
    source = {lift.outputs[0]: lift.inputs[0] for lift in lifts if _axes(operator, lift) == [axis]}
    if set(source) != set(join.inputs) or not _single_output(operator):
        return None
    takes = tuple(source[number] for number in join.inputs)
    return (lambda *tensors: torch.stack(tensors, axis)), takes


def _unbind(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    split, *drops = operator.nodes
    axis = split.attributes["axis"]
    ones = all(operator.value(number).shape[axis] == 1 for number in split.outputs)
    part = {drop.outputs[0]: drop.inputs[0] for drop in drops if _axes(operator, drop) == [axis]}
    if not ones or set(part) != set(operator.outputs):
        return None
    order = [split.outputs.index(part[number]) for number in operator.outputs]
    if order == list(range(len(split.outputs))):
        return (lambda x: torch.unbind(x, axis)), split.inputs[:1]

    def in_order(x: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.unbind(x, axis)
        return [parts[index] for index in order]

    return in_order, split.inputs[:1]


def _axes(operator: Operator, node: Node) -> list[int]:
    """Axes that a reduction folds, an Unsqueeze makes or a Squeeze drops."""
    return TorchSite(operator, node, {}).axes()


def _variance(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    mean, centre, square, last = operator.nodes
    if not _single_output(operator):
        return None
    axes, last_axes = (_axes(operator, node) for node in (mean, last))
    chained = (
        centre.inputs == (mean.inputs[0], mean.outputs[0])
        and set(square.inputs) == {centre.outputs[0]}
        and last.inputs[0] == square.outputs[0]
    )
    if not chained or axes != last_axes or not _keeps(mean):
        return None
    keep = _keeps(last)
    return (lambda x: torch.var(x, axes, correction=0, keepdim=keep)), mean.inputs[:1]


def _max_with_index(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    by_op = {node.op: node for node in operator.nodes}
    where, value = by_op.get("ArgMax"), by_op.get("ReduceMax")
    if where is None or value is None or where.inputs[0] != value.inputs[0]:
        return None
    axis, axes = where.attributes["axis"], _axes(operator, value)
    if axes != [axis] or _keeps(where) != _keeps(value) or where.attributes["select_last_index"]:
        return None
    keep = _keeps(where)
    if operator.outputs == (value.outputs[0], where.outputs[0]):
        return (lambda x: torch.max(x, axis, keep)), where.inputs
    if operator.outputs == (where.outputs[0], value.outputs[0]):
        return (lambda x: torch.max(x, axis, keep)[::-1]), where.inputs
    return None


def _attention(operator: Operator) -> tuple[Call, tuple[int, ...]] | None:
    """softmax(q·kᵀ·scale + mask)·v, as exporters write ``scaled_dot_product_attention`` out."""
    by_op: dict[str, list[Node]] = {}
    for node in operator.nodes:
        by_op.setdefault(node.op, []).append(node)
    products = by_op["MatMul"]
    if len(products) != 2 or not _single_output(operator) or operator.nodes[-1] is not products[1]:
        return None
    (turn,), (scaling,), (softmax,) = by_op["Transpose"], by_op["Mul"], by_op["Softmax"]
    added = by_op.get("Add", [])
    rank = len(operator.value(turn.inputs[0]).shape)
    swap = [*range(rank - 2), rank - 1, rank - 2]
    scores, scaled = products[0].outputs[0], scaling.outputs[0]
    factors = [number for number in scaling.inputs if number != scores]
    masks = [number for node in added for number in node.inputs if number != scaled]
    chained = (
        list(turn.attributes["perm"]) == swap
        and products[0].inputs[1] == turn.outputs[0]
        and len(factors) == 1
        and len(masks) == len(added) <= 1
        and softmax.inputs[0] == (added[0].outputs[0] if added else scaled)
        and products[1].inputs[0] == softmax.outputs[0]
        and softmax.attributes["axis"] == rank - 1
    )
    query, value = products[0].inputs[0], products[1].inputs[1]
    shapes = [operator.value(number).shape for number in (query, turn.inputs[0], value)]
    if not chained or rank != 4 or len({shape[:2] for shape in shapes}) != 1:
        return None
    if any(size != 1 for size in operator.value(factors[0]).shape):
        return None

    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: Any, mask: Any = None
    ) -> torch.Tensor:
        # The scale is a tensor here, whose value the operator does not tell.
        return F.scaled_dot_product_attention(q * scale, k, v, mask, scale=1.0)

    return attend, (query, turn.inputs[0], value, factors[0], *masks)


def _keeps(node: Node) -> bool:
    return bool(node.attributes["keepdims"])


_PATTERNS: dict[str, Callable[[Operator], tuple[Call, tuple[int, ...]] | None]] = {
    "Sigmoid+Mul": _silu,
    "Equal+Not": _not_equal,
    "Sqrt+Reciprocal": _rsqrt,
    "Cast+Softmax": _cast_softmax,
    "Cast+LogSoftmax": _cast_softmax,
    "Unsqueeze+Concat": _stack,
    "Split+Squeeze": _unbind,
    "ReduceMean+Sub+Mul+ReduceMean": _variance,
    "ArgMax+ReduceMax": _max_with_index,
    "ReduceMax+ArgMax": _max_with_index,
    "Transpose+MatMul+Mul+Softmax+MatMul": _attention,
    "Transpose+MatMul+Mul+Add+Softmax+MatMul": _attention,
}
