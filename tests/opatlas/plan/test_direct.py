"""Models in OpenVINO, PyTorch and XLA, and those with inputs that are no arrays, run straight there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import opatlas
from opatlas.client import Client
from opatlas.errors import CallerError
from opatlas.identity import Setting
from opatlas.load.kernel import KernelFailed
from opatlas.plan import choosing
from opatlas.plan.executor import Executor
from opatlas.plan.said import said_of
from tests import by_day
from tests.configuring import configured
from tests.installed import needs
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.tuning.graph.making import model

needs("openvino", "torch", "jax")

X, W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.full((3, 4), 2, np.float32)


def two_outputs() -> bytes:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    nodes.append(helper.make_node("Sub", ["y", "x"], ["z"]))
    made = model(nodes, {"b": (4,), "x": (3, 4)}, ["y", "z"])
    made.ir_version = 8
    return made.SerializeToString()


FEED = {"x": X, "b": np.arange(4, dtype=np.float32)}
LABELS = {"openvino": "OpenVINO", "pytorch": "PyTorch eager", "xla": "XLA"}
SAID = LABELS | {"onnxruntime": "ONNX Runtime"}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], opatlas.Session]]:
    with (
        configured(cache=tmp_path / "cache"),
        Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client,
    ):
        monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)  # the second of two

        def made(framework: str) -> opatlas.Session:
            others = [framework] if framework in LABELS else []
            session = opatlas.Session(two_outputs(), client=client, frameworks=others)
            assert said_of(session.plan) == f"{SAID[framework]}, the whole model", session.refused
            return session

        yield made


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the executor was asked")


@pytest.mark.parametrize("framework", LABELS)
def test_a_model_left_to_a_framework_runs_with_nothing_but_its_turn_between(
    make: Any, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, expected = make(framework), wanted(two_outputs(), FEED)
    binding, places = session.io_binding(), [np.empty((3, 4), np.float32) for _ in "yz"]
    source = X.copy()
    binding.bind_cpu_input("x", source)
    binding.bind_cpu_input("b", FEED["b"])
    for name, place in zip("yz", places, strict=True):
        binding.bind_output(name, "cpu", 0, np.float32, [3, 4], place.ctypes.data)
    monkeypatch.setattr(Executor, "run", never)
    first = session.run(None, FEED)
    kept = [one.copy() for one in first]
    assert_same(session.run(["z", "y"], FEED), expected[::-1])
    frozen = X.copy()
    frozen.flags.writeable = False
    assert_same(session.run(None, FEED | {"x": frozen}), expected)
    assert_same(
        session.run(None, FEED | {"x": np.asfortranarray(-X)}), wanted(two_outputs(), FEED | {"x": -X})
    )
    assert_same(first, expected)
    assert all((one == other).all() and one.flags.writeable for one, other in zip(first, kept, strict=True))
    for times in (1, 2):
        source[...] = times * X
        session.run_with_iobinding(binding)
        assert_same(places, wanted(two_outputs(), FEED | {"x": times * X}))
    assert "opatlas" not in session.refused
    with pytest.raises(InvalidArgument, match="Unexpected input data type"):
        session.run(None, FEED | {"x": X.astype(np.float64)})
    assert session.refused["opatlas"] == "the executor was asked"
    session.close()


@pytest.mark.parametrize("framework", ["openvino", "pytorch"])
def test_what_does_not_fit_is_onnx_runtimes_to_refuse_and_a_buffer_is_not_written(
    make: Any, framework: str
) -> None:
    session = make(framework)
    for outputs, feed, sentence in (
        (None, FEED | {"x": X.astype(np.float64)}, "Unexpected input data type"),
        (None, FEED | {"x": X[:1]}, "Got invalid dimensions for input: x"),
        (None, {"x": X}, r"Required inputs \(\['b'\]\) are missing"),
        (["q"], FEED, "Invalid output name:q"),
        ("y", FEED, "incompatible function arguments"),
    ):
        with pytest.raises((InvalidArgument, ValueError, TypeError), match=sentence):
            session.run(outputs, feed)
    for element, shape in ((np.int32, [3, 4]), (np.float32, [12]), (np.float64, [3, 2])):
        binding, places = session.io_binding(), [np.full(12, 7, np.float32) for _ in "yz"]
        for name, array in FEED.items():
            binding.bind_cpu_input(name, array)
        for name, place in zip("yz", places, strict=True):
            binding.bind_output(name, "cpu", 0, element, shape, place.ctypes.data)
        with pytest.raises(RuntimeError, match="output"):  # ONNX Runtime's
            session.run_with_iobinding(binding)
        assert all(set(place) == {7.0} for place in places)
    session.close()
    with pytest.raises(CallerError, match="The model was closed"):
        session.run(None, FEED)


@pytest.mark.parametrize("framework", by_day.only(["openvino", "pytorch", "onnxruntime"], SAID))
def test_an_output_where_an_input_lies_is_written_when_all_is_read(make: Any, framework: str) -> None:
    session, expected = make(framework), wanted(two_outputs(), FEED)
    binding, place, other = session.io_binding(), X.copy(), np.empty((3, 4), np.float32)
    binding.bind_cpu_input("x", place)
    binding.bind_cpu_input("b", FEED["b"])
    binding.bind_output("y", "cpu", 0, np.float32, [3, 4], place.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, [3, 4], other.ctypes.data)
    session.run_with_iobinding(binding)
    assert_same([place, other], expected)


@pytest.mark.parametrize("framework", by_day.only(["openvino", "pytorch"], LABELS))
def test_what_is_bound_and_may_only_be_read_is_read_at_each_run(make: Any, framework: str) -> None:
    session, source = make(framework), X.copy()
    binding, frozen = session.io_binding(), source.view()
    frozen.flags.writeable = False
    places = [np.empty((3, 4), np.float32) for _ in "yz"]
    binding.bind_cpu_input("x", frozen)
    binding.bind_cpu_input("b", FEED["b"])
    for name, place in zip("yz", places, strict=True):
        binding.bind_output(name, "cpu", 0, np.float32, [3, 4], place.ctypes.data)
    for times in (1, 2):
        source[...] = times * X
        session.run_with_iobinding(binding)
        assert_same(places, wanted(two_outputs(), FEED | {"x": times * X}))


def test_what_fails_in_a_direct_run_goes_over_to_onnx_runtime_in_that_run(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, runs = make("openvino"), list[int]()
    real = session._executor._whole.run

    def fail(inputs: Any) -> Any:
        runs.append(1)
        if len(runs) > 999:
            raise KernelFailed("out of luck")
        return real(inputs)

    monkeypatch.setattr(session._executor._whole, "run", fail)
    expected = wanted(two_outputs(), FEED)
    for _ in range(1002):
        assert_same(session.run(None, FEED), expected)
    assert len(runs) == 1001  # the 1000th, once more by the executor, and never again
    assert session._executor.fallen_back == "The model failed: out of luck"
    monkeypatch.setattr(Executor, "run", never)
    assert_same(session.run(None, FEED), expected)  # straight again, in ONNX Runtime


def test_threads_take_turns_and_each_has_its_own(make: Any) -> None:
    session, wrong = make("openvino"), list[int]()

    def run(number: int) -> None:
        feed = FEED | {"x": number * X}
        expected = wanted(two_outputs(), feed)
        for _ in range(200):
            made = session.run(None, feed)
            wrong.extend(
                number for one, other in zip(made, expected, strict=True) if abs(one - other).max() > 1e-4
            )

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def sequence() -> bytes:
    """One of a sequence's elements, beside an array."""
    nodes = [
        helper.make_node("SequenceAt", ["s", "i"], ["one"]),
        helper.make_node("Add", ["one", "x"], ["y"]),
    ]
    made = model(nodes, {"x": (3, 4)}, ["y"])
    made.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    made.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, []))
    made.ir_version = 8
    return made.SerializeToString()


def test_a_model_with_inputs_that_are_no_arrays_runs_straight_in_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = {"x": X, "s": [W, -W], "i": np.array(1)}
    with (
        Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client,
        opatlas.Session(sequence(), client=client, frameworks=[], example=feed) as session,
    ):
        with pytest.raises(InvalidArgument, match="Unexpected input data type"):
            session.run(None, feed | {"x": X.astype(np.float64)})
        with pytest.raises(InvalidArgument, match="Invalid sequence index"):
            session.run(None, feed | {"i": np.array(5)})
        monkeypatch.setattr(Executor, "run", never)
        assert_same(session.run(None, feed), [X - W])
        assert_same(session.run(["y"], feed | {"i": np.array(0)}), [X + W])
