"""The newcomer's way: what public models have, by the changed import alone. Each gives what
``onnxruntime.InferenceSession`` gives, called in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client import Client

FLOAT, INT64, INT32, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.STRING
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def value(name: str, element: int, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def sequence(name: str, kind: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


@dataclass
class Public:
    """A small model with something that public models have. ``feeds``: one run each; ``planned``: whether a
    plan takes it as it is."""

    nodes: list[onnx.NodeProto]
    inputs: list[onnx.ValueInfoProto]
    outputs: list[onnx.ValueInfoProto]
    feeds: list[dict[str, Any]]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    opset: int = 17
    domains: dict[str, int] = field(default_factory=dict)
    planned: bool = False

    def model(self) -> onnx.ModelProto:
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, [*weights, *self.tensors])
        opsets = [helper.make_opsetid(*one) for one in {"": self.opset, **self.domains}.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def dynamic_batch() -> Public:
    return Public(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", FLOAT, ["batch", 8])],
        [value("y", FLOAT, ["batch", 4])],
        [{"x": floats(rows, 8)} for rows in (1, 3, 0, 7)],
        {"w": floats(8, 4)},
    )


def no_shapes() -> Public:
    return Public(
        [helper.make_node("Softmax", ["x"], ["y"], axis=-1)],
        [value("x", FLOAT, None)],
        [value("y", FLOAT, None)],
        [{"x": floats(2, 3)}, {"x": floats(4)}],
    )


def trees() -> Public:
    """A forest with ZipMap, as sklearn-onnx writes it."""
    ids, modes = [0, 1, 2], ["BRANCH_LEQ", "LEAF", "LEAF"]
    forest = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
        nodes_treeids=[0] * 3, nodes_nodeids=ids, nodes_featureids=[0] * 3, nodes_modes=modes,
        nodes_values=[0.5, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        nodes_hitrates=[1.0] * 3, nodes_missing_value_tracks_true=[0] * 3,
        class_treeids=[0] * 4, class_nodeids=[1, 1, 2, 2], class_ids=[0, 1, 0, 1],
        class_weights=[0.9, 0.1, 0.2, 0.8], classlabels_int64s=[0, 1], post_transform="NONE",
    )  # fmt: skip
    zipped = helper.make_node("ZipMap", ["scores"], ["p"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    number = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
    return Public(
        [forest, zipped],
        [value("x", FLOAT, [None, 2])],
        [value("label", INT64, [None]), sequence("p", number)],
        [{"x": floats(rows, 2)} for rows in (1, 5)],
        domains={"ai.onnx.ml": 3},
    )


def trees_of_one_size() -> Public:
    """The same planned, beside a branch that a plan may take apart."""
    made = trees()
    made.inputs, made.planned = [value("x", FLOAT, [5, 2])], True
    made.outputs[0] = value("label", INT64, [5])
    made.feeds = [{"x": floats(5, 2)}]
    return made


def sequences() -> Public:
    tensor = helper.make_tensor_type_proto(FLOAT, ["n", 2])
    return Public(
        [
            helper.make_node("SplitToSequence", ["x"], ["pieces"], axis=0),
            helper.make_node("SequenceLength", ["given"], ["count"]),
        ],
        [value("x", FLOAT, ["n", 2]), sequence("given", tensor)],
        [sequence("pieces", helper.make_tensor_type_proto(FLOAT, None)), value("count", INT64, [])],
        [{"x": floats(3, 2), "given": [floats(1, 2), floats(2, 2)]}],
    )


def texts() -> Public:
    """A vectoriser over strings."""
    labels = helper.make_node(
        "LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_int64s=[1, 2],
        default_int64=-1,
    )  # fmt: skip
    return Public(
        [labels, helper.make_node("Identity", ["t"], ["same"])],
        [value("t", STRING, ["n"])],
        [value("y", INT64, ["n"]), value("same", STRING, ["n"])],
        [{"t": np.array(["a", "q", "b"], dtype=object)}, {"t": np.array(["b"])}],
        domains={"ai.onnx.ml": 2},
    )


def contributed() -> Public:
    """Operators of com.microsoft, at one size: a plan has ONNX Runtime do them."""
    return Public(
        [helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", transB=1)],
        [value("x", FLOAT, [2, 8])],
        [value("y", FLOAT, [2, 4])],
        [{"x": floats(2, 8)}],
        {"w": floats(4, 8)},
        domains={"com.microsoft": 1},
        planned=True,
    )


HEADS, KEYS, DEPTH, WORDS = 4, 2, 16, 32
WIDTH = HEADS * DEPTH


def past(length: int, count: int) -> dict[str, np.ndarray]:
    return {
        "ids": RANDOM.integers(0, WORDS, (1, count)),
        "past_k": floats(1, KEYS, length, DEPTH),
        "past_v": floats(1, KEYS, length, DEPTH),
    }


def decoder() -> Public:
    """Grouped attention with a cache: the first run has an empty one, each later run a longer one."""
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["x"]),
        *(helper.make_node("MatMul", ["x", f"w{one}"], [one]) for one in "qkv"),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "seen", "total"],
            ["a", "present_k", "present_v"],
            domain="com.microsoft", num_heads=HEADS, kv_num_heads=KEYS,
        ),
        helper.make_node("MatMul", ["a", "wo"], ["logits"]),
    ]  # fmt: skip
    inputs = [
        value("ids", INT64, ["batch", "count"]),
        value("seen", INT32, ["batch"]),
        value("total", INT32, []),
    ]
    inputs += [value(f"past_{one}", FLOAT, ["batch", KEYS, "past", DEPTH]) for one in "kv"]
    feeds = []
    for length, count in ((0, 5), (5, 1), (6, 1)):
        whole = length + count
        counts = {"seen": np.array([whole - 1], np.int32), "total": np.array(whole, np.int32)}
        feeds.append(past(length, count) | counts)
    weights = {"words": floats(WORDS, WIDTH), "wq": floats(WIDTH, WIDTH) / 8, "wo": floats(WIDTH, WORDS) / 8}
    weights |= {f"w{one}": floats(WIDTH, KEYS * DEPTH) / 8 for one in "kv"}
    outputs = [value("logits", FLOAT, ["batch", "count", WORDS])]
    outputs += [value(f"present_{one}", FLOAT, ["batch", KEYS, "all", DEPTH]) for one in "kv"]
    return Public(nodes, inputs, outputs, feeds, weights, domains={"com.microsoft": 1})


def opset_23() -> Public:
    """Attention and normalisation as ONNX itself has them now."""
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["x"]),
        helper.make_node("RMSNormalization", ["x", "scale"], ["n"]),
        *(helper.make_node("MatMul", ["n", f"w{one}"], [one]) for one in "qkv"),
        helper.make_node(
            "Attention", ["q", "k", "v", "", "past_k", "past_v"], ["a", "present_k", "present_v"],
            q_num_heads=HEADS, kv_num_heads=KEYS, is_causal=1,
        ),
        helper.make_node("MatMul", ["a", "wo"], ["logits"]),
    ]  # fmt: skip
    made = decoder()
    made.nodes, made.opset, made.domains = nodes, 23, {}
    made.inputs = [one for one in made.inputs if one.name not in ("seen", "total")]
    made.weights["scale"] = np.ones(WIDTH, np.float32)
    made.feeds = [past(length, count) for length, count in ((0, 5), (5, 1), (6, 1))]
    return made


def int4() -> Public:
    """Weights of four bits behind DequantizeLinear (opset 21)."""
    packed = helper.make_tensor("w4", TensorProto.INT4, [8, 4], RANDOM.integers(-8, 8, 32))
    return Public(
        [
            helper.make_node("DequantizeLinear", ["w4", "scale"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        [value("x", FLOAT, [2, 8])],
        [value("y", FLOAT, [2, 4])],
        [{"x": floats(2, 8)}],
        {"scale": np.float32(0.1)},
        [packed],
        opset=21,
        planned=True,
    )


PUBLIC: dict[str, Callable[[], Public]] = {
    one.__name__: one
    for one in (
        dynamic_batch, no_shapes, trees, trees_of_one_size, sequences, texts, contributed, decoder, opset_23,
        int4,
    )
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without a service, and with a cache of its own; else as it comes."""
    monkeypatch.setattr(
        opatlas.session.session, "Client", lambda **named: Client(offline=True, cache=tmp_path / "c", **named)
    )
    return


def assert_as_there(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        else:
            assert np.array_equal(found, expected)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_as_there(*pair)
    else:
        assert found == expected


def described(args: Any) -> list[tuple[Any, ...]]:
    return [(one.name, one.type, one.shape) for one in args]


@pytest.mark.parametrize("name", PUBLIC)
def test_by_the_changed_import_alone(tmp_path: Path, name: str) -> None:
    public = PUBLIC[name]()
    path = tmp_path / "model.onnx"
    onnx.save(public.model(), path)
    theirs, ours = ort.InferenceSession(path), opatlas.Session(path)
    assert ("opatlas" not in ours.refused) is public.planned
    assert described(ours.get_inputs()) == described(theirs.get_inputs())
    assert described(ours.get_outputs()) == described(theirs.get_outputs())
    for feed in public.feeds:
        assert_as_there(ours.run(None, feed), theirs.run(None, feed))
        last = [public.outputs[-1].name]
        assert_as_there(ours.run(last, feed), theirs.run(last, feed))
    ours.close()


def test_weights_in_a_hugging_face_cache(tmp_path: Path) -> None:
    """Names are links to blobs, weights' too: the model is planned like any other."""
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/01/onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    public = contributed()
    onnx.save(public.model(), blobs / "aa", save_as_external_data=True, location="data", size_threshold=0)
    (blobs / "data").rename(blobs / "bb")
    (snapshot / "model.onnx").symlink_to("../../../blobs/aa")
    (snapshot / "data").symlink_to("../../../blobs/bb")
    theirs, ours = (make(snapshot / "model.onnx") for make in (ort.InferenceSession, opatlas.Session))
    assert not ours.refused
    assert_as_there(ours.run(None, public.feeds[0]), theirs.run(None, public.feeds[0]))


@pytest.mark.parametrize("leads", ["out of the folder", "into the folder", "by a folder", "past the folder"])
def test_other_links_are_followed_as_far_as_there(tmp_path: Path, leads: str) -> None:
    folder, beside = tmp_path / "model", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    public, location = contributed(), "sub/data" if leads == "by a folder" else "data"
    onnx.save(
        public.model(), folder / "m.onnx", save_as_external_data=True, location="data", size_threshold=0
    )
    written = onnx.load(folder / "m.onnx", load_external_data=False)
    if leads == "into the folder":
        (folder / "data").rename(folder / "real")
        (folder / "data").symlink_to("real")
    else:
        (folder / "data").rename(beside / "data")
        {
            "out of the folder": lambda: (folder / "data").symlink_to(beside / "data"),
            "by a folder": lambda: (folder / "sub").symlink_to(beside),
            "past the folder": lambda: (folder / "data").symlink_to("../beside/data"),
        }[leads]()
    for entry in written.graph.initializer[0].external_data:
        entry.value = location if entry.key == "location" else entry.value
    (folder / "m.onnx").write_bytes(written.SerializeToString())
    outcomes: list[Any] = []
    for make in (ort.InferenceSession, opatlas.Session):
        try:
            outcomes.append(make(folder / "m.onnx").run(None, public.feeds[0]))
        except Exception as error:
            outcomes.append(type(error))
    assert isinstance(outcomes[0], list) is (leads == "into the folder")
    assert_as_there(outcomes[1], outcomes[0])  # what it gives, or the type of what it raises
