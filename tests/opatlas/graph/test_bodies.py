"""Operators inside loops and branches: found with the types that they have there, once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opatlas.graph import Extraction, extract
from opatlas.graph.normal import ModelGraph
from tests.tuning.graph import making

Shape = Sequence[Any] | None
of = helper.make_node


def loop_body(nodes: list[onnx.NodeProto], carried: dict[str, Shape], outputs: list[str]) -> onnx.GraphProto:
    """``outputs``: the condition, what is carried, what is stacked."""
    given = [
        helper.make_tensor_value_info("turn", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in carried.items()),
    ]
    return helper.make_graph(
        nodes, "body", given, [helper.make_empty_tensor_value_info(one) for one in outputs]
    )


def loop(body: onnx.GraphProto, begins: str = "x", made: Sequence[str] = ("y", "all")) -> onnx.NodeProto:
    return of("Loop", ["trips", "", begins], list(made), body=body)


def read(nodes: list[onnx.NodeProto], outputs: list[str], **weights: Any) -> bytes:
    weights = {"trips": np.array(3), **weights}
    return making.model(nodes, {"x": (4, 6)}, outputs, weights).SerializeToString()


def types(extraction: Extraction) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {
        found.operator.op_types[0]: (found.calls, found.operator.output_values[0].shape)
        for found in extraction.operators
    }


def test_a_loops_operators_are_found_once_with_the_types_that_they_have_in_it() -> None:
    nodes = [of("MatMul", ["c", "w"], ["m"]), of("Tanh", ["m"], ["n"]), of("Identity", ["go"], ["on"])]
    body = loop_body(nodes, {"c": None}, ["on", "n", "m"])
    data = read([loop(body), of("Neg", ["y"], ["z"])], ["z", "all"], w=np.ones((6, 6), np.float32))
    found = extract(data)
    assert types(found) == {
        "MatMul": (1, (4, 6)), "Tanh": (1, (4, 6)), "Neg": (1, (4, 6)), "Identity": (1, ())
    }  # fmt: skip
    assert found.unmapped == {"control flow (Loop)": 1} and found.calls == 5
    matmul = next(one.operator for one in found.operators if one.operator.op_types == ("MatMul",))
    assert [value.role for value in matmul.inputs] == ["runtime", "const"]  # a weight from outside


def test_what_changes_its_shape_has_no_type_and_the_rest_has() -> None:
    nodes = [
        of("Concat", ["c", "row"], ["longer"], axis=0), of("Tanh", ["d"], ["e"]), of("Exp", ["longer"], ["f"])
    ]  # fmt: skip
    body = loop_body(nodes, {"c": [None, 6], "d": None}, ["go", "longer", "e"])
    node = of("Loop", ["trips", "", "x", "x"], ["long", "y"], body=body)
    found = extract(read([node, of("Neg", ["long"], ["z"])], ["z", "y"], row=np.ones((1, 6), np.float32)))
    assert types(found) == {"Tanh": (1, (4, 6))}
    assert sum(found.unmapped.values()) == 4  # the loop, Concat, Exp, and Neg behind it
    assert any("shape changes with the iterations" in reason for reason in found.unmapped)


def scan(**change: Any) -> onnx.NodeProto:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "part")]
    nodes = [of("Add", ["s", "part"], ["t"]), of("Abs", ["t"], ["u"])]
    ends = [helper.make_empty_tensor_value_info(name) for name in ("t", "u")]
    body = helper.make_graph(nodes, "body", given, ends)
    return of("Scan", ["first", "x"], ["last", "rows"], body=body, **{"num_scan_inputs": 1, **change})


def test_a_scans_slices_and_stacks_have_their_types() -> None:
    node = scan(scan_input_axes=[1], scan_output_axes=[-1])
    data = read([node, of("Neg", ["rows"], ["z"])], ["z", "last"], first=np.ones(4, np.float32))
    assert types(extract(data)) == {"Add": (1, (4,)), "Abs": (1, (4,)), "Neg": (1, (4, 6))}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scan_input_axes": [2]}, "goes over axis 2 of 2"),
        ({"num_scan_inputs": 3}, "goes over 3 of 2 inputs"),
        ({"scan_input_axes": [0, 1]}, "has 2 numbers, not 1"),
    ],
)
def test_what_does_not_fit_is_counted_with_its_reason(change: Any, sentence: str) -> None:
    found = extract(read([scan(**change)], ["last", "rows"], first=np.ones(6, np.float32)))
    [(reason, calls)] = [(one, calls) for one, calls in found.unmapped.items() if "inside" in one]
    assert sentence in reason and calls == 2 and found.calls == 3


def nested(depth: int) -> onnx.GraphProto:
    if not depth:
        return loop_body([of("Tanh", ["c0"], ["d0"])], {"c0": None}, ["go", "d0"])
    inner = of("Loop", ["trips", "", f"c{depth}"], [f"d{depth}"], body=nested(depth - 1))
    return loop_body([inner], {f"c{depth}": None}, ["go", f"d{depth}"])


def test_loops_within_loops() -> None:
    data = read([of("Loop", ["trips", "", "x"], ["y"], body=nested(3))], ["y"])
    assert types(extract(data)) == {"Tanh": (1, (4, 6))}
    assert list(ModelGraph(data).operators()) == [(0,) * 9]  # four loops


def test_a_contradiction_in_a_branch_is_nobodys_error_until_it_is_taken() -> None:
    """As PyTorch writes squeezing: the other branch is for other shapes."""
    end = [helper.make_empty_tensor_value_info("b")]
    bodies = {
        "then_branch": helper.make_graph([of("Squeeze", ["x", "zero"], ["b"])], "then", [], end),
        "else_branch": helper.make_graph([of("Relu", ["x"], ["b"])], "else", [], end),
    }
    nodes = [
        of("ReduceMax", ["x"], ["m"], keepdims=0), of("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        of("If", ["c"], ["y"], **bodies),
    ]  # fmt: skip
    found = extract(read(nodes, ["y"], zero=np.array([0])))
    [reason] = [one for one in found.unmapped if one.startswith("inside the body of If")]
    assert "Squeeze" in reason and found.unmapped[reason] == 2


def test_random_numbers_in_a_body_are_noticed() -> None:
    body = loop_body([of("RandomNormalLike", ["c"], ["d"])], {"c": None}, ["go", "d"])
    assert ModelGraph(read([loop(body, made=["y"])], ["y"])).is_random
    still = loop_body([of("Tanh", ["c"], ["d"])], {"c": None}, ["go", "d"])
    assert not ModelGraph(read([loop(still, made=["y"])], ["y"])).is_random


def test_a_circle_in_a_body_is_counted_with_its_reason() -> None:
    nodes = [of("Add", ["c", "b"], ["a"]), of("Neg", ["a"], ["b"])]
    found = extract(read([loop(loop_body(nodes, {"c": None}, ["go", "b"]), made=["y"])], ["y"]))
    assert any("runs in a circle" in reason for reason in found.unmapped)


def test_loops_that_would_be_walked_again_and_again_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from opatlas.graph import bodies

    monkeypatch.setattr(bodies, "MOST_EFFORT", 3)
    found = extract(read([of("Loop", ["trips", "", "x"], ["y"], body=nested(3))], ["y"]))
    assert any("nested too deeply" in reason for reason in found.unmapped)
