"""The same operator over fewer axes: axes that lie in memory as one are made one.

A schedule's vectors and parallel loops want long axes: 7×7 images are lines of 49, and an elementwise
operator over dense tensors of any rank is one line. The result is again an Operator, over the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from opatlas.identity import Operator
from opatlas.identity.operator import Node, Value
from opatlas.identity.strides import dense_strides
from tuning.routes.compiler.halide.table import POINTWISE, REDUCTIONS

Groups = Sequence[Sequence[int]]


def simplified(operator: Operator) -> Operator:
    """The operator itself where nothing can be merged."""
    if POINTWISE.issuperset(operator.op_types):
        return _elementwise(operator)
    if len(operator.nodes) > 1:
        return operator
    node = operator.nodes[0]
    made = _SINGLE.get(node.op, lambda *_: None)(operator, node)
    return made or operator


def merged(value: Value, groups: Groups) -> Value | None:
    """The value with each group of neighbouring axes as one; None where they do not lie so in memory."""
    strides = value.strides or dense_strides(value.shape)
    shape, steps = [], []
    for group in groups:
        real = [axis for axis in group if value.shape[axis] > 1]
        for left, right in pairwise(real):
            if strides[left] != strides[right] * value.shape[right]:
                return None
        shape.append(prod(value.shape[axis] for axis in group))
        steps.append(strides[real[-1]] if real else 1)
    new = tuple(steps) if value.strides is not None else None
    return replace(value, shape=tuple(shape), strides=new)


def _rebuilt(
    operator: Operator, inputs: dict[int, Value | None], produced: Sequence[Value | None], **attrs: object
) -> Operator | None:
    """The one-node operator with other views of its values; None where one of them cannot be had."""
    if None in inputs.values() or None in produced:
        return None
    node = operator.nodes[0]
    new_inputs = tuple(inputs.get(i) or value for i, value in enumerate(operator.inputs))
    node = replace(node, attrs=tuple(sorted({**node.attributes, **attrs}.items())))
    return replace(operator, inputs=new_inputs, nodes=(node,), produced=tuple(v for v in produced if v))


def _elementwise(operator: Operator) -> Operator:
    """Merge neighbouring axes over which every tensor is dense, or every one repeats."""
    values = [*operator.inputs, *operator.produced]
    rank = max(len(value.shape) for value in values)
    full = [_ranked(value, rank) for value in values]
    groups: list[list[int]] = []
    for axis in range(rank):
        if groups and all(_together(value, groups[-1][-1], axis, full) for value in full):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    views = [merged(value, groups) for value in full]
    if not all(views):
        return operator
    done = [view for view in views if view]
    count = len(operator.inputs)
    return replace(operator, inputs=tuple(done[:count]), produced=tuple(done[count:]))


def _ranked(value: Value, rank: int) -> Value:
    missing = rank - len(value.shape)
    strides = None if value.strides is None else (*([1] * missing), *value.strides)
    return replace(value, shape=(*([1] * missing), *value.shape), strides=strides)


def _together(value: Value, left: int, right: int, everything: Sequence[Value]) -> bool:
    extents = tuple(max(other.shape[axis] for other in everything) for axis in (left, right))
    own = (value.shape[left], value.shape[right])
    if own == (1, 1):
        return True
    if own != extents:
        return False
    strides = value.strides or dense_strides(value.shape)
    return strides[left] == strides[right] * value.shape[right]


def _lines(operator: Operator, node: Node) -> Operator | None:
    """(batch, channels, everything else): what is done to a channel is done to its whole image."""
    source = operator.value(node.inputs[0])
    rank = len(source.shape)
    if rank <= 3:
        return None
    groups: Groups = [[0], [1], list(range(2, rank))]
    produced = [merged(v, groups) if len(v.shape) == rank else v for v in operator.produced]
    return _rebuilt(operator, {node.inputs[0]: merged(source, groups)}, produced)


def _softmax(operator: Operator, node: Node) -> Operator | None:
    source = operator.value(node.inputs[0])
    rank = len(source.shape)
    axis = node.attributes["axis"]
    groups = [group for group in (list(range(axis)), [axis], list(range(axis + 1, rank))) if group]
    view = merged(source, groups)
    place = groups.index([axis])
    return _rebuilt(
        operator, {node.inputs[0]: view}, [merged(v, groups) for v in operator.produced], axis=place
    )


def _last_axes(operator: Operator, node: Node) -> Operator | None:
    source = operator.value(node.inputs[0])
    rank = len(source.shape)
    axis = node.attributes["axis"]
    if axis == 0:
        return None
    inputs: dict[int, Value | None] = {
        node.inputs[0]: merged(source, [list(range(axis)), list(range(axis, rank))])
    }
    for number in node.inputs[1:]:
        if number >= 0:
            value = operator.value(number)
            if value.shape != source.shape[axis:]:
                return None
            inputs[number] = merged(value, [list(range(rank - axis))])
    groups = [list(range(axis)), list(range(axis, rank))]
    return _rebuilt(operator, inputs, [merged(v, groups) for v in operator.produced], axis=1)


def _reduction(operator: Operator, node: Node) -> Operator | None:
    source = operator.value(node.inputs[0])
    rank = len(source.shape)
    axes: set[int] = set(range(rank))
    if len(node.inputs) > 1 and node.inputs[1] >= 0:
        data = operator.value(node.inputs[1]).data or ()
        axes = {int(axis) % rank for axis in data}
        if not axes:
            return None
    groups: list[list[int]] = []
    for axis in range(rank):
        if groups and (source.shape[axis] == 1 or (groups[-1][0] in axes) == (axis in axes)):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    places = [place for place, group in enumerate(groups) if group[0] in axes]
    view = merged(source, groups)
    kept = tuple(prod(source.shape[a] for a in g) for p, g in enumerate(groups) if p not in places)
    made = replace(operator.produced[0], shape=kept)
    if prod(kept) != prod(operator.produced[0].shape) or view is None:
        return None
    inputs: dict[int, Value | None] = {node.inputs[0]: view}
    node = replace(node, inputs=(node.inputs[0],))
    changed = _rebuilt(operator, inputs, [made], axes=tuple(places), keepdims=0)
    return changed and replace(changed, nodes=(replace(changed.nodes[0], inputs=node.inputs),))


def _copy(operator: Operator, node: Node) -> Operator | None:
    source, made = operator.value(node.inputs[0]), operator.produced[0]
    view = merged(source, [list(range(len(source.shape)))])
    if view is None:
        return None
    changed = _rebuilt(operator, {node.inputs[0]: view}, [replace(made, shape=view.shape)])
    return changed and replace(
        changed, nodes=(replace(changed.nodes[0], op="Identity", inputs=node.inputs[:1]),)
    )


def _pointwise(operator: Operator, node: Node) -> Operator | None:
    """A convolution by 1×1 kernels, step 1: (batch, channels, places) by (outputs, channels, 1)."""
    source, weights = operator.value(node.inputs[0]), operator.value(node.inputs[1])
    rank = len(source.shape)
    attrs = node.attributes
    if any(n != 1 for n in (*weights.shape[2:], *attrs["strides"])) or any(attrs["pads"]) or rank <= 3:
        return None
    groups: Groups = [[0], [1], list(range(2, rank))]
    inputs = {node.inputs[0]: merged(source, groups), node.inputs[1]: merged(weights, groups)}
    one = {"kernel_shape": (1,), "strides": (1,), "dilations": (1,), "pads": (0, 0)}
    return _rebuilt(operator, inputs, [merged(operator.produced[0], groups)], **one)


def _rows(operator: Operator, node: Node) -> Operator | None:
    """(…, M, K) · (K, N) is one product of many rows; equal batches are one batch."""
    a, b = (operator.value(number) for number in node.inputs[:2])
    made = operator.produced[0]
    rank = len(a.shape)
    if rank > 2 and (len(b.shape) == 2 or (len(b.shape) > 2 and prod(b.shape[:-2]) == 1)):
        flat_a = merged(a, [list(range(rank - 1)), [rank - 1]])
        under = len(b.shape)
        flat_b = merged(b, [list(range(under - 1)), [under - 1]])
        whole = len(made.shape)
        out = merged(made, [list(range(whole - 1)), [whole - 1]])
        return _rebuilt(operator, {node.inputs[0]: flat_a, node.inputs[1]: flat_b}, [out])
    if rank > 3 and len(b.shape) == rank and a.shape[:-2] == b.shape[:-2]:
        groups: Groups = [list(range(rank - 2)), [rank - 2], [rank - 1]]
        inputs = {node.inputs[0]: merged(a, groups), node.inputs[1]: merged(b, groups)}
        return _rebuilt(operator, inputs, [merged(made, groups)])
    return None


_SINGLE = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(
        (
            *("BatchNormalization", "InstanceNormalization", "GroupNormalization"),
            *("GlobalAveragePool", "GlobalMaxPool"),
        ),
        _lines,
    ),
    "Conv": _pointwise,
    "Flatten": _copy,
    "LayerNormalization": _last_axes,
    "LogSoftmax": _softmax,
    "MatMul": _rows,
    "RMSNormalization": _last_axes,
    "Reshape": _copy,
    "Softmax": _softmax,
    "Squeeze": _copy,
    "Unsqueeze": _copy,
}
