"""The time for bringing a tensor from one layout into another, and the operator that does. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from opatlas.graph.types import TensorType
from opatlas.identity import OPSET, Operator, canonicalise
from tuning.graph.layout.names import block_of, is_told, settled, stored_order
from tuning.graph.layout.problem import MarkedCost, ReorderOf

CALL_US = 2.0
BYTES_PER_US = 2_000.0
"""For an unmeasured reorder: a call, and one read and write of its bytes at what one server core moves out of
order. Both are guesses, and results are marked so."""


@dataclass(frozen=True)
class ReorderCosts:
    """``times``: of published ones in microseconds, by settled names of layouts."""

    times: Mapping[ReorderOf, float] = field(default_factory=dict)

    def cost(self, kind: TensorType, source: str, target: str) -> MarkedCost:
        """The measured time, else an estimate by size, marked as such."""
        known = self.times.get((kind, settled(source), settled(target)))
        if known is not None:
            return MarkedCost(known)
        moved = 2 * kind.size * helper.tensor_dtype_to_np_dtype(kind.element).itemsize
        return MarkedCost(CALL_US + moved / BYTES_PER_US, is_estimate=True)


def reorder_operator(kind: TensorType, source: str, target: str) -> Operator | None:
    """A reorder as an operator to look up: a Transpose of the stored tensor, between Reshapes if blocks are
    made or dissolved. None if a layout's name does not say how it is stored, or both have blocks."""
    source, target = settled(source), settled(target)
    blocks = {one for one in map(block_of, (source, target)) if one}
    if len(blocks) > 1 or not (is_told(source) and is_told(target)):
        return None
    split, block = next(iter(blocks), (None, 0))
    orders = [stored_order(one, len(kind.shape), split) for one in (source, target)]
    sizes = {(axis, ""): size for axis, size in enumerate(kind.shape)}
    if split is not None:
        sizes |= {(split, "outer"): kind.shape[split] // block, (split, "inner"): block}
    apart = [[sizes[part] for part in order] for order in orders]
    steps = list[tuple[str, list[int]]]()
    if split is not None and block_of(source) is None:
        steps.append(("Reshape", apart[0]))
    steps.append(("Transpose", [orders[0].index(part) for part in orders[1]]))
    if split is not None and block_of(target) is None:
        steps.append(("Reshape", _stored_shape(target, kind.shape)))
    given = _stored_shape(source, kind.shape) if block_of(source) is None else apart[0]
    return _operator(kind.element, given, steps)


def _stored_shape(layout: str, shape: tuple[int, ...]) -> list[int]:
    """Of a layout without blocks."""
    return [shape[axis] for axis, _ in stored_order(layout, len(shape))]


def _operator(element: int, given: list[int], steps: list[tuple[str, list[int]]]) -> Operator:
    nodes, weights, last = list[NodeProto](), list[TensorProto](), "x"
    for at, (kind, numbers) in enumerate(steps):
        made = f"v{at}"
        if kind == "Transpose":
            nodes.append(helper.make_node("Transpose", [last], [made], perm=numbers))
        else:
            weights.append(numpy_helper.from_array(np.array(numbers, np.int64), f"shape{at}"))
            nodes.append(helper.make_node("Reshape", [last, f"shape{at}"], [made]))
        last = made
    graph = helper.make_graph(
        nodes,
        "reorder",
        [helper.make_tensor_value_info("x", element, given)],
        [helper.make_empty_tensor_value_info(last)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return canonicalise(model).operator
