"""Hostile and broken ONNX files are refused with one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opatlas.errors import InvalidModel
from opatlas.graph import extract
from opatlas.graph.read import MAX_SUBGRAPH_DEPTH, read_onnx
from tests.tuning.graph import making
from tuning.graph import sample_graph


def _refused(model: onnx.ModelProto | bytes) -> str:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(InvalidModel) as caught:
        extract(data)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 400
    return sentence


def test_bytes_that_are_no_onnx_file() -> None:
    assert "no complete ONNX file" in _refused(b"hello, this is no protobuf")
    assert "no complete ONNX file" in _refused(b"")


def test_a_file_cut_short_is_refused_wherever_it_is_cut() -> None:
    data = sample_graph("squeezenet")
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        _refused(data[: int(len(data) * share)])


def test_a_file_beyond_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(InvalidModel, match="at most 10 are accepted"):
        read_onnx(b"x" * 11, max_bytes=10)


@pytest.mark.parametrize("place", ["/etc/passwd", "../../secret.bin", "weights.bin"])
def test_external_data_is_refused_and_never_opened(place: str) -> None:
    model = making.model(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.zeros(4, np.float32)}
    )
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    assert "another file" in _refused(model)


def test_external_data_hidden_in_a_constant_node_is_refused() -> None:
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/dev/zero")
    nodes = [
        helper.make_node("Constant", [], ["c"], value=tensor),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    assert "another file" in _refused(making.model(nodes, {"x": [4]}, ["y"]))


def _claim(dims: list[int], data_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = making.relu()
    model.graph.initializer.add(name="w", data_type=data_type, raw_data=b"1234").dims.extend(dims)
    return model


def test_initializers_that_claim_more_than_they_hold() -> None:
    assert "does not fill" in _refused(_claim([10**9, 10**9]))
    assert "does not fill" in _refused(_claim([2]))
    assert "impossible shape" in _refused(_claim([-1, -4]))
    assert "impossible shape" in _refused(_claim([1] * 40))
    assert "unknown element type" in _refused(_claim([1], data_type=999))


def test_a_giant_tensor_made_by_a_tiny_file_is_never_made() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"]),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    model = making.model(nodes, {"x": [1]}, ["y"], {"s": np.array([10**6, 10**6])})
    started = time.process_time()
    extraction = extract(model.SerializeToString())
    assert time.process_time() - started < 5
    assert extraction.calls == 1


def test_subgraphs_nested_too_deeply() -> None:
    model = making.model([], {"x": [2], "c": []}, ["l2"])
    model.graph.node.extend(making.nested(MAX_SUBGRAPH_DEPTH + 3).node)
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info(f"l{MAX_SUBGRAPH_DEPTH + 2}"))
    assert "nested" in _refused(model)


def test_protobuf_nested_beyond_all_bounds() -> None:
    data = b""
    for _ in range(2000):  # a length-delimited graph within a graph's first field, again and again
        size, head = len(data), b""
        while size >= 128:
            head += bytes([size % 128 + 128])
            size //= 128
        data = b"\x0a" + head + bytes([size]) + data
    _refused(b"\x3a" + data)


def _circle() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return making.model(nodes, {"x": [2]}, ["b"])


def _two_makers() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])]
    return making.model(nodes, {"x": [2]}, ["y"])


def _hides_an_input() -> onnx.ModelProto:
    return making.model([helper.make_node("Relu", ["x"], ["x"])], {"x": [2]}, ["x"])


def _reads_nothing() -> onnx.ModelProto:
    return making.model([helper.make_node("Relu", ["ghost"], ["y"])], {"x": [2]}, ["y"])


def _output_of_nothing() -> onnx.ModelProto:
    return making.model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["z"])


def _contradiction() -> onnx.ModelProto:
    return making.model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3], "w": [4, 5]}, ["y"])


def _unknown_attribute() -> onnx.ModelProto:
    return making.model([helper.make_node("Relu", ["x"], ["y"], colour=3)], {"x": [2]}, ["y"])


def _twin_inputs() -> onnx.ModelProto:
    model = making.relu()
    model.graph.input.append(model.graph.input[0])
    return model


def _no_shape() -> onnx.ModelProto:
    model = making.relu()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


def _future_opset() -> onnx.ModelProto:
    return making.model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], opset=9999)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_circle, "in a circle"),
        (_two_makers, "named 'y'"),
        (_hides_an_input, "given from outside"),
        (_reads_nothing, "reads 'ghost', which nothing makes"),
        (_output_of_nothing, "output 'z' is made by nothing"),
        (_contradiction, "contradicts its inputs"),
        (_unknown_attribute, "contradicts its inputs"),
        (_twin_inputs, "named 'x'"),
        (_no_shape, "no element type or no shape"),
        (_future_opset, "opset 9999"),
    ],
)
def test_graphs_that_cannot_be(make: Callable[[], onnx.ModelProto], words: str) -> None:
    assert words in _refused(make())


def _function(name: str, calls: list[str]) -> onnx.FunctionProto:
    nodes, value = [], "a"
    for i, call in enumerate(calls):
        nodes.append(helper.make_node(call, [value], [f"v{i}"], domain="" if call == "Relu" else "own"))
        value = f"v{i}"
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], [value], nodes, imports)


def test_functions_that_call_themselves() -> None:
    functions = [_function("f", ["g"]), _function("g", ["f"])]
    node = helper.make_node("f", ["x"], ["y"], domain="own")
    assert "calls itself" in _refused(making.model([node], {"x": [2]}, ["y"], functions=functions))


def test_functions_that_multiply_beyond_bounds() -> None:
    functions = [_function("f0", ["Relu"] * 10)]
    functions += [_function(f"f{i}", [f"f{i - 1}"] * 10) for i in range(1, 9)]
    node = helper.make_node("f8", ["x"], ["y"], domain="own")
    started = time.process_time()
    assert "functions inlined" in _refused(making.model([node], {"x": [2]}, ["y"], functions=functions))
    assert time.process_time() - started < 5


def test_functions_are_inlined() -> None:
    node = helper.make_node("twice", ["x"], ["y"], domain="own")
    model = making.model([node], {"x": [2]}, ["y"], functions=[_function("twice", ["Relu", "Relu"])])
    assert [found.calls for found in extract(model.SerializeToString()).operators] == [2]


def test_nodes_in_any_order_are_put_right() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Exp", ["x"], ["a"])]
    extraction = extract(making.model(nodes, {"x": [2]}, ["y"]).SerializeToString())
    assert {found.operator.op_types for found in extraction.operators} == {("Relu",), ("Exp",)}


def test_mutilated_files_raise_nothing_else() -> None:
    """Four hundred files with bytes changed, cut and doubled: read, or refused with a sentence."""
    random = np.random.default_rng(3)
    source = sample_graph("zfnet512")
    for _ in range(400):
        data = bytearray(source)
        for place in random.integers(0, len(data) - 30, 4):
            kind = random.integers(3)
            if kind == 0:
                data[place] = int(random.integers(256))
            elif kind == 1:
                del data[place : place + int(random.integers(1, 20))]
            else:
                data[place:place] = data[place : place + int(random.integers(1, 30))]
        try:
            extract(bytes(data))
        except InvalidModel:
            continue
