"""Models taken apart into operators with counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.errors import InvalidModel
from opatlas.graph import Extraction, extract
from tests.tuning.graph import making
from tests.tuning.graph.encoder import encoder_model
from tuning.graph import sample_graph


def _types(extraction: Extraction) -> Counter[str]:
    counts: Counter[str] = Counter()
    for found in extraction.operators:
        counts["+".join(found.operator.op_types)] += found.calls
    return counts


@pytest.mark.parametrize(
    ("name", "calls", "distinct"),
    [
        # The open list counts 57 for ResNet-50: one of its convolutions is there twice, with pads of zero
        # written out and left to the default, which is one operator.
        ("resnet50", 176, 56),
        ("alexnet", 24, 21),
        ("squeezenet", 66, 38),
        ("vgg19", 46, 26),
        ("zfnet512", 22, 19),
    ],
)
def test_the_open_graphs_come_to_their_known_counts(name: str, calls: int, distinct: int) -> None:
    extraction = extract(sample_graph(name))
    assert (extraction.calls, len(extraction.operators), extraction.unmapped) == (calls, distinct, {})


def test_resnet50_operator_by_operator() -> None:
    assert _types(extract(sample_graph("resnet50"))) == {
        "Conv": 53, "BatchNormalization": 53, "Relu": 49, "Sum": 16, "MaxPool": 1, "AveragePool": 1,
        "Reshape": 1, "Gemm": 1, "Softmax": 1,
    }  # fmt: skip


def test_weights_are_constants_and_activations_are_not() -> None:
    extraction = extract(sample_graph("alexnet"))
    conv = next(found.operator for found in extraction.operators if found.operator.op_types == ("Conv",))
    assert sorted(value.role for value in conv.inputs) == ["const", "const", "runtime"]
    assert all(value.data is None for value in conv.inputs)


@pytest.fixture(scope="module")
def encoder() -> bytes:
    return encoder_model(layers=2, hidden=64, heads=4, sequence=32)


def test_an_encoder_exported_from_pytorch_is_taken_apart_whole(encoder: bytes) -> None:
    extraction = extract(encoder)
    types = _types(extraction)
    assert extraction.unmapped == {}
    assert types["LayerNormalization"] == 5
    assert types["Softmax"] == 2
    assert types["MatMul"] + types["Gemm"] == 12
    assert not any("Shape" in name.split("+") or "Constant" in name for name in types)
    assert extraction.calls == sum(types.values())


def test_symbolic_dimensions_must_be_given_and_are_named() -> None:
    data = encoder_model(hidden=64, sequence=32, symbolic_batch=True)
    with pytest.raises(InvalidModel, match=r"dimensions batch are symbolic: .* batch=1"):
        extract(data)
    one, two = extract(data, {"batch": 1}), extract(data, {"batch": 2})
    assert one.unmapped == two.unmapped == {}
    assert {found.operator.key for found in one.operators} != {found.operator.key for found in two.operators}


def test_all_missing_dimensions_are_named_at_once() -> None:
    model = making.model(
        [helper.make_node("Add", ["x", "z"], ["y"])], {"x": ["batch", "tokens"], "z": [None, 1]}, ["y"]
    )
    with pytest.raises(InvalidModel, match=r"batch, tokens, z\[0\]"):
        extract(model.SerializeToString())
    given = extract(model.SerializeToString(), {"batch": 2, "tokens": 5, "z[0]": 2})
    assert [found.operator.output_values[0].shape for found in given.operators] == [(2, 5)]
    with pytest.raises(InvalidModel, match="at least 1"):
        extract(model.SerializeToString(), {"batch": 0, "tokens": 5, "z[0]": 2})


def _head_split() -> bytes:
    """What exporters write for ``x.reshape(x.shape[0], x.shape[1], 4, -1)``."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]), node("Gather", ["s", "one"], ["t"]),
        node("Unsqueeze", ["b", "axis"], ["b1"]), node("Unsqueeze", ["t", "axis"], ["t1"]),
        node("Concat", ["b1", "t1", "heads"], ["shape"], axis=0), node("Reshape", ["x", "shape"], ["y"]),
    ]  # fmt: skip
    constants = {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([0]), "heads": np.array([4, -1])}
    return making.model(nodes, {"x": ["batch", 6, 8]}, ["y"], constants).SerializeToString()


def test_shape_arithmetic_is_folded_and_is_no_compute() -> None:
    extraction = extract(_head_split(), {"batch": 2})
    assert (extraction.calls, extraction.folded) == (1, 6)
    assert extraction.operators[0].operator.output_values[0].shape == (2, 6, 4, 2)


def test_equal_nodes_are_one_operator_with_a_count_and_an_example() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"act{i}") for i in range(3)]
    extraction = extract(making.model(nodes, {"v0": [2, 3]}, ["v3"]).SerializeToString())
    assert [(found.calls, found.example) for found in extraction.operators] == [(3, "act0")]


def test_outputs_nobody_reads_are_left_out() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2])
    used = making.model([pool], {"x": [1, 2, 4, 4]}, ["y", "places"])
    unused = making.model([pool], {"x": [1, 2, 4, 4]}, ["y"])
    assert len(extract(used.SerializeToString()).operators[0].operator.outputs) == 2
    assert len(extract(unused.SerializeToString()).operators[0].operator.outputs) == 1


def _branch(op: str) -> object:
    output = helper.make_empty_tensor_value_info(f"{op}_out")
    return helper.make_graph([helper.make_node(op, ["x"], [f"{op}_out"])], op, [], [output])


def test_an_if_on_a_constant_is_its_branch() -> None:
    branches = {"then_branch": _branch("Relu"), "else_branch": _branch("Exp")}
    nodes = [helper.make_node("If", ["c"], ["y"], **branches), helper.make_node("Neg", ["y"], ["z"])]
    extraction = extract(making.model(nodes, {"x": [4]}, ["z"], {"c": np.array(False)}).SerializeToString())
    assert _types(extraction) == {"Exp": 1, "Neg": 1}
    assert extraction.unmapped == {}


def test_control_flow_that_depends_on_data_is_counted_by_reason() -> None:
    branches = {"then_branch": _branch("Relu"), "else_branch": _branch("Exp")}
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
        helper.make_node("ReduceMax", ["b"], ["c"], keepdims=0),
        helper.make_node("If", ["c"], ["y"], **branches),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    extraction = extract(making.model(nodes, {"x": [4]}, ["z"]).SerializeToString())
    assert extraction.calls == 6
    assert extraction.unmapped == {"control flow (If)": 1}
    assert _types(extraction)["Relu"] == _types(extraction)["Exp"] == 1  # in the branches, of either
    assert "Neg" in _types(extraction)  # behind the If, whose branches agree on the shape


def test_shapes_that_depend_on_data_are_counted_by_reason() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Neg", ["places"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    extraction = extract(making.model(nodes, {"x": [4]}, ["y", "z"]).SerializeToString())
    assert _types(extraction) == {"Relu": 1}
    assert extraction.unmapped == {
        "NonZero: the shape of its output depends on data": 1,
        "its input's shape depends on data (from NonZero)": 1,
    }


def test_foreign_operators_and_randomness_are_counted_by_reason() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["a"]),
        helper.make_node("Fused", ["a"], ["y"], domain="com.example"),
    ]
    extraction = extract(making.model(nodes, {"x": [4]}, ["y"]).SerializeToString())
    assert _types(extraction) == {"Add": 1}
    assert extraction.unmapped == {
        "random numbers (RandomNormalLike)": 1,
        "Fused of domain com.example is not one of ONNX's own operators": 1,
    }


def test_operators_known_by_their_function_body_are_found() -> None:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    ones = np.ones(4, np.float32)
    nodes = [node, helper.make_node("Relu", ["y"], ["z"])]
    model = making.model(nodes, {"x": [1, 4, 5]}, ["z"], {"s": ones, "b": ones})
    extraction = extract(model.SerializeToString())
    assert (extraction.calls, extraction.unmapped) == (2, {})
