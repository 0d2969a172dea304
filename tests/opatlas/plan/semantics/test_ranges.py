"""What a model's values can be is bounded from its inputs on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.graph.normal import ModelGraph
from opatlas.plan.semantics.intervals import MINUS, NAN, PLUS, Interval
from opatlas.plan.semantics.ranges import LARGE, NEGATIVE, WIDE, WRAPS, of_body, of_model
from tests.opatlas.graph.test_examples import graph_of

node = helper.make_node
FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8


def met(nodes: list[Any], element: int = FLOAT, constants: dict[str, Any] | None = None) -> frozenset[str]:
    """By the last node; the input ``x`` has eight elements."""
    known = {name: np.asarray(one) for name, one in (constants or {}).items()}
    graph = graph_of(nodes, {"x": (element, (8,))}, known)
    return of_model(graph).met[-1] - {"always"}


def after(*ops: str) -> list[Any]:
    """A chain of operators of one input, the last of which makes ``y``."""
    names = ["x", *(f"v{number}" for number in range(len(ops) - 1)), "y"]
    return [node(op, [names[at]], [names[at + 1]]) for at, op in enumerate(ops)]


@pytest.mark.parametrize(
    ("ops", "special"),
    [
        (["Relu"], set()),
        (["Tanh", "Abs", "Relu"], set()),
        (["Sqrt", "Relu"], {NAN}),
        (["Abs", "Sqrt", "Relu"], set()),
        (["Log", "Relu"], {NAN, MINUS}),
        (["Exp", "Relu"], {PLUS}),
        (["Tanh", "Exp", "Relu"], set()),
        (["Exp", "Tanh", "Relu"], set()),
        (["Softmax", "Log", "Relu"], {MINUS}),
        (["Reciprocal", "Relu"], {NAN, PLUS, MINUS}),
        (["Exp", "Softmax", "Relu"], {NAN}),
        (["Sqrt", "IsNaN", "Not"], set()),
    ],
)
def test_nan_and_infinities_are_where_they_can_arise(ops: list[str], special: set[str]) -> None:
    assert met(after(*ops)) == special


def test_a_layer_norm_of_small_operators_meets_nothing_special() -> None:
    nodes = [
        node("ReduceMean", ["x"], ["mean"]),
        node("Sub", ["x", "mean"], ["d"]),
        node("Pow", ["d", "two"], ["p"]),
        node("ReduceMean", ["p"], ["v"]),
        node("Add", ["v", "small"], ["e"]),
        node("Sqrt", ["e"], ["s"]),
        node("Div", ["d", "s"], ["n"]),
        node("Relu", ["n"], ["y"]),
    ]
    assert met(nodes, constants={"two": np.float32(2), "small": np.float32(1e-5)}) == set()


def test_a_constant_infinity_is_followed() -> None:
    nodes = [node("Greater", ["x", "low"], ["m"]), node("Where", ["m", "x", "low"], ["y"])]
    assert met(nodes, constants={"low": np.float32(-math.inf)}) == {MINUS}


def test_a_difference_of_infinities_is_nan() -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Sub", ["e", "e"], ["y"])]
    assert met(nodes) == {NAN, PLUS, MINUS}


@pytest.mark.parametrize(
    ("op", "constant", "aspects"),
    [
        ("Add", 1, {NEGATIVE, LARGE}),
        ("Mul", 64, {NEGATIVE, LARGE}),
        ("Mul", 1000, {NEGATIVE, LARGE, WIDE}),
        ("Mul", 2**40, {NEGATIVE, LARGE, WIDE, WRAPS}),
        ("Mod", 1000, {NEGATIVE}),
    ],
)
def test_whole_numbers_are_counted_out(op: str, constant: int, aspects: set[str]) -> None:
    assert met([node(op, ["x", "c"], ["y"])], INT64, {"c": constant}) == aspects


def test_bytes_wrap_unless_they_are_held_back() -> None:
    assert met([node("Add", ["x", "x"], ["y"])], UINT8) == {WRAPS}
    kept = [node("Clip", ["x", "", "top"], ["c"]), node("Add", ["c", "c"], ["y"])]
    assert met(kept, UINT8, {"top": np.uint8(100)}) == set()
    assert met([node("Max", ["x", "x"], ["y"])], UINT8) == set()


def test_an_index_is_as_large_as_its_axis() -> None:
    nodes = [node("ArgMax", ["x"], ["i"]), node("Add", ["i", "i"], ["y"])]
    assert met(nodes) == set()
    ids = [node("Gather", ["t", "x"], ["e"]), node("Mul", ["x", "c"], ["y"])]
    assert met(ids, INT64, {"t": np.zeros(100, np.float32), "c": 1000}) == {NEGATIVE}


def test_the_end_of_a_slice_is_no_large_number_that_is_computed_with() -> None:
    constants = {"s": np.array([0]), "e": np.array([2**63 - 1])}
    graph = graph_of([node("Slice", ["x", "s", "e"], ["y"])], {"x": (UINT8, (8,))}, constants)
    assert of_model(graph).met[0] == {"always"}


def loop(inner: str) -> ModelGraph:
    body = helper.make_graph(
        [node("Identity", ["more"], ["again"]), node(inner, ["v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", INT64, []),
         helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", FLOAT, [8])],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", FLOAT, [8])],
    )  # fmt: skip
    return graph_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": (FLOAT, (8,))}, {"n": np.array(3)}
    )


def test_what_a_loop_carries_is_finite_unless_a_round_makes_it_otherwise() -> None:
    for inner, special in (("Tanh", False), ("Log", True)):
        graph = loop(inner)
        [outer] = graph.nodes
        found = of_body(outer, outer.bodies[0], of_model(graph))
        number = next(at for at, one in enumerate(outer.bodies[0].graph.nodes) if one.proto.op_type == inner)
        assert (NAN in found.met[number]) == special


def test_intervals_of_constants() -> None:
    assert Interval.of_array(np.array([1.0, np.nan, -np.inf])) == Interval(1, 1, frozenset({NAN, MINUS}))
    assert Interval.of_array(np.array([3, -5])) == Interval(-5, 3)
