"""Products of uint8 by int8 whose sums ONNX Runtime cuts off at 16 bits.

On x86 processors with AVX2 or AVX-512 and no VNNI its fastest way adds two products of 8 bits in 16, and
keeps what does not fit at the largest that does. Up to half of a product's elements are wrong over the whole
range of the types; a user of ONNX Runtime has these values all the same. Whoever computes such a product
exactly gives others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cache

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from opatlas.graph.linked import LEFT_OUT, NodeAt
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.plan import ByFramework, ModelPlan
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
"""By domain and type: which input is of uint8 (None: it is made inside), and which may be of int8. ONNX
Runtime computes ConvInteger exactly."""
_DEQUANTISED = ("Conv", "Gemm", "MatMul")
"""ONNX Runtime makes one of the above of these, where both inputs are dequantised."""
_LARGEST, _MOST = 255, 2**15 - 1


def cut_off_products(graph: ModelGraph) -> frozenset[int]:
    """Nodes of a graph whose values ONNX Runtime may cut off on this processor, with those that quantise for
    them; a node with bodies for one in its bodies. None where it computes exactly."""
    return _cut_off(graph) if cuts_off() else frozenset()


@cache
def cuts_off() -> bool:
    """Whether ONNX Runtime does so on this processor, as a product shows."""
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


def others_run(plan: ModelPlan, nodes: Set[int]) -> bool:
    """Whether anybody but ONNX Runtime runs one of these nodes by the plan."""
    return any(
        not nodes.isdisjoint(step.nodes)
        for step in plan.steps
        if not (isinstance(step.by, ByFramework) and step.by.framework == DEFAULT)
    )


def first_of(at: NodeAt) -> int:
    """The number of a node, or of the one in whose bodies it is."""
    return at if isinstance(at, int) else at[0]


def _cut_off(graph: ModelGraph) -> frozenset[int]:
    makers = {value: at for at, node in enumerate(graph.nodes) for value in node.makes}
    found = set[int]()
    for at, node in enumerate(graph.nodes):
        if any(_cut_off(body.graph) for body in node.bodies):
            found.add(at)
        kind = (node.proto.domain.replace("ai.onnx", ""), node.proto.op_type)
        if kind in _PRODUCTS:
            data, weights = _PRODUCTS[kind]
            values = [_input(node, one) for one in weights]
            if (data is None or _may_be(graph, _input(node, data), TensorProto.UINT8)) and any(
                _overflows(graph, one, node) for one in values
            ):
                found.add(at)
        elif kind[0] == "" and kind[1] in _DEQUANTISED:
            found |= _dequantised(graph, at, makers)
    return frozenset(found)


def _dequantised(graph: ModelGraph, at: int, makers: Mapping[int, int]) -> set[int]:
    """The product, what dequantises for it and what quantises its result: together they are what ONNX Runtime
    computes in 8 bits."""
    node = graph.nodes[at]
    sources = [makers.get(_input(node, which)) for which in (0, 1)]
    quantised = [
        _input(graph.nodes[one], 0)
        for one in sources
        if one is not None and graph.nodes[one].proto.op_type == "DequantizeLinear"
    ]
    if len(quantised) < 2 or not _may_be(graph, quantised[0], TensorProto.UINT8):
        return set()
    if not _overflows(graph, quantised[1], node):
        return set()
    readers = {
        number
        for number, one in enumerate(graph.nodes)
        if one.proto.op_type == "QuantizeLinear" and not node.makes.isdisjoint(one.reads)
    }
    return {at, *(one for one in sources if one is not None), *readers}


def _input(node: GraphNode, which: int) -> int:
    return node.inputs[which] if which < len(node.inputs) else LEFT_OUT


def _may_be(graph: ModelGraph, value: int, element: int) -> bool:
    kind = graph.type_of(value) if value != LEFT_OUT else None
    return value != LEFT_OUT and (kind is None or kind.element == element)


def _overflows(graph: ModelGraph, value: int, node: GraphNode) -> bool:
    """Whether two weights of one result, times the largest uint8, may be more than 16 bits hold. Which two
    are added first is ONNX Runtime's: any of a result's."""
    if not _may_be(graph, value, TensorProto.INT8):
        return False
    if not graph.is_constant(value):
        return True
    weights = graph.evaluate([value])[value].astype(np.int32)
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
    """Whether a product's weights are given as columns by rows."""
    return any(one.name == "transB" and one.i for one in node.proto.attribute)
