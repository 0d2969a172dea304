"""Which products ONNX Runtime may cut off: those that it does, over the whole range of the types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from opatlas.graph.normal import ModelGraph
from opatlas.load.onnxruntime_recipe import ask_exact, quiet_options
from opatlas.plan import saturating
from opatlas.plan.choosing import by_framework
from opatlas.plan.making import whole
from opatlas.plan.saturating import cut_off_products, cuts_off

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.integers(-128, 128, (64, 32)).astype(np.int8)
KERNELS = RANDOM.integers(-128, 128, (16, 8, 3, 3)).astype(np.int8)
PLACE: dict[str, Any] = {"": 17, "com.microsoft": 1}
SCALES = {
    "s": np.float32(0.02), "z": np.uint8(128), "zw": np.int8(0), "so": np.float32(5), "large": np.float32(50),
}  # fmt: skip
_QUANTISED = ["x", "s", "z", "w", "s", "zw", "large", "z"]


def built(nodes: list[onnx.NodeProto], shape: list[int], element: int, weights: np.ndarray) -> bytes:
    made = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_value_info("y", onnx.TypeProto())],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in {**SCALES, "w": weights}.items()],
    )
    opsets = [helper.make_opsetid(*one) for one in PLACE.items()]
    return helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString()


def dequantised(kind: str) -> list[onnx.NodeProto]:
    """As quantisation tools write a product: quantised, dequantised, and quantised again."""
    return [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["dw"]),
        helper.make_node(kind, ["d", "dw"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "so", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "so", "z"], ["y"]),
    ]


def product(kind: str, weights: np.ndarray | None = None) -> bytes:
    """``weights``: others than are drawn over all of int8."""
    if kind == "MatMulInteger":
        nodes = [helper.make_node(kind, ["x", "w"], ["y"])]
        return built(nodes, [8, 64], TensorProto.UINT8, WEIGHTS if weights is None else weights)
    if kind == "QLinearMatMul":
        nodes = [helper.make_node(kind, _QUANTISED, ["y"])]
        return built(nodes, [8, 64], TensorProto.UINT8, WEIGHTS)
    if kind in ("QLinearConv", "ConvInteger"):
        read = _QUANTISED if kind == "QLinearConv" else ["x", "w"]
        return built([helper.make_node(kind, read, ["y"])], [1, 8, 9, 9], TensorProto.UINT8, KERNELS)
    if kind == "QDQ Conv":
        return built(dequantised("Conv"), [1, 8, 9, 9], TensorProto.FLOAT, KERNELS)
    if kind == "QDQ MatMul":
        return built(dequantised("MatMul"), [8, 64], TensorProto.FLOAT, WEIGHTS)
    assert kind == "DynamicQuantizeMatMul"
    nodes = [helper.make_node(kind, ["x", "w", "s", "zw"], ["y"], domain="com.microsoft")]
    return built(nodes, [8, 64], TensorProto.FLOAT, WEIGHTS)


PRODUCTS = (
    "MatMulInteger", "QLinearMatMul", "QLinearConv", "ConvInteger", "QDQ Conv", "QDQ MatMul",
    "DynamicQuantizeMatMul",
)  # fmt: skip


def differs(data: bytes) -> bool:
    """Whether ONNX Runtime's own exact way gives other values here, over the whole range of the input."""
    usual, exact = quiet_options(1), quiet_options(1)
    ask_exact(exact)
    one, other = (ort.InferenceSession(data, options) for options in (usual, exact))
    [given] = one.get_inputs()
    is_float = given.type == "tensor(float)"
    feed = RANDOM.standard_normal(given.shape) if is_float else RANDOM.integers(0, 256, given.shape)
    feed = {given.name: feed.astype(np.float32 if is_float else np.uint8)}
    return bool((one.run(None, feed)[0] != other.run(None, feed)[0]).any())


@pytest.mark.parametrize("kind", PRODUCTS)
def test_what_onnx_runtime_cuts_off_is_found(kind: str) -> None:
    data = product(kind)
    if differs(data):
        assert cut_off_products(ModelGraph(data))
    elif not cuts_off():
        assert not cut_off_products(ModelGraph(data))


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which it does, whichever this is."""
    monkeypatch.setattr(saturating, "cuts_off", lambda: True)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_each_kind_of_product_is_known(cutting: None, kind: str) -> None:
    assert bool(cut_off_products(ModelGraph(product(kind)))) == (kind != "ConvInteger")


def test_small_weights_and_other_types_cannot_be_cut_off(cutting: None) -> None:
    assert not cut_off_products(ModelGraph(product("MatMulInteger", WEIGHTS // 2)))
    large = np.zeros((64, 32), np.int8)
    large[0] = 127  # one alone: 255 times 127 is within 16 bits
    assert not cut_off_products(ModelGraph(product("MatMulInteger", large)))
    large[9, 3] = 2
    assert cut_off_products(ModelGraph(product("MatMulInteger", large)))
    assert not cut_off_products(ModelGraph(product("MatMulInteger", WEIGHTS.view(np.uint8))))


def test_one_in_a_branch_is_its_nodes(cutting: None) -> None:
    branches = [
        helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], [name])], name, [],
                          [helper.make_tensor_value_info(name, TensorProto.INT32, [8, 32])])
        for name in ("then", "else")
    ]  # fmt: skip
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.BOOL),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["go"], to=TensorProto.BOOL),
        helper.make_node("If", ["go"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    graph = ModelGraph(built(nodes, [8, 64], TensorProto.UINT8, WEIGHTS))
    found = cut_off_products(graph)
    [at] = found.nodes
    assert graph.nodes[at].proto.op_type == "If"
    plan = whole(graph, "t1:here", "s1:here")
    assert not found.forbids(plan) and found.forbids(by_framework(plan, "openvino"))
    assert not found.allows((at, 1, 0)) and found.allows(at - 1)


def test_what_is_dequantised_is_left_to_onnx_runtime_in_one_piece(cutting: None) -> None:
    found = cut_off_products(ModelGraph(product("QDQ Conv")))
    assert found.in_one and not any(map(found.allows, range(4)))
