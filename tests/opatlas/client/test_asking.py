"""What a caller may name an operator by, and that each way has the same key."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from opatlas.client import Client
from opatlas.errors import InvalidOperator
from opatlas.identity import parse_operator

X, W = np.zeros((8, 16), np.float32), np.zeros((16, 4), np.float32)
PRODUCT = parse_operator(
    {
        "op": "MatMul",
        "inputs": [{"shape": [8, 16], "dtype": "float32"}, {"shape": [16, 4], "dtype": "float32"}],
    }
)


@pytest.fixture
def client(tmp_path):
    with Client("http://127.0.0.1:9", "no-key", cache=tmp_path, offline=True) as offline:
        yield offline


def test_arrays_of_other_libraries_are_named_as_they_lie(client):
    """CuPy's say their strides in bytes and their order in flags, as NumPy's do."""

    def as_cupys(array):
        names = ("dtype", "shape", "strides", "itemsize", "flags")
        return SimpleNamespace(**{name: getattr(array, name) for name in names})

    for array in (X, X.T, X[::2]):
        assert client.asked("Relu", as_cupys(array)).key == client.asked("Relu", array).key


def model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [16, 4]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize(
    "named",
    [
        ("MatMul", X, W),
        ("MatMul", torch.zeros(8, 16), torch.zeros(16, 4)),
        ("MatMul", X, torch.zeros(16, 4)),
        ("MatMul", (8, 16), ((16, 4), "float32")),
        (PRODUCT,),
        (PRODUCT.key,),
        (
            {
                "op": "MatMul",
                "inputs": [{"shape": [8, 16], "dtype": "float32"}, {"shape": [16, 4], "dtype": "float32"}],
            },
        ),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), X, torch.zeros(16, 4)),
        (model(),),
        (model().SerializeToString(),),
    ],
)
def test_every_way_of_naming_it_has_the_same_key(client, named):
    assert client.asked(*named).key == PRODUCT.key
    assert client.asked(*named) is client.asked(*named), "read once"


def test_layout_dtype_weights_and_attributes_count(client):
    keys = {
        client.asked("MatMul", X, W).key,
        client.asked("MatMul", X, np.asfortranarray(W)).key,
        client.asked("MatMul", X, torch.zeros(4, 16).T).key,
        client.asked("MatMul", X, W, const=[1]).key,
        client.asked("MatMul", X.astype(np.float64), W.astype(np.float64)).key,
        client.asked("Gemm", X, W, None, transA=0).key,
        client.asked("Gemm", X, W, None, alpha=2.0).key,
    }
    bias, weight = client.asked("Gemm", X, W, (1,)), client.asked("Gemm", X, W, const=[1])
    assert bias.key != weight.key, "a shape in the place of a number"
    assert len(keys) == 6, "two ways of saying transposed are one"
    assert client.asked("ReduceSum", X, [1]).key == client.asked("ReduceSum", X, [np.int64(1)]).key
    assert client.asked("ReduceSum", X, [1]).key != client.asked("ReduceSum", X, [0]).key


def test_the_attributes_of_an_onnx_node_count(client):
    """Numbers, lists and text; what stands beside it comes first."""
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    assert client.asked(node, X, W.T.copy()).key == client.asked("Gemm", X, W.T.copy(), transB=1).key
    assert client.asked(node, X, W, transB=0).key == client.asked("Gemm", X, W).key
    image, kernel = (1, 3, 9, 9), (4, 3, 3, 3)
    said = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    node = helper.make_node("Conv", ["x", "w"], ["y"], **said)
    assert client.asked(node, image, kernel).key == client.asked("Conv", image, kernel, **said).key
    recurrent = [(5, 1, 4), (1, 16, 4), (1, 16, 4)]
    said = {"hidden_size": 4, "activations": ["Sigmoid", "Tanh", "Relu"]}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], **said)
    assert client.asked(node, *recurrent).key == client.asked("LSTM", *recurrent, **said).key
    assert client.asked(node, *recurrent).key != client.asked("LSTM", *recurrent, hidden_size=4).key
    filled = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    with pytest.raises(InvalidOperator, match="'value' of the node is a TensorProto"):
        client.lookup(helper.make_node("ConstantOfShape", ["x"], ["y"], value=filled), [3])


def test_which_input_of_the_callers_each_tensor_is(client):
    assert client.asked("MatMul", X, W).places == (0, 1)
    assert client.asked("Sub", X, X[:1]).places == (0, 1)
    recurrent = [(5, 1, 4), (1, 16, 4), (1, 16, 4), None, None, (1, 1, 4)]
    assert client.asked("LSTM", *recurrent, hidden_size=4).places == (0, 1, 2, 5)
    assert client.asked(model()).places == (1, 0)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (("MatMul", X, "w"), "An input is an array"),
        (("MatMul", X, X), "MatMul"),
        (("NoSuch", X), "NoSuch"),
        ((3.5,), "An operator is named by"),
        (({"op": {1, 2}},), "no JSON"),
        ((helper.make_node("MatMul", ["x", "w"], ["y"]),), "An ONNX node says no shapes"),
    ],
)
def test_what_is_no_operator_is_refused_with_a_sentence(client, named, sentence):
    with pytest.raises(InvalidOperator, match=sentence):
        client.lookup(*named)


def test_an_alias_saves_another_process_the_reading(client, tmp_path, monkeypatch):
    client.asked("MatMul", X, W)
    with Client("http://127.0.0.1:9", "no-key", cache=tmp_path, offline=True) as second:
        monkeypatch.setattr("opatlas.client.naming.read", None)
        assert second.asked("MatMul", X, W).key == PRODUCT.key


FROM_THE_CACHE = """
import sys
import numpy as np
from opatlas.client import Client
from opatlas.identity import Setting
given = {"cache": sys.argv[3], "setting": Setting(threads=1), "offline": True, "sidecar": False}
with Client(sys.argv[1], sys.argv[2], **given) as client:
    x = np.ones(1000, np.float32)
    assert client.lookup("Add", x, x).source == "cache"
    print(sorted({"onnx", "torch", "urllib3", "cryptography"} & set(sys.modules)))
"""


def test_a_hit_from_the_cache_imports_nothing_heavy(publish_add, job):
    publish_add()
    x = np.ones(1000, np.float32)
    with job() as first:
        assert first.lookup("Add", x, x)
        place = [first._address["url"], first._address["key"], str(first.home)]
    done = subprocess.run([sys.executable, "-c", FROM_THE_CACHE, *place], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
