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

import opatlas
import opatlas.session
from opatlas.client import Client
from opatlas.errors import CallerError
from opatlas.identity import Setting
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
    with pytest.raises(CallerError, match="Inputs are bound on the device 'cpu', not on 'cuda'"):
        binding.bind_input("x", "cuda", 0, element, [3, 4], source.ctypes.data)


def test_threads_are_taken_from_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    monkeypatch.setattr(
        opatlas.session,
        "Client",
        lambda **named: Client(offline=True, cache=tmp_path, setting=named["setting"]),
    )
    with opatlas.Session(described(), options, ["CPUExecutionProvider"], frameworks=[]) as session:
        assert session.threads == 1
    with Client(offline=True, cache=tmp_path, setting=Setting(threads=2)) as client:
        with pytest.raises(CallerError, match="has 2 threads; 1 are asked for"):
            opatlas.Session(described(), options, client=client)
        assert opatlas.Session(described(), ort.SessionOptions(), client=client, frameworks=[]).threads == 2


def test_what_cannot_be_followed_is_refused_plainly(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    profiling, writing = ort.SessionOptions(), ort.SessionOptions()
    profiling.enable_profiling, writing.optimized_model_filepath = True, "there.onnx"
    for options, sentence in ((profiling, "writes no profile"), (writing, "writes no optimised model")):
        with pytest.raises(CallerError, match=sentence):
            make(options)
    with pytest.raises(CallerError, match="runs by CPUExecutionProvider, not by CUDAExecutionProvider"):
        make(providers=["CUDAExecutionProvider"])
    # Passed over where ONNX Runtime has no such provider, as ONNX Runtime does; not where it has.
    both = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    make(providers=both)
    monkeypatch.setattr(
        ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    with pytest.raises(CallerError, match="not by CUDAExecutionProvider, CPUExecutionProvider"):
        make(providers=both)
