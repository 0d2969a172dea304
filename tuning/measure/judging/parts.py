"""A part of an operator's output as an operator of its own: what checks a large result in a small one's time.

A candidate computes everything, and does not know which part will be looked at. One axis of the output is
taken apart, whichever leaves least to compute; along it some places are drawn by lot, so that inputs' rows of
every kind are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opatlas.identity import Node, Operator, Value, describe
from opatlas.identity.operator_types import TYPES, types_with
from tuning.measure.judging.check import Reference
from tuning.measure.judging.drawing.dealing import Hand
from tuning.measure.judging.drawing.roles import but_folded
from tuning.measure.shared_tensors import TensorSlot

FLOPS, BYTES = 3e7, 4e6
"""What a part may cost; at least ``LEAST`` places stay."""
LEAST = 24
ENOUGH = 4096
"""Places, by lot, among which are rows of every kind."""

Axes = Sequence[int | None] | None
"""Of each input of a node, the axis that goes with the output's, None for the whole; None: nobody knows."""


@dataclass(frozen=True)
class OutputPart:
    """``operator`` computes it, of dense runtime inputs only; ``axes``: of each of its inputs, the axis that
    is cut, if any; ``places`` along it, which lie on ``axis`` of the output."""

    operator: Operator
    whole: Operator
    axes: Mapping[int, int]
    axis: int
    places: np.ndarray

    def spans(self, inputs: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """The part's inputs, flat, from the flat spans of the whole operator's."""
        return {number: self._cut(number, flat).reshape(-1) for number, flat in inputs.items()}

    def _cut(self, number: int, flat: np.ndarray) -> np.ndarray:
        value = self.whole.inputs[number]
        whole = TensorSlot(0, value.dtype, value.shape, value.strides).view(flat)
        return whole.take(self.places, self.axes[number]) if number in self.axes else whole

    def of(self, reference: Reference) -> Reference:
        """A reference that says which elements it is of."""
        return replace(reference, axis=self.axis, places=self.places)


def part_of(operator: Operator, rng: np.random.Generator, hands: Sequence[Hand] = ()) -> OutputPart | None:
    """A part that costs little, for sets that were drawn from these ``hands``; None where the operator has
    none that costs less than all of it."""
    if len(operator.outputs) != 1 or not operator.runtime_inputs:
        return None
    cost = describe(operator)
    share = min(FLOPS / max(cost.flops, 1.0), BYTES / max(cost.bytes_moved, 1.0))
    if share >= 0.5:
        return None
    shape = operator.output_values[0].shape
    best: tuple[float, OutputPart] | None = None
    for axis, extent in enumerate(shape):
        kept = min(extent, max(LEAST, int(extent * share)))
        if kept > extent // 2 or (cut := _cut_back(operator, axis)) is None:
            continue
        part = _made(operator, cut, axis, _places(rng.permutation(extent), kept, cut, hands))
        found = describe(part.operator)
        left = max(found.flops / FLOPS, found.bytes_moved / BYTES)
        if best is None or left < best[0]:
            best = left, part
    return best[1] if best else None


def _places(order: np.ndarray, kept: int, cut: Mapping[int, int | None], hands: Sequence[Hand]) -> np.ndarray:
    """The first ones in this order; before them, of each kind of rows that an input has along the axis, the
    first place that holds one."""
    needed: list[int] = []
    first = order[:ENOUGH]
    for hand in hands:
        for number, (axes, dealt) in hand.dealt.items():
            if (along := cut.get(number)) is not None and along in axes:
                by_place = np.moveaxis(dealt, axes.index(along), 0)[first].reshape(len(first), -1)
                _, found = np.unique(by_place, return_index=True)
                needed += first[found // by_place.shape[1]].tolist()
    chosen = list(dict.fromkeys([*needed, *order[: kept + len(needed)].tolist()]))
    return np.sort(chosen[: max(kept, len(set(needed)))])


def _cut_back(operator: Operator, axis: int) -> dict[int, int | None] | None:
    """Of every value, the axis that an axis of the output comes from; None where it is needed whole."""
    cut: dict[int, int | None] = {operator.outputs[0]: axis}
    for node in reversed(operator.nodes):
        made = [number for number in node.outputs if number >= 0]
        if len(made) != 1 or made[0] not in cut:
            return None
        along = cut[made[0]]
        rule = _RULES.get(node.op)
        axes: Axes = [None] * len(node.inputs) if along is None else rule and rule(operator, node, along)
        if axes is None:
            return None
        for number, one in zip(node.inputs, axes, strict=False):
            if number >= 0 and cut.setdefault(number, one) != one:
                return None
            if one is not None and operator.value(number).data is not None:
                return None
    return cut


def _made(operator: Operator, cut: Mapping[int, int | None], axis: int, places: np.ndarray) -> OutputPart:
    def value(number: int, one: Value) -> Value:
        shape = list(one.shape)
        if (along := cut.get(number)) is not None:
            shape[along] = len(places)
        return replace(one, shape=tuple(shape), strides=None, role="runtime")

    first = len(operator.inputs)
    small = replace(
        operator,
        inputs=tuple(value(number, one) for number, one in enumerate(operator.inputs)),
        produced=tuple(value(first + number, one) for number, one in enumerate(operator.produced)),
        nodes=tuple(_regrouped(operator, node, cut, len(places)) for node in operator.nodes),
    )
    axes = {n: along for n in operator.tensor_inputs if (along := cut.get(n)) is not None}
    return OutputPart(small, operator, axes, axis, places)


def _regrouped(operator: Operator, node: Node, cut: Mapping[int, int | None], kept: int) -> Node:
    """A convolution map by map has as many groups as maps are left."""
    if node.op == "Conv" and cut.get(node.inputs[0]) == 1:
        return replace(node, attrs=tuple((n, kept if n == "group" else given) for n, given in node.attrs))
    return node


Rule = Callable[[Operator, Node, int], Axes]


def _shape(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    number = node.inputs[position]
    return operator.value(number).shape if number >= 0 else ()


def _made_rank(operator: Operator, node: Node) -> int:
    return len(operator.value(next(n for n in node.outputs if n >= 0)).shape)


def _broadcast(operator: Operator, node: Node, position: int, from_last: int) -> int | None:
    """The axis of an input that lies so far from the last; None where it has none, or one place of it."""
    shape = _shape(operator, node, position)
    axis = len(shape) - from_last
    return axis if axis >= 0 and shape[axis] > 1 else None


def _pointwise(operator: Operator, node: Node, axis: int) -> Axes:
    from_last = _made_rank(operator, node) - axis
    return [_broadcast(operator, node, at, from_last) for at in range(len(node.inputs))]


def _matmul(operator: Operator, node: Node, axis: int) -> Axes:
    left, right = (len(_shape(operator, node, at)) for at in (0, 1))
    if min(left, right) < 2:
        return None
    from_last = _made_rank(operator, node) - axis
    if from_last == 1:
        return [None, right - 1]
    if from_last == 2:
        return [left - 2, None]
    return [_broadcast(operator, node, at, from_last) for at in (0, 1)]


def _gemm(operator: Operator, node: Node, axis: int) -> Axes:
    turned = bool(node.attributes.get("transB" if axis else "transA"))
    added = [_broadcast(operator, node, 2, 2 - axis)] if len(node.inputs) > 2 else []
    return [None, 0 if turned else 1, *added] if axis else [1 if turned else 0, None, *added]


def _conv(operator: Operator, node: Node, axis: int) -> Axes:
    groups, maps = node.attributes.get("group", 1), _shape(operator, node, 1)[0]
    further = len(node.inputs) - 2
    if axis == 0:
        return [0, None] + [None] * further
    if axis == 1 and groups == 1:
        return [None, 0] + [0] * further
    if axis == 1 and groups == maps == _shape(operator, node, 0)[1]:
        return [1, 0] + [0] * further
    return None


def _maps(operator: Operator, node: Node, axis: int) -> Axes:
    """Each map for itself."""
    return [axis, *(None for _ in node.inputs[1:])] if axis < 2 else None


def _normed_maps(operator: Operator, node: Node, axis: int) -> Axes:
    if axis > 1 or (axis == 0 and node.attributes.get("training_mode")):
        return None
    return [axis, *(0 if axis else None for _ in node.inputs[1:])]


def _images(operator: Operator, node: Node, axis: int) -> Axes:
    return [0, *(None for _ in node.inputs[1:])] if axis == 0 else None


def _lines(operator: Operator, node: Node, axis: int) -> Axes:
    """All axes but one are apart, or all before one."""
    along = node.attributes.get("axis", -1) % _made_rank(operator, node)
    before = node.op in ("LayerNormalization", "RMSNormalization")
    apart = axis < along if before else axis != along
    return [axis, *(None for _ in node.inputs[1:])] if apart else None


def _reduction(operator: Operator, node: Node, axis: int) -> Axes:
    kept = but_folded(operator, node, 0)
    if kept and _made_rank(operator, node) != len(_shape(operator, node, 0)):
        axis = kept[axis]
    return [axis, *(None for _ in node.inputs[1:])] if axis in kept else None


def _gather(operator: Operator, node: Node, axis: int) -> Axes:
    along = node.attributes.get("axis", 0) % max(1, len(_shape(operator, node, 0)))
    wide = len(_shape(operator, node, 1))
    if axis < along:
        return [axis, None]
    return [None, axis - along] if axis < along + wide else [axis - wide + 1, None]


def _transpose(operator: Operator, node: Node, axis: int) -> Axes:
    return [node.attributes["perm"][axis]] if "perm" in node.attributes else None


def _concat(operator: Operator, node: Node, axis: int) -> Axes:
    along = node.attributes["axis"] % _made_rank(operator, node)
    return [axis] * len(node.inputs) if axis != along else None


def _pad(operator: Operator, node: Node, axis: int) -> Axes:
    rank, pads = _made_rank(operator, node), operator.value(node.inputs[1]).data
    if pads is None or len(node.inputs) > 3 or len(pads) != 2 * rank or pads[axis] or pads[axis + rank]:
        return None
    return [axis, *(None for _ in node.inputs[1:])]


_RULES: dict[str, Any] = {
    **dict.fromkeys((op for op in types_with("pointwise")), _pointwise),
    **dict.fromkeys((op for op, kind in TYPES.items() if op.startswith("Reduce")), _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"), _lines),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _lines),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), _maps),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _normed_maps),
    **dict.fromkeys(("GroupNormalization", "ConvTranspose", "LRN"), _images),
    "Concat": _concat,
    "Conv": _conv,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Pad": _pad,
    "Transpose": _transpose,
}
