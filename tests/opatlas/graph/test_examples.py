"""Examples that a model is checked by span its types' ranges, and mean something to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from opatlas.graph.examples import checking_inputs, narrower
from opatlas.graph.normal import ModelGraph

node = helper.make_node


def graph_of(
    nodes: list[Any], inputs: dict[str, tuple[int, tuple[int, ...]]], constants: dict[str, np.ndarray]
) -> ModelGraph:
    from onnx import numpy_helper

    made = helper.make_model(
        helper.make_graph(
            nodes,
            "examples",
            [
                helper.make_tensor_value_info(name, element, shape)
                for name, (element, shape) in inputs.items()
            ],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    return ModelGraph(made.SerializeToString())


def adding(element: int, size: int = 400) -> tuple[ModelGraph, dict[str, np.ndarray]]:
    graph = graph_of([node("Add", ["x", "x"], ["y"])], {"x": (element, (size,))}, {})
    return graph, {"x": np.ones(size, helper.tensor_dtype_to_np_dtype(element))}


def test_whole_numbers_go_to_their_types_ends() -> None:
    for element, low, high in (
        (TensorProto.UINT8, 0, 255),
        (TensorProto.INT16, -(2**15) + 1, 2**15 - 1),
        (TensorProto.INT64, -(2**63) + 1, 2**63 - 1),
        (TensorProto.UINT64, 0, 2**64 - 1),
    ):
        graph, base = adding(element)
        _, extreme = checking_inputs(graph, base)
        assert (extreme["x"].min(), extreme["x"].max()) == (low, high)


def test_the_wide_example_of_64_bits_stays_where_floats_hold_each_number() -> None:
    graph, base = adding(TensorProto.INT64)
    wide, _ = checking_inputs(graph, base)
    assert (wide["x"].min(), wide["x"].max()) == (-(2**24), 2**24)
    assert (np.abs(wide["x"]) <= 8).mean() > 0.3


def test_masks_are_of_both_kinds_and_one_of_one_element_is_the_other() -> None:
    graph = graph_of(
        [node("And", ["m", "n"], ["y"])], {"m": (TensorProto.BOOL, (9,)), "n": (TensorProto.BOOL, (1,))}, {}
    )
    wide, _ = checking_inputs(graph, {"m": np.ones(9, bool), "n": np.ones(1, bool)})
    assert set(wide["m"]) == {False, True} and not wide["n"][0]


def test_floats_have_nothing_below_nothing_then_nan_and_infinities() -> None:
    graph, base = adding(TensorProto.FLOAT)
    wide, extreme = checking_inputs(graph, base)
    assert np.isfinite(wide["x"]).all() and np.signbit(wide["x"][wide["x"] == 0]).any()
    assert ((np.abs(wide["x"]) < 1e-38) & (wide["x"] != 0)).any(), "none is smaller than normalised ones"
    assert (
        np.isnan(extreme["x"]).any() and np.isposinf(extreme["x"]).any() and np.isneginf(extreme["x"]).any()
    )


def test_a_callers_own_floats_are_kept_in_another_order() -> None:
    graph, _ = adding(TensorProto.FLOAT)
    own = {"x": np.arange(400, dtype=np.float32)}
    wide, _ = checking_inputs(graph, own, is_given=True)
    assert sorted(wide["x"]) == sorted(own["x"]) and (wide["x"] != own["x"]).any()


def test_ids_stay_in_their_vocabulary_and_divisors_are_not_nothing() -> None:
    graph = graph_of(
        [
            node("Gather", ["t", "ids"], ["e"]),
            node("Div", ["ids", "d"], ["q"]),
            node("Add", ["e", "q"], ["y"]),
        ],
        {"ids": (TensorProto.INT64, (200,)), "d": (TensorProto.INT64, (200,))},
        {"t": np.arange(30)},
    )
    base = {"ids": np.ones(200, np.int64), "d": np.ones(200, np.int64)}
    for feed in checking_inputs(graph, base):
        assert (feed["ids"].min(), feed["ids"].max()) == (-30, 29)
        assert feed["d"].all()


def test_what_decides_sizes_stays_as_it_was() -> None:
    graph = graph_of(
        [node("Expand", ["x", "s"], ["y"])],
        {"x": (TensorProto.FLOAT, (1,)), "s": (TensorProto.INT64, (1,))},
        {},
    )
    base = {"x": np.ones(1, np.float32), "s": np.array([5])}
    assert all(feed["s"] is base["s"] for feed in checking_inputs(graph, base))


def test_scalars_and_empty_arrays_are_taken() -> None:
    graph = graph_of(
        [node("Add", ["x", "e"], ["y"])], {"x": (TensorProto.FLOAT, ()), "e": (TensorProto.FLOAT, (0,))}, {}
    )
    for feed in checking_inputs(graph, {"x": np.array(1, np.float32), "e": np.zeros(0, np.float32)}):
        assert feed["x"].shape == () and feed["e"].shape == (0,)


def test_an_example_that_is_refused_is_tried_with_fewer_changes() -> None:
    base = {"x": np.zeros(3, np.float32), "n": np.ones(3, np.int64), "m": np.ones(2, bool)}
    feed = {"x": np.ones(3, np.float32), "n": np.full(3, 7), "m": np.zeros(2, bool)}
    changed = [{name for name in one if one[name] is not base[name]} for one in narrower(feed, base)]
    assert changed == [{"x"}, {"x"}, {"n"}, {"m"}]
