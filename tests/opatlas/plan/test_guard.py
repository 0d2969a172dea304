"""Which runs are ONNX Runtime's own, whoever runs the model otherwise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.graph.normal import ModelGraph
from opatlas.plan.guard import InputGuard
from tests.opatlas.graph.test_examples import graph_of

node = helper.make_node


def one_input(element: int, shape: tuple[int, ...] = (2, 3)) -> ModelGraph:
    return graph_of([node("Identity", ["x"], ["y"])], {"x": (element, shape)}, {})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (TensorProto.FLOAT, np.float32),
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    ],
)
def test_nan_and_infinities_of_every_float_type(element: int, dtype: Any, bad: float) -> None:
    guard = InputGuard(one_input(element))
    plain = np.array([[1, -2, 0], [3e4, -3e4, 1e-3]], dtype)
    assert not guard.needs_default({"x": plain})
    for place in np.ndindex(2, 3):
        changed = plain.copy()
        changed[place] = bad
        assert guard.needs_default({"x": changed})
        assert guard.needs_default({"x": changed.T.copy().T})


def test_floats_whose_products_are_endless() -> None:
    guard = InputGuard(one_input(TensorProto.FLOAT, (3,)))
    assert guard.needs_default({"x": np.array([1, 1e20, 1], np.float32)})
    assert not guard.needs_default({"x": np.array([1, 1e12, 1], np.float32)})


def test_whole_numbers_beyond_what_floats_hold() -> None:
    for element, dtype in ((TensorProto.INT64, np.int64), (TensorProto.INT32, np.int32)):
        guard = InputGuard(one_input(element, (2,)))
        assert not guard.needs_default({"x": np.array([2**24, -(2**24)], dtype)})
        assert guard.needs_default({"x": np.array([2**24 + 1, 0], dtype)})
        assert guard.needs_default({"x": np.array([0, -(2**24) - 1], dtype)})


def test_small_types_and_masks_are_not_looked_at() -> None:
    guard = InputGuard(one_input(TensorProto.UINT8, (2,)))
    assert not guard.needs_default({"x": np.array([0, 255], np.uint8)})
    assert not InputGuard(one_input(TensorProto.BOOL, (2,))).needs_default({"x": np.array([True, False])})


def test_indices_beyond_their_axis_and_divisors_of_nothing() -> None:
    graph = graph_of(
        [node("Gather", ["t", "i"], ["g"]), node("Div", ["g", "d"], ["y"])],
        {"i": (TensorProto.INT64, (2,)), "d": (TensorProto.INT64, (2,))},
        {"t": np.arange(10)},
    )
    guard, fine = InputGuard(graph), {"i": np.array([-10, 9]), "d": np.array([3, -1])}
    assert not guard.needs_default(fine)
    assert guard.needs_default({**fine, "i": np.array([0, 10])})
    assert guard.needs_default({**fine, "d": np.array([0, 1])})


def test_nothing_is_no_trouble() -> None:
    assert not InputGuard(one_input(TensorProto.FLOAT, (0,))).needs_default({"x": np.zeros(0, np.float32)})
    assert not InputGuard(one_input(TensorProto.INT64, (0,))).needs_default({"x": np.zeros(0, np.int64)})
    assert not InputGuard(one_input(TensorProto.FLOAT, (1,))).needs_default({"x": [1.0]})
