"""A model's simpler form: what goes, what stays, and that it computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from opatlas.graph.fused import operator_of
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.graph.simplify import NotSimplified, simplified
from opatlas.plan.exactness import error_of, in_float64
from opatlas.session import forms
from opatlas.session.forms import simplified_graph
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.tuning.graph.making import model

pytest.importorskip("torch")
RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def made(nodes: list[Any], shape: tuple[int, ...], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    one = model(nodes, {"x": shape}, ["y"], constants)
    one.ir_version = 10
    return one


def convolutional() -> onnx.ModelProto:
    """A padded convolution, normalised, then two transposes that cancel, and a node that nobody reads."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Tanh", ["n"], ["unread"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[0, 3, 1, 2]),
        helper.make_node("Mul", ["a", "b"], ["ab"]),
        helper.make_node("Add", ["u", "ab"], ["y"]),
    ]
    constants = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "w": drawn(6, 3, 3, 3), "scale": drawn(6),
        "shift": drawn(6), "mean": drawn(6), "variance": np.abs(drawn(6)) + 0.5,
        "a": drawn(6, 1, 1), "b": drawn(6, 1, 1),
    }  # fmt: skip
    return made(nodes, (2, 3, 9, 9), constants)


def perceptron() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Identity", ["s"], ["i"]),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    return made(nodes, (1, 8, 16), {"w": drawn(16, 32), "b": drawn(32)})


def types(one: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in one.graph.node]


def test_constants_and_normalisations_are_folded_and_what_cancels_or_is_unread_goes() -> None:
    assert types(simplified(convolutional())) == ["Conv", "Relu", "Add"]


def test_what_fuses_and_simplifies_nothing_is_left_to_plans() -> None:
    assert types(simplified(perceptron())) == ["MatMul", "Add", "Relu"]


@pytest.mark.parametrize("make", [convolutional, perceptron])
def test_it_is_at_most_twice_as_far_from_float64_as_onnx_runtime_is(make: Any) -> None:
    graph = ModelGraph(make().SerializeToString())
    feed = random_inputs(graph, 2)
    found = simplified_graph(graph, None, feed, 1)
    assert found.key != graph.key and len(found.nodes) < len(graph.nodes)
    exact = in_float64(graph, feed)
    error, theirs = (error_of(wanted(one.model.SerializeToString(), feed), exact) for one in (found, graph))
    assert theirs > 0 and error <= 2 * theirs


def test_its_key_says_nothing_of_operators_that_it_has_not() -> None:
    """ONNX Runtime writes down every domain that it knows."""
    assert [one.domain for one in simplified(perceptron()).opset_import] == [""]


def test_symbolic_dimensions_keep_the_sizes_that_they_are_given() -> None:
    one = perceptron()
    one.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    graph = ModelGraph(one.SerializeToString(), {"batch": 3})
    found = simplified_graph(graph, {"batch": 3}, random_inputs(graph, 0), 1)
    assert random_inputs(found, 0)["x"].shape == (3, 8, 16)


def test_what_gives_other_values_or_cannot_be_compared_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = ModelGraph(perceptron().SerializeToString())
    feed = random_inputs(graph, 0)

    def wrong(given: onnx.ModelProto, dims: Any) -> onnx.ModelProto:
        found = simplified(given, dims)
        found.graph.node[-1].op_type = "Neg"
        return found

    monkeypatch.setattr(forms, "simplified", wrong)
    with pytest.raises(NotSimplified, match="other values"):
        simplified_graph(graph, None, feed, 1)
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    random = ModelGraph(made(nodes, (4,), {}).SerializeToString())
    with pytest.raises(NotSimplified, match="random numbers"):
        simplified_graph(random, None, random_inputs(random, 0), 1)


@pytest.mark.parametrize("kind", [RandomModel, RandomBodies])
@pytest.mark.parametrize("seed", range(6))
def test_random_models_give_what_they_gave(kind: Any, seed: int) -> None:
    """Branches and loops too; over other inputs than it was verified with."""
    one = kind(seed)
    data = one.build(2) if isinstance(one, RandomModel) else one.build()
    graph = ModelGraph(data)
    found = simplified_graph(graph, None, one.feed(1), 1)
    assert len(found.nodes) <= len(graph.nodes)
    for feed in (one.feed(2), one.feed(3)):
        assert_same(wanted(found.model.SerializeToString(), feed), wanted(data, feed))


def test_a_simplified_convolution_is_none_of_those_that_tvm_does_badly() -> None:
    from tuning.routes.compiler.tvm.table import normalises_a_convolution

    graph = ModelGraph(convolutional().SerializeToString())
    pair = operator_of(graph, [1, 2], graph.nodes[2].outputs).operator
    assert pair.op_types == ("Conv", "BatchNormalization") and normalises_a_convolution(pair)
    simple = ModelGraph(simplified(convolutional()).SerializeToString())
    [conv, relu] = simple.nodes[:2]
    assert not normalises_a_convolution(operator_of(simple, [0, 1], relu.outputs).operator)
    assert conv.proto.op_type == "Conv"
