"""A session gives ONNX Runtime's values over inputs that no random example shows, whoever is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import opatlas
from opatlas.client import Client
from opatlas.identity import Setting
from opatlas.plan import choosing
from tests.configuring import configured
from tests.installed import needs
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better

needs("openvino", "torch", "jax")

NAN, INF = np.nan, np.inf
Feed = Mapping[str, np.ndarray]
Make = Callable[..., opatlas.Session]


def graph_of(
    nodes: list[Any], feed: Feed, constants: Mapping[str, np.ndarray] | None = None, output: str = "y"
) -> bytes:
    number = helper.np_dtype_to_tensor_dtype
    made: ModelProto = helper.make_model(
        helper.make_graph(
            nodes,
            "edges",
            [helper.make_tensor_value_info(name, number(one.dtype), one.shape) for name, one in feed.items()],
            [helper.make_empty_tensor_value_info(output)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    return made.SerializeToString()


def floats(*values: float) -> np.ndarray:
    return np.resize(np.array(values, np.float32), 67)


def whole(element: str, *values: int) -> np.ndarray:
    return np.resize(np.array(values, element), 67)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Sessions in which a framework that takes part always wins."""
    with (
        configured(cache=tmp_path / "cache"),
        Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client,
    ):
        monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)

        def made(data: bytes, framework: str = "openvino") -> opatlas.Session:
            return opatlas.Session(data, client=client, frameworks=[framework])

        yield made


node = helper.make_node
CASES: dict[str, tuple[list[Any], Feed, dict[str, np.ndarray]]] = {
    "Relu of NaN": ([node("Relu", ["x"], ["y"])], {"x": floats(NAN, 1, -1)}, {}),
    "Clip of NaN": (
        [node("Clip", ["x", "low", "high"], ["y"])],
        {"x": floats(NAN, 7, -7)},
        {"low": np.float32(-5), "high": np.float32(5)},
    ),
    "Max of NaN": ([node("Max", ["a", "b"], ["y"])], {"a": floats(NAN, 1), "b": floats(0, NAN, 2)}, {}),
    "Softmax of infinity": (
        [node("Softmax", ["x"], ["y"], axis=0)], {"x": floats(1, INF, 2)}, {}),
    "ReduceMax of NaN": ([node("ReduceMax", ["x"], ["y"], keepdims=0)], {"x": floats(1, NAN, 2)}, {}),
    "ArgMax of NaN": ([node("ArgMax", ["x"], ["y"], axis=0)], {"x": floats(1, NAN, 3)}, {}),
    "NaN within a product": (
        [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
        {"x": floats(1, NAN, -2, 3).reshape(1, 67)},
        {"w": np.eye(67, dtype=np.float32)},
    ),
    "a logarithm's NaN": (
        [node("Log", ["x"], ["l"]), node("Relu", ["l"], ["y"])], {"x": floats(-1, 2, 0.5)}, {}),
    "nothing by nothing": (
        [node("Div", ["a", "b"], ["d"]), node("Relu", ["d"], ["y"])],
        {"a": floats(0, 1, -1), "b": floats(0, 2, 0)},
        {},
    ),
    "an infinity within": (
        [node("Exp", ["x"], ["e"]), node("Sub", ["e", "e"], ["s"]), node("Relu", ["s"], ["y"])],
        {"x": floats(100, 1, -1)},
        {},
    ),
    "a constant's infinity": (
        [node("Where", ["m", "x", "low"], ["w"]), node("MaxPool", ["w"], ["y"], kernel_shape=[2, 2])],
        {"m": np.zeros((1, 1, 4, 4), bool), "x": np.ones((1, 1, 4, 4), np.float32)},
        {"low": np.float32(-INF)},
    ),
    "uint8 that wraps": (
        [node("Add", ["a", "b"], ["y"])], {"a": whole("uint8", 250, 3), "b": whole("uint8", 10, 3)}, {}),
    "int8 that wraps": (
        [node("Mul", ["a", "b"], ["y"])], {"a": whole("int8", 100, -3), "b": whole("int8", 7, 3)}, {}),
    "uint8 below nothing": (
        [node("Sub", ["a", "b"], ["y"])], {"a": whole("uint8", 1, 3), "b": whole("uint8", 10, 3)}, {}),
    "int64 beyond 32 bits": (
        [node("Add", ["a", "b"], ["y"])],
        {"a": whole("int64", 2**40 + 5, -1), "b": whole("int64", 2**40, 2)},
        {},
    ),
    "a product beyond 32 bits": (
        [node("Mul", ["a", "p"], ["y"])],
        {"a": whole("int64", 1000003, 5)},
        {"p": np.array(1000003)},
    ),
    "a hash of ids": (
        [node("Mul", ["ids", "p"], ["h"]), node("Mod", ["h", "n"], ["j"]), node("Gather", ["t", "j"], ["y"])],
        {"ids": whole("int64", 10**9 + 7, 123456789, 5)},
        {"p": np.array(1000003), "n": np.array(1000), "t": np.arange(1000, dtype=np.float32)},
    ),
    "a time in milliseconds": (
        [node("Sub", ["now", "t"], ["d"]), node("Cast", ["d"], ["y"], to=TensorProto.FLOAT)],
        {"t": whole("int64", 1700000000000, 1794999999999)},
        {"now": np.array(1795000000000)},
    ),
    "int64 whose low bits are nothing": (
        [node("Cast", ["x"], ["y"], to=TensorProto.BOOL)], {"x": whole("int64", 2**33, 0, 1)}, {}),
    "a float cast beyond 32 bits": (
        [node("Cast", ["x"], ["y"], to=TensorProto.INT64)], {"x": floats(1e12, -2.7, 3)}, {}),
    "division of large numbers": (
        [node("Div", ["a", "b"], ["y"])],
        {"a": whole("int64", -(2**40), 7, -7), "b": whole("int64", 3, -2, 2)},
        {},
    ),
    "a remainder of large numbers": (
        [node("Mod", ["a", "b"], ["y"])],
        {"a": whole("int32", 2**30 + 7, -7), "b": whole("int32", 1000, 3)},
        {},
    ),
    "a shift": (
        [node("BitShift", ["a", "b"], ["y"], direction="LEFT")],
        {"a": whole("uint8", 255, 3), "b": whole("uint8", 3, 1)},
        {},
    ),
    "pooling's last window": (
        [node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
              ceil_mode=1, count_include_pad=1)],
        {"x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)},
        {},
    ),
    "a smooth Resize": (
        [node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)],
        {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)},
        {"s": np.array([1, 1, 0.6, 0.6], np.float32)},
    ),
    "float64 beyond float32": (
        [node("Mul", ["a", "b"], ["y"])],
        {"a": np.resize([1 + 1e-12, 3.0], 67), "b": np.resize([1.0, 1e300], 67)},
        {},
    ),
    "a mask of both kinds": (
        [node("Where", ["m", "a", "b"], ["y"])],
        {"m": np.resize([True, False], 67), "a": floats(1), "b": floats(2)},
        {},
    ),
}  # fmt: skip


def rounded(found: list[np.ndarray]) -> list[np.ndarray]:
    return [one.astype(np.float64) if one.dtype.kind == "f" else one for one in found]


BY_DAY = (
    "Clip of NaN", "a logarithm's NaN", "a constant's infinity", "uint8 that wraps", "a hash of ids",
    "int64 beyond 32 bits", "a float cast beyond 32 bits", "pooling's last window",
)  # fmt: skip
"""Those of OpenVINO that are tried each day: a session takes a second."""


@pytest.mark.parametrize("case", BY_DAY)
def test_a_session_gives_onnx_runtimes_values(make: Make, case: str) -> None:
    assert_as_onnx_runtime(make, case, "openvino")


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["openvino", "pytorch", "xla"])
@pytest.mark.parametrize("case", CASES)
def test_each_session_gives_onnx_runtimes_values(make: Make, case: str, framework: str) -> None:
    assert_as_onnx_runtime(make, case, framework)


def assert_as_onnx_runtime(make: Make, case: str, framework: str) -> None:
    nodes, feed, constants = CASES[case]
    data = graph_of(nodes, feed, constants)
    with make(data, framework) as session:
        [expected] = wanted(data, feed)
        [found] = session.run(None, feed)
        binding = session.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output(session.get_outputs()[0].name)
        session.run_with_iobinding(binding)
        for one in (found, binding.copy_outputs_to_cpu()[0]):
            assert (one.dtype, one.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(*rounded([one, expected]), rtol=1e-5, atol=1e-6)


def test_a_framework_that_is_left_out_says_why(make: Make) -> None:
    nodes, feed, constants = CASES["a hash of ids"]
    with make(graph_of(nodes, feed, constants)) as session:
        assert session.refused["OpenVINO"].startswith(
            "it is known to differ from ONNX Runtime in Mul of int64, which is computed in 32 bits ("
        )


def test_one_run_over_nan_is_onnx_runtimes_and_the_next_the_frameworks_again(make: Make) -> None:
    data = graph_of([node("Relu", ["x"], ["y"])], {"x": floats(0)})
    with make(data) as session:
        assert [step.by.said for step in session.plan.steps] == ["openvino"], session.refused
        for feed in ({"x": floats(1, -2)}, {"x": floats(NAN, -INF)}, {"x": floats(3, -2)}):
            assert_same(session.run(None, feed), wanted(data, feed))
        assert [step.by.said for step in session.plan.steps] == ["openvino"]


def test_an_index_beyond_its_axis_is_refused_as_onnx_runtime_refuses_it(make: Make) -> None:
    ids = whole("int64", 0, 99, -100)
    data = graph_of(
        [node("Gather", ["t", "ids"], ["y"])], {"ids": ids}, {"t": np.arange(100, dtype=np.float32)}
    )
    with make(data) as session:
        assert [step.by.said for step in session.plan.steps] == ["openvino"], session.refused
        assert_same(session.run(None, {"ids": ids}), wanted(data, {"ids": ids}))
        with pytest.raises(InvalidArgument, match="out of data bounds"):
            session.run(None, {"ids": ids + 1})
