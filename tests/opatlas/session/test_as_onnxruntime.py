"""What a user who changes one import finds on a session as on ``onnxruntime.InferenceSession``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import opatlas
from opatlas.client import Client
from opatlas.errors import CallerError
from opatlas.identity import Setting
from opatlas.plan.regions import OnnxRuntimeRegion
from tests.opatlas.plan.making import assert_same
from tests.tuning.graph.making import model

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.full((3, 4), 2, np.float32)


def described() -> bytes:
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    nodes.append(helper.make_node("Neg", ["a"], ["z"]))
    made = model(nodes, {"x": (3, 4), "w": (3, 4)}, ["y", "z"], {"w": W})
    made.ir_version = 8
    made.producer_name, made.domain, made.model_version = "somebody", "org.example", 7
    made.doc_string, made.graph.doc_string = "a model", "its graph"
    helper.set_model_props(made, {"stride": "32"})
    return made.SerializeToString()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., opatlas.Session]]:
    with Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client:
        yield lambda *given, **named: opatlas.Session(
            described(), *given, client=client, frameworks=[], **named
        )


@pytest.fixture
def theirs() -> ort.InferenceSession:
    return ort.InferenceSession(described())


def test_it_says_of_a_model_what_onnx_runtime_says(make: Any, theirs: ort.InferenceSession) -> None:
    session = make()
    ours, meta = session.get_modelmeta(), theirs.get_modelmeta()
    for name in (
        "producer_name", "graph_name", "domain", "description", "graph_description", "version",
        "custom_metadata_map",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(meta, name)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert list(session.get_provider_options()) == session.get_providers()
    assert [(one.name, one.shape, one.type) for one in session.get_overridable_initializers()] == [
        (one.name, one.shape, one.type) for one in theirs.get_overridable_initializers()
    ]


def test_values_of_onnx_runtime_go_in_and_come_out(make: Any, theirs: ort.InferenceSession) -> None:
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(X)}
    session = make()
    assert_same(session.run(["z"], feed), theirs.run(["z"], {"x": X}))
    found = session.run_with_ort_values(["y", "z"], feed)
    expected = theirs.run_with_ort_values(["y", "z"], feed)
    assert_same([one.numpy() for one in found], [one.numpy() for one in expected])
    overridden = session.run(None, feed | {"w": ort.OrtValue.ortvalue_from_numpy(-W)})
    assert_same(overridden, theirs.run(None, {"x": X, "w": -W}))


@pytest.mark.parametrize("element", [np.float32, onnx.TensorProto.FLOAT])
def test_a_binding_takes_memory_and_values(make: Any, element: Any) -> None:
    session = make()
    binding, source, taken = session.io_binding(), X.copy(), np.empty((3, 4), np.float32)
    binding.bind_input("x", "cpu", 0, element, [3, 4], source.ctypes.data)
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 4), np.float32))
    binding.bind_output("y", "cpu", 0, element, [3, 4], taken.ctypes.data)
    binding.bind_ortvalue_output("z", value)
    for times in (1, 2):
        source[...] = times * X
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        expected = [np.maximum(times * X + W, 0), -(times * X + W)]
        assert_same([taken, value.numpy()], expected)
        assert_same([one.numpy() for one in binding.get_outputs()], expected)
    binding.clear_binding_inputs()
    given = ort.OrtValue.ortvalue_from_numpy(-X)
    binding.bind_ortvalue_input("x", given)
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), [np.maximum(W - X, 0), X - W])
    binding.clear_binding_outputs()
    assert binding.copy_outputs_to_cpu() == []
    with pytest.raises(RuntimeError, match="data transfer"):  # as ONNX Runtime says it
        binding.bind_input("x", "cuda", 0, element, [3, 4], source.ctypes.data)


def test_threads_are_taken_from_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    monkeypatch.setattr(
        "opatlas.session.session.Client", lambda **named: Client(offline=True, cache=tmp_path, **named)
    )
    with opatlas.Session(described(), options, ["CPUExecutionProvider"], frameworks=[]) as session:
        assert session.threads == 1
        assert session._client.accepts == {"kinds": ["c-abi"]}  # no library's call can take part
    with Client(offline=True, cache=tmp_path, setting=Setting(threads=2)) as client:
        with pytest.raises(CallerError, match="has 2 threads; 1 are asked for"):
            opatlas.Session(described(), options, client=client)
        assert opatlas.Session(described(), ort.SessionOptions(), client=client, frameworks=[]).threads == 2


def test_a_model_left_to_onnx_runtime_runs_with_nothing_between(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the executor's checks nor its lock: only where a run does not fit are they asked why."""
    session = make()
    expected = session.run(None, {"x": X})
    binding, taken = session.io_binding(), np.empty((3, 4), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("z", "cpu", 0, np.float32, [3, 4], taken.ctypes.data)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the executor was asked")

    with monkeypatch.context() as patched:
        patched.setattr(session._executor, "run", never)
        assert_same(session.run(None, {"x": X}), expected)
        assert_same(session.run(["z", "y"], {"x": X}), expected[::-1])
        session.run_with_iobinding(binding)
        assert_same([taken], expected[1:])
        assert_same(binding.copy_outputs_to_cpu(), expected[1:])
        assert not session.refused
        with pytest.raises(InvalidArgument):
            session.run(None, {"x": X.astype(np.float64)})
        assert session.refused == {"opatlas": "the executor was asked"}


TAKEN = {
    "a list": (None, {"x": X.tolist()}),
    "columns first": (None, {"x": np.asfortranarray(X)}),
    "strides": (None, {"x": np.repeat(X, 2, axis=1)[:, ::2]}),
    "backwards": (None, {"x": X[::-1]}),
    "spread": (None, {"x": np.broadcast_to(np.float32(2), (3, 4))}),
    "another byte order": (None, {"x": X.astype(">f4")}),  # ONNX Runtime reads it as its own
    "an overridden constant": (None, {"x": X, "w": -W}),
    "no names": ([], {"x": X}),
    "a name twice": (["z", "y", "z"], {"x": X}),
    "a tuple of names": (("z",), {"x": X}),
    "a set of names": ({"z"}, {"x": X}),
}
REFUSED = {
    "float64": (None, {"x": X.astype(np.float64)}),
    "float16": (None, {"x": X.astype(np.float16)}),
    "another size": (None, {"x": X[:2]}),
    "no rows": (None, {"x": X[:0]}),
    "no inputs": (None, {}),
    "another input": (None, {"y": X}),
    "an input more": (None, {"x": X, "q": X}),
    "None": (None, {"x": None}),
    "a tuple": (None, {"x": tuple(map(tuple, X.tolist()))}),
    "no mapping": (None, [("x", X)]),
    "another output": (["q"], {"x": X}),
    "a value within": (["a"], {"x": X}),
    "a text": ("z", {"x": X}),
    "a generator": (iter(["z"]), {"x": X}),
}


@pytest.mark.parametrize("how", TAKEN)
def test_a_run_takes_what_onnx_runtime_takes(make: Any, theirs: ort.InferenceSession, how: str) -> None:
    outputs, feed = TAKEN[how]
    found, expected = make().run(outputs, feed), theirs.run(outputs, feed)
    assert len(found) == len(expected)
    assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("how", REFUSED)
def test_what_it_refuses_is_refused_as_onnx_runtime_refuses_it(
    make: Any, theirs: ort.InferenceSession, how: str
) -> None:
    outputs, feed = REFUSED[how]
    with pytest.raises(Exception) as expected:
        theirs.run(outputs, feed)
    with pytest.raises(expected.type) as found:
        make().run(outputs, feed)
    assert str(found.value)[:30] == str(expected.value)[:30]  # behind it are addresses


def test_a_buffer_that_does_not_fit_is_refused_and_not_written(make: Any) -> None:
    session = make()
    for element, shape in ((np.int32, [3, 4]), (np.float32, [4, 3]), (np.float64, [3, 2])):
        binding, taken = session.io_binding(), np.full(12, 7, np.float32)
        binding.bind_cpu_input("x", X)
        binding.bind_output("y", "cpu", 0, element, shape, taken.ctypes.data)
        with pytest.raises(RuntimeError, match="output"):  # ONNX Runtime's
            session.run_with_iobinding(binding)
        assert set(taken) == {7.0}


def test_a_closed_session_runs_no_more(make: Any) -> None:
    session = make()
    binding, taken = session.io_binding(), np.empty((3, 4), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, [3, 4], taken.ctypes.data)
    session.run_with_iobinding(binding)
    session.close()
    for run in (lambda: session.run(None, {"x": X}), lambda: session.run_with_iobinding(binding)):
        with pytest.raises(CallerError, match="The model was closed"):
            run()


@pytest.mark.parametrize(("alone", "spins"), [(True, ""), (False, "0")])
def test_threads_of_a_region_never_spin_and_those_of_a_whole_model_may(alone: bool, spins: str) -> None:
    """As a job's own session would, where nobody else computes."""
    region = OnnxRuntimeRegion(onnx.load_from_string(described()), ["x"], ["y", "z"], 2, alone=alone)
    options = region.session.get_session_options()
    try:
        found = options.get_session_config_entry("session.intra_op.allow_spinning")
    except RuntimeError:  # nobody has said anything
        found = ""
    assert found == spins
