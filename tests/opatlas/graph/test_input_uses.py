"""What a model does with its inputs is read off its graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from opatlas.graph.input_uses import InputUse, input_uses
from opatlas.graph.normal import ModelGraph
from tests.tuning.graph.making import model

node = helper.make_node


def uses(
    nodes: list[Any], constants: dict[str, np.ndarray], *names: str, shape: tuple[int, ...] = (3,)
) -> Any:
    made = model(nodes, dict.fromkeys(names or ("x",), shape), ["y"], constants, element=TensorProto.INT64)
    return input_uses(ModelGraph(made.SerializeToString()))


TABLE = np.zeros((100, 2), np.float32)


def test_an_index_is_one_of_its_axis() -> None:
    assert uses([node("Gather", ["t", "x"], ["y"])], {"t": TABLE})["x"] == InputUse(-100, 99)
    along = uses([node("Gather", ["t", "x"], ["y"], axis=1)], {"t": TABLE})
    assert along["x"] == InputUse(-2, 1)


def test_an_index_is_followed_through_what_keeps_or_shifts_it() -> None:
    nodes = [
        node("Unsqueeze", ["x", "axes"], ["u"]),
        node("Cast", ["u"], ["c"], to=TensorProto.INT32),
        node("Cast", ["c"], ["d"], to=TensorProto.INT64),
        node("Mul", ["d", "two"], ["m"]),
        node("Add", ["m", "ten"], ["j"]),
        node("Gather", ["t", "j"], ["y"]),
    ]
    constants = {"t": TABLE, "axes": np.array([0]), "two": np.array(2), "ten": np.array(10)}
    assert uses(nodes, constants)["x"] == InputUse(-55, 44)


def test_of_two_uses_the_narrower_counts() -> None:
    nodes = [
        node("Gather", ["t", "x"], ["a"]),
        node("Gather", ["s", "x"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    assert uses(nodes, {"t": TABLE, "s": TABLE[:7]})["x"] == InputUse(-7, 6)


def test_indices_of_several_axes_are_those_of_the_smallest() -> None:
    indices = uses([node("GatherND", ["t", "x"], ["y"])], {"t": np.zeros((9, 4), np.float32)}, shape=(3, 2))
    assert indices["x"] == InputUse(-4, 3)


def test_a_divisor_is_not_zero() -> None:
    assert uses([node("Div", ["a", "b"], ["y"])], {}, "a", "b") == {
        "a": InputUse(),
        "b": InputUse(never=frozenset({0})),
    }
    shifted = uses([node("Sub", ["x", "one"], ["d"]), node("Mod", ["x", "d"], ["y"])], {"one": np.array(1)})
    assert shifted["x"] == InputUse(never=frozenset({1}))


def test_what_decides_sizes_or_rounds_is_fixed() -> None:
    sized = uses(
        [node("Add", ["x", "one"], ["s"]), node("ConstantOfShape", ["s"], ["y"])], {"one": np.array(1)}
    )
    assert sized["x"].is_fixed
    body = helper.make_graph(
        [node("Identity", ["more"], ["again"]), node("Identity", ["v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.INT64, [3])],
    )  # fmt: skip
    looped = uses([node("Loop", ["n", "", "x"], ["y"], body=body)], {"n": np.array(2)})
    assert looped["x"].is_fixed


def test_floats_have_no_bounds() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": (3,)}, ["y"])
    assert input_uses(ModelGraph(made.SerializeToString()))["x"] == InputUse(-math.inf, math.inf)
