"""Products of uint8 by int8 whose sums ONNX Runtime cuts off at 16 bits.

On x86 processors with AVX2 or AVX-512 but no VNNI, its fastest way adds two 8-bit products in 16 bits and
saturates. Over the whole range of the types up to half of a product's elements are wrong. Users of ONNX
Runtime have these values all the same, so an exact implementation would give others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from opatlas.graph.linked import LEFT_OUT, NodeAt
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.plan import ByFramework, ModelPlan, PlanStep
from opatlas.plan.regions import DEFAULT, open_session

_PRODUCTS: Mapping[tuple[str, str], tuple[int | None, tuple[int, ...]]] = {
    ("", "MatMulInteger"): (0, (1,)),
    ("", "QLinearMatMul"): (0, (3,)),
    ("", "QLinearConv"): (0, (3,)),
    ("com.microsoft", "MatMulIntegerToFloat"): (0, (1,)),
    ("com.microsoft", "DynamicQuantizeMatMul"): (None, (1,)),
    ("com.microsoft", "DynamicQuantizeLSTM"): (None, (1, 2)),
    ("com.microsoft", "QAttention"): (0, (1,)),
    ("com.microsoft", "QGemm"): (0, (3,)),
    ("com.microsoft", "QLinearConv"): (0, (3,)),
}
"""By domain and type: which input is uint8 (None: it is made inside), and which may be int8. ONNX Runtime
computes ConvInteger exactly."""
_DEQUANTISED = ("Conv", "Gemm", "MatMul")
"""ONNX Runtime turns these into one of the above if both inputs are dequantised."""
_MOVING = ("Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that may stand between."""
_LARGEST, _MOST = 255, 2**15 - 1


@dataclass(frozen=True)
class CutOff:
    """What must stay with ONNX Runtime. ``nodes``: such products, and nodes with one in their bodies.
    ``in_one``: all in one piece, since only there ONNX Runtime sees that the inputs were quantised."""

    nodes: frozenset[int] = frozenset()
    in_one: bool = False

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def allows(self, at: NodeAt) -> bool:
        """Whether something else may run a node."""
        return not self.in_one and (at if isinstance(at, int) else at[0]) not in self.nodes

    def forbids(self, plan: ModelPlan) -> bool:
        """Whether a plan gives one of these nodes to something else."""
        others = [step for step in plan.steps if not _is_default(step)]
        if self.in_one:
            return bool(others) or len(plan.steps) > 1
        return any(not self.nodes.isdisjoint(step.nodes) for step in others)


def _is_default(step: PlanStep) -> bool:
    return isinstance(step.by, ByFramework) and step.by.framework == DEFAULT


def cut_off_products(graph: ModelGraph) -> CutOff:
    """What ONNX Runtime may cut off on this processor; nothing if it computes exactly."""
    return _cut_off(graph) if cuts_off() else CutOff()


def has_fed_products(graph: ModelGraph) -> bool:
    """Whether a product has weights that are inputs: ONNX Runtime's exact way does not cover these."""
    return any(
        (_is_product(graph, node) and not any(map(graph.is_constant, _weights(node))))
        or any(has_fed_products(body.graph) for body in node.bodies)
        for node in graph.nodes
    )


@cache
def cuts_off() -> bool:
    """Whether ONNX Runtime does so on this processor, tried with a product."""
    ones, weights = np.full((1, 64), _LARGEST, np.uint8), np.full((64, 16), 127, np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    made = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    [found] = open_session(model, quiet_options(1)).run(None, {"x": ones})
    return bool((found != ones.astype(np.int32) @ weights.astype(np.int32)).any())


def _cut_off(graph: ModelGraph) -> CutOff:
    found, in_one = set[int](), False
    for at, node in enumerate(graph.nodes):
        inner = [_cut_off(body.graph) for body in node.bodies]
        is_dequantised = _is_dequantised(graph, node)
        if any(inner) or is_dequantised or _is_product(graph, node):
            found.add(at)
        in_one = in_one or is_dequantised or any(one.in_one for one in inner)
    return CutOff(frozenset(found), in_one)


def _is_product(graph: ModelGraph, node: GraphNode) -> bool:
    kind = _kind(node)
    if kind not in _PRODUCTS:
        return False
    data, _ = _PRODUCTS[kind]
    if data is not None and not _may_be(graph, _input(node, data), TensorProto.UINT8):
        return False
    return any(
        _overflow(graph.evaluate([one])[one] if graph.is_constant(one) else None, node)
        for one in _weights(node)
        if _may_be(graph, one, TensorProto.INT8)
    )


def _kind(node: GraphNode) -> tuple[str, str]:
    return node.proto.domain.replace("ai.onnx", ""), node.proto.op_type


def _weights(node: GraphNode) -> list[int]:
    return [_input(node, one) for one in _PRODUCTS[_kind(node)][1]]


def _is_dequantised(graph: ModelGraph, node: GraphNode) -> bool:
    """Whether a product's inputs were dequantised from uint8 and from int8."""
    if node.proto.domain not in ("", "ai.onnx") or node.proto.op_type not in _DEQUANTISED:
        return False
    data, weights = (_quantised(graph, _input(node, which)) for which in (0, 1))
    if data is None or weights is None:
        return False
    kinds = [graph.walk.types.get(name) for name in (data, weights)]
    elements = [kind.element if kind is not None else None for kind in kinds]
    if elements[0] not in (None, TensorProto.UINT8) or elements[1] not in (None, TensorProto.INT8):
        return False
    tensor = graph.walk.initializers.get(weights)
    return _overflow(None if tensor is None else numpy_helper.to_array(tensor), node)


def _quantised(graph: ModelGraph, value: int) -> str | None:
    """The name of the quantised value behind a dequantised one; None if it was not dequantised."""
    if value == LEFT_OUT:
        return None
    makers = {name: node.proto for node in graph.nodes for name in node.proto.output}
    makers |= {name: node for node in graph.walk.folded for name in node.output}
    name = graph.names[value]
    while (maker := makers.get(name)) is not None and maker.op_type in _MOVING:
        name = maker.input[0]
    return maker.input[0] if maker is not None and maker.op_type == "DequantizeLinear" else None


def _input(node: GraphNode, which: int) -> int:
    return node.inputs[which] if which < len(node.inputs) else LEFT_OUT


def _may_be(graph: ModelGraph, value: int, element: int) -> bool:
    kind = graph.type_of(value) if value != LEFT_OUT else None
    return value != LEFT_OUT and (kind is None or kind.element == element)


def _overflow(weights: np.ndarray | None, node: GraphNode) -> bool:
    """Whether two weights of one result, times the largest uint8, may exceed 16 bits. Any two of a result's
    weights may be added first, and weights that are inputs may exceed it."""
    if weights is None:
        return True
    weights = weights.astype(np.int32)
    if "Conv" in node.proto.op_type:
        if weights.shape[1] == 1:
            return False  # of each channel alone: not by these products
        rows = weights.reshape(len(weights), -1)
    elif weights.ndim < 2 or _is_transposed(node):
        rows = weights.reshape(-1, weights.shape[-1])
    else:
        rows = weights.swapaxes(-1, -2).reshape(-1, weights.shape[-2])
    if rows.shape[1] < 2:
        return False
    ordered = np.partition(rows, (1, -2), axis=1)
    highest = int((ordered[:, -1] + ordered[:, -2]).max(initial=0))
    lowest = int((ordered[:, 0] + ordered[:, 1]).min(initial=0))
    return _LARGEST * highest > _MOST or _LARGEST * lowest < -_MOST - 1


def _is_transposed(node: GraphNode) -> bool:
    """Whether a product's weights are columns by rows."""
    return any(one.name == "transB" and one.i for one in node.proto.attribute)
