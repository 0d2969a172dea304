"""A model's key is its structure: names and weights are nothing, everything else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from opatlas.graph.normal import ModelGraph
from tests.opatlas.plan.graphs import RandomModel
from tests.tuning.graph.making import model


def layers(rename: str = "", scale: float = 1.0, **change: Any) -> onnx.ModelProto:
    shape = change.get("shape", (8, 8))
    return model(
        [
            helper.make_node(change.get("op", "Relu"), ["x" + rename], ["a" + rename], name=rename),
            helper.make_node("MatMul", ["a" + rename, "w" + rename], ["b" + rename]),
            helper.make_node("Softmax", ["b" + rename], ["y" + rename], axis=change.get("axis", -1)),
            helper.make_node("Reshape", ["y" + rename, "s" + rename], ["z" + rename]),
        ],
        {"x" + rename: shape},
        ["z" + rename],
        {
            "w" + rename: scale * np.ones((8, 8), np.float32),
            "s" + rename: np.array(change.get("to", [-1]), np.int64),
        },
    )


def key(made: onnx.ModelProto) -> str:
    return ModelGraph(made.SerializeToString()).key


def test_names_weights_and_documentation_change_nothing() -> None:
    other = layers(rename="_other", scale=3.0)
    other.doc_string = other.graph.node[0].doc_string = "another one"
    assert key(layers()) == key(other)


@pytest.mark.parametrize(
    "change",
    [{"op": "Tanh"}, {"axis": 0}, {"shape": (4, 8)}, {"to": [8, -1]}],
    ids=lambda one: next(iter(one)),
)
def test_what_changes_the_computation_changes_the_key(change: dict[str, Any]) -> None:
    assert key(layers()) != key(layers(**change))


def with_if(then: str, names: tuple[str, str] = ("t", "e"), reads: str = "x") -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    bodies = [
        helper.make_graph(
            [helper.make_node(kind, [reads], [name])], name, [], [info(name, onnx.TensorProto.FLOAT, [4])]
        )
        for kind, name in zip((then, "Neg"), names, strict=True)
    ]
    nodes = [
        helper.make_node("Abs", ["x"], ["u"]),
        helper.make_node("ReduceSum", ["u"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=onnx.TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]
    return model(nodes, {"x": (4,)}, ["y"])


def test_bodies_are_part_of_it_and_their_names_are_not() -> None:
    assert key(with_if("Relu")) == key(with_if("Relu", names=("p", "q")))
    assert key(with_if("Relu")) != key(with_if("Tanh"))
    assert key(with_if("Relu")) != key(with_if("Relu", reads="u"))


def with_constants(change: Callable[[list[Any]], None]) -> str:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("Add", ["z", "w"], ["f"]),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    change(nodes)
    constants = {"s": np.array([100, 100]), "w": np.full((100, 100), 2.0, np.float32)}
    return model(nodes, {"x": (100, 100)}, ["y"], constants)


def test_constants_that_nodes_make_have_their_values() -> None:
    made = with_constants(lambda nodes: None)
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    [node] = graph.nodes  # the other two are folded
    [constant] = graph.constants_of([0])
    assert (graph.evaluate([constant])[constant] == 2.0).all() and node.proto.op_type == "Add"


@pytest.mark.parametrize("seed", range(6))
def test_the_key_of_a_random_model_is_the_same_after_a_round_trip(seed: int) -> None:
    data = RandomModel(seed).build()
    again = onnx.load_from_string(data)
    for tensor in again.graph.initializer:  # weights of floats are not in it
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
            other = numpy_helper.to_array(tensor) * 2
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    assert ModelGraph(data).key == ModelGraph(again.SerializeToString()).key
    assert ModelGraph(data).key != ModelGraph(RandomModel(seed + 100).build()).key
