"""A framework takes part unless the model can meet what it is known to compute otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.graph.normal import ModelGraph
from opatlas.plan.semantics.table import KnownDifference, SemanticsTable, known_table
from opatlas.plan.semantics.taking_part import OTHERS, Admission
from tests.opatlas.graph.test_examples import graph_of
from tests.opatlas.plan.semantics.test_ranges import loop

node = helper.make_node
MADE_UP = SemanticsTable(
    {},
    {"xla": {"Relu": ["float32"], "Pool": ["float32"], "Neg": ["float32"]}},
    [
        KnownDifference("xla", "Relu", "float32", "nan", "drops NaN", "nan is 0"),
        KnownDifference("xla", "*", "int64", "wide", "is computed in 32 bits"),
        KnownDifference("xla", "Neg", "float32", "always", "is odd", attributes={"mode": "odd"}),
    ],
)


def against(
    nodes: list[Any], element: int = TensorProto.FLOAT, constants: dict[str, Any] | None = None
) -> str:
    known = {name: np.asarray(one) for name, one in (constants or {}).items()}
    return Admission(graph_of(nodes, {"x": (element, (8,))}, known), MADE_UP).why_not("xla")


def test_an_operator_that_drops_nan_runs_where_there_is_none() -> None:
    assert against([node("Relu", ["x"], ["y"])]) == ""
    refused = against([node("Log", ["x"], ["l"]), node("Relu", ["l"], ["y"])])
    assert refused == "it is known to differ from ONNX Runtime in Relu of float32, which drops NaN (nan is 0)"


def test_of_an_operator_in_no_row_what_most_have_in_common_is_taken() -> None:
    nodes = [node("Mul", ["x", "c"], ["y"])]
    assert against(nodes, TensorProto.INT64, {"c": 3}) == ""
    refused = against(nodes, TensorProto.INT64, {"c": 2**20})
    assert refused == "it is known to differ from ONNX Runtime in Mul of int64, which is computed in 32 bits"


def test_a_difference_may_be_of_some_attributes_alone() -> None:
    row, table = MADE_UP.differences[2], MADE_UP
    assert table.of("xla", "Neg", "float32") == [row]
    assert row.holds_for(node("Neg", ["x"], ["y"], mode="odd"))
    assert not row.holds_for(node("Neg", ["x"], ["y"]))


def test_bodies_are_looked_into() -> None:
    assert Admission(loop("Relu"), MADE_UP).why_not("xla") == ""
    outer = loop("Relu").model.graph.node[0]
    outer.input[2] = "l"
    nodes = [node("Log", ["x"], ["l"]), outer]
    graph = graph_of(nodes, {"x": (TensorProto.FLOAT, (8,))}, {"n": np.array(3)})
    assert "drops NaN" in Admission(graph, MADE_UP).why_not("xla")


def test_kernels_have_no_place_where_nan_gets_lost() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Neg", ["r"], ["n"]),
        node("Log", ["n"], ["l"]),
        node("Relu", ["l"], ["y"]),
    ]
    known = Admission(graph_of(nodes, {"x": (TensorProto.FLOAT, (8,))}, {}), MADE_UP)
    assert [known.may_drop_nan(number) for number in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("framework", OTHERS)
def test_the_table_that_ships_leaves_a_plain_network_to_everybody(framework: str) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2]),
        node("Flatten", ["m"], ["f"]),
        node("Softmax", ["f"], ["y"]),
    ]
    made = helper.make_model(
        helper.make_graph(
            nodes,
            "plain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("w", TensorProto.FLOAT, [3, 2, 3, 3], np.linspace(-1, 1, 54).tolist())],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    assert Admission(ModelGraph(made.SerializeToString())).why_not(framework) == ""


def test_the_table_that_ships_knows_what_was_found() -> None:
    table = known_table()
    for framework, op_type, element, aspect in (
        ("openvino", "Relu", "float32", "nan"),
        ("openvino", "Add", "uint8", "wraps"),
        ("openvino", "Mul", "int64", "wide"),
        ("openvino", "Cast", "float32>int64", "wide"),
        ("openvino", "AveragePool", "float32", "always"),
        ("openvino", "*", "float64", "always"),
        ("pytorch", "Sign", "float32", "nan"),
        ("pytorch", "MaxPool", "float32", "nan"),
    ):
        assert aspect in {one.aspect for one in table.of(framework, op_type, element)}, (framework, op_type)
