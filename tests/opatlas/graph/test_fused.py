"""Several nodes as one operator: the same key wherever they stand, and what its inputs and outputs are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.errors import InvalidOperator
from opatlas.graph.fused import fused, operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.identity import canonicalise, describe
from opatlas.identity.bounds import MAX_NODES
from tests.tuning.graph.making import model

WEIGHT = np.ones((8, 8), np.float32)


def graph_of(nodes: list[Any], inputs: Any, outputs: list[str], constants: Any = None) -> ModelGraph:
    made = model(nodes, inputs, outputs, constants)
    made.ir_version = 10
    return ModelGraph(made.SerializeToString())


def small() -> ModelGraph:
    """A product and its activation, and nothing else."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    return graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": WEIGHT})


def large() -> ModelGraph:
    """The same two among others, under other names and with other weights."""
    nodes = [
        helper.make_node("Tanh", ["given"], ["t"]),
        helper.make_node("Neg", ["given"], ["other"]),
        helper.make_node("MatMul", ["t", "kernel"], ["product"], name="dense"),
        helper.make_node("Relu", ["product"], ["hidden"]),
        helper.make_node("Add", ["hidden", "other"], ["sum"]),
    ]
    return graph_of(nodes, {"given": (4, 8)}, ["sum"], {"kernel": 3 * WEIGHT})


def test_the_same_nodes_of_two_models_are_one_operator() -> None:
    here, there = small(), large()
    one = operator_of(here, [0, 1], here.nodes[1].outputs)
    other = operator_of(there, [2, 3], there.nodes[3].outputs)
    assert one.operator == other.operator and one.operator.key == other.operator.key
    assert describe(one.operator).op_type == "MatMul+Relu"
    assert [there.names[value] for value in other.tensors] == ["t", "kernel"]
    assert [there.names[value] for value in other.outputs] == ["hidden"]


def test_it_is_what_a_caller_gets_who_sends_the_nodes_as_one_graph() -> None:
    """So a lookup of ``Conv+Relu`` by hand, a log's fused operator and a plan's meet at one key."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Conv", ["r", "k", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", "least", ""], ["d"]),
        helper.make_node("Add", ["d", "r"], ["y"]),
    ]
    constants = {
        "shape": np.array([1, 4, 6, 6]),
        "k": np.ones((4, 4, 3, 3), np.float32),
        "b": np.ones(4, np.float32),
        "least": np.float32(0.25),
    }
    graph = graph_of(nodes, {"x": (4, 36)}, ["y"], constants)
    found = operator_of(graph, range(4), graph.outputs)
    expected = canonicalise(model(nodes, {"x": (4, 36)}, ["y"], constants))
    assert found.operator == expected.operator
    named = [expected.inputs[number] for number in expected.operator.tensor_inputs]
    assert [graph.names[value] for value in found.tensors] == named
    roles = {expected.inputs[at]: one.role for at, one in enumerate(expected.operator.inputs)}
    assert (roles["x"], roles["k"], roles["b"]) == ("runtime", "const", "const")


def test_a_value_that_several_nodes_read_is_one_input_and_what_is_made_within_is_none() -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["b"]),
        helper.make_node("Sub", ["b", "a"], ["y"]),
    ]
    graph = graph_of(nodes, {"x": (5,)}, ["y"])
    found = operator_of(graph, [0, 1, 2], graph.outputs)
    assert len(found.operator.inputs) == 1 and found.tensors == graph.inputs
    assert found.operator.op_types == ("Tanh", "Mul", "Sub")


def test_several_outputs_are_told_apart() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("Neg", ["b"], ["c"]),
    ]
    graph = graph_of(nodes, {"x": (4, 2)}, ["a", "c"])
    found = operator_of(graph, [0, 1], [graph.outputs[1], graph.outputs[0]])
    assert [graph.names[value] for value in found.outputs] == ["a", "c"]
    assert len(found.operator.outputs) == 2


def test_what_is_no_operator_together_says_why() -> None:
    graph = small()
    with pytest.raises(InvalidOperator, match="None of the nodes makes the value"):
        operator_of(graph, [0, 1], graph.inputs)
    chain = [helper.make_node("Neg", [f"v{at}"], [f"v{at + 1}"]) for at in range(MAX_NODES + 1)]
    long = graph_of(chain, {"v0": (2,)}, [f"v{MAX_NODES + 1}"])
    assert len(operator_of(long, range(MAX_NODES), long.nodes[MAX_NODES - 1].outputs).operator.nodes) == 256
    with pytest.raises(InvalidOperator, match="256"):
        operator_of(long, range(MAX_NODES + 1), long.outputs)


def test_a_branch_is_in_none() -> None:
    bodies = {}
    for which, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        out = helper.make_tensor_value_info(which, TensorProto.FLOAT, [2])
        bodies[which] = helper.make_graph([helper.make_node(op, ["x"], [which])], which, [], [out])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], **bodies),
    ]
    graph = graph_of(nodes, {"x": (2,)}, ["y"])
    with pytest.raises(InvalidOperator, match=r"Node 2 \(If\) is no operator"):
        operator_of(graph, [1, 2], graph.outputs)


def test_operators_of_several_nodes_are_put_together_as_well() -> None:
    """An older Softmax is three nodes in the canonical opset."""
    made = model(
        [helper.make_node("Softmax", ["x"], ["s"], axis=1), helper.make_node("Neg", ["s"], ["y"])],
        {"x": (2, 3, 4)},
        ["y"],
        opset=11,
    )
    made.ir_version = 7
    graph = ModelGraph(made.SerializeToString())
    own = graph.operator(0)
    assert own is not None and len(own[0].operator.nodes) > 1
    found = operator_of(graph, [0, 1], graph.outputs)
    assert found.operator.op_types == (*own[0].operator.op_types, "Neg")


def test_one_part_alone_comes_back_as_it_is() -> None:
    graph = small()
    one = operator_of(graph, [0], ())
    assert fused([one], one.outputs) == one
