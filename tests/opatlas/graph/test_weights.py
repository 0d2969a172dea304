"""Weights in other files: read from the model's folder and from nowhere else, and handed over beside a model
that is too large to be written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, NoSuchFile

import opatlas
from opatlas import memory
from opatlas.client import Client
from opatlas.errors import InvalidModel, LoadError
from opatlas.graph import weights
from opatlas.graph.given_model import read_model
from opatlas.graph.normal import ModelGraph
from opatlas.plan.profiling import node_times
from opatlas.plan.regions import ModelPart, open_region
from tests.opatlas.plan.making import Kernels, assert_same, executor
from tests.tuning.graph.making import model

SIZE = 40
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
FEED = {"x": np.linspace(-1, 1, SIZE, dtype=np.float32).reshape(1, SIZE)}


def product(*, bias: bool = True) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"])]
    nodes.append(helper.make_node("Relu", ["q"], ["y"]))
    made = model(nodes, {"x": (1, SIZE)}, ["y"], {"w": W, "b": W[0]})
    made.ir_version = 8
    return made


def saved(folder: Path, location: str = "weights.bin", **told: str) -> Path:
    """The model with its product's weight where ``location`` says; ``told`` instead of what is right."""
    made = product()
    [weight] = [one for one in made.graph.initializer if one.name == "w"]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "16", "length": str(W.nbytes), **told}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def offline(tmp_path: Path) -> Any:
    with Client(offline=True, cache=tmp_path / "cache") as client:
        yield client


def contents() -> bytes:
    return b"before the data." + W.tobytes() + b"after"


@pytest.mark.parametrize("location", ["weights.bin", "inner/weights.bin"])
def test_weights_are_read_from_the_models_folder(tmp_path: Path, offline: Client, location: str) -> None:
    path = saved(tmp_path, location)
    (tmp_path / "inner").mkdir()
    (tmp_path / location).write_bytes(contents())
    with opatlas.Session(path, client=offline, frameworks=[]) as session:
        expected = ort.InferenceSession(path).run(None, FEED)
        assert_same(session.run(None, FEED), expected)
        inside = ModelGraph(product().SerializeToString())
        assert session.graph.key == inside.key  # wherever the weights lie, the structure is the same


def test_a_model_without_a_folder_must_hold_its_weights(tmp_path: Path, offline: Client) -> None:
    path = saved(tmp_path)
    (tmp_path / "weights.bin").write_bytes(contents())
    with pytest.raises(InvalidModel, match="'w' keeps its data in another file; send one file"):
        ModelGraph(path.read_bytes())
    with pytest.raises(Fail, match="External data path validation failed"):  # ONNX Runtime's
        opatlas.Session(path.read_bytes(), client=offline)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../secret", "does not lie in the model's folder"),
        ("inner/../../secret", "does not lie in the model's folder"),
        ("{outside}", "does not lie in the model's folder"),
        ("", "does not lie in the model's folder"),
        ("link", "Too many levels of symbolic links"),
        ("linked/secret", "cannot be read"),
        ("pipe", "it is no file"),
        ("inner", "it is no file"),
        ("none", "No such file"),
        ("nul\0l", "null byte"),
        ("short", r"needs 6400 bytes; 'short' has 4 there"),
    ],
)
def test_nothing_outside_is_read(tmp_path: Path, location: str, why: str) -> None:
    outside, folder = tmp_path / "secret", tmp_path / "folder"
    folder.mkdir()
    outside.write_bytes(contents())
    (folder / "link").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    (folder / "inner").mkdir()
    (folder / "short").write_bytes(contents()[:20])
    os.mkfifo(folder / "pipe")
    path = saved(folder, location.format(outside=outside))
    with pytest.raises(InvalidModel, match=why):
        ModelGraph(path.read_bytes(), folder=folder)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"length": "8"}, "needs 6400 bytes; it names 8"),
        ({"length": str(1 << 62)}, "it names 4611686018427387904"),
        ({"offset": "-1"}, "no number: '-1'"),
        ({"offset": "9" * 19}, "cannot be read|has 0 there"),
        ({"offset": "1e3"}, "no number"),
    ],
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, told: dict[str, str], why: str) -> None:
    path = saved(tmp_path, **told)
    (tmp_path / "weights.bin").write_bytes(contents())
    with pytest.raises(InvalidModel, match=why):
        ModelGraph(path.read_bytes(), folder=tmp_path)


def test_weights_that_memory_has_no_room_for_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)  # and the file is not there
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * W.nbytes)
    with pytest.raises(InvalidModel, match=r"weights do not fit: 0\.0 GB of memory are needed"):
        ModelGraph(path.read_bytes(), folder=tmp_path)


def test_a_model_too_large_to_be_written_has_its_weights_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = product().SerializeToString()
    expected = ort.InferenceSession(data).run(None, FEED)
    graph = ModelGraph(data)
    monkeypatch.setattr(weights, "MOST_SERIALISED", 1000)
    light = weights.serialisable(graph.model)
    assert light.ByteSize() < 1000 and [one.name for one in light.graph.initializer] == ["w", "b"]
    assert numpy_helper.to_array(light.graph.initializer[1]).tolist() == W[0].tolist()  # small ones stay
    for nodes in ([], [1]):  # the whole model; regions around a kernel
        assert_same(executor(graph, Kernels(graph, nodes)).run(FEED), expected)
    assert node_times(graph, FEED, 1)
    pytest.importorskip("openvino")
    with pytest.raises(LoadError, match="up to 2 GB"):
        open_region("openvino", ModelPart.whole(graph), 1)


def test_random_inputs_that_memory_has_no_room_for_are_refused(
    offline: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opatlas.Session(product().SerializeToString(), client=offline, frameworks=[]) as session:
        monkeypatch.setattr(memory, "available_bytes", lambda: 100)
        with pytest.raises(InvalidModel, match=r"Input 'x' of \[1, 40\] does not fit"):
            session.example()


def test_a_model_that_is_not_there_is_said_in_a_sentence(tmp_path: Path, offline: Client) -> None:
    with pytest.raises(InvalidModel, match=r"none\.onnx cannot be read: No such file"):
        read_model(tmp_path / "none.onnx", None)
    with pytest.raises(NoSuchFile):  # ONNX Runtime's
        opatlas.Session(tmp_path / "none.onnx", client=offline)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("out", "a link leads out of the model's folder"),
        ("linked/weights.bin", "a link leads out of the model's folder"),
        ("../weights.bin", "does not lie in the model's folder"),
        ("round", "cannot be read"),
        ("device", "a link leads out"),
        ("pipe", "it is no file"),
    ],
)
def test_links_lead_nowhere_else(tmp_path: Path, location: str, why: str) -> None:
    folder, beside = tmp_path / "folder", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    (beside / "weights.bin").write_bytes(contents())
    (folder / "out").symlink_to(beside / "weights.bin")
    (folder / "linked").symlink_to(beside, target_is_directory=True)
    (folder / "round").symlink_to("round")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "real")
    (folder / "pipe").symlink_to("real")
    with pytest.raises(InvalidModel, match=why):
        read_model(saved(folder, location), None)


@pytest.mark.parametrize("location", ["inside", "blob", "inner/blob"])
def test_links_lead_into_the_folder_and_to_where_the_model_really_lies(tmp_path: Path, location: str) -> None:
    folder, blobs = tmp_path / "snapshots/01", tmp_path / "blobs"
    (folder / "inner").mkdir(parents=True)
    blobs.mkdir()
    saved(blobs, location).rename(blobs / "aa")
    (folder / "model.onnx").symlink_to(blobs / "aa")
    (blobs / "bb").write_bytes(contents())
    (folder / "real").write_bytes(contents())
    (folder / "inside").symlink_to("real")
    for link in ("blob", "inner/blob"):
        (folder / link).symlink_to(blobs / "bb")
    [weight] = [
        one for one in read_model(folder / "model.onnx", None).model.graph.initializer if one.name == "w"
    ]
    assert np.array_equal(numpy_helper.to_array(weight), W)
