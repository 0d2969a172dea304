"""Every bad lookup: a 4xx with one clear sentence, and nothing changed."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tests.catalog import making

GOOD = {
    "target": making.TARGET.to_json(),
    "operators": [{"graph": making.relu_json(64)}],
}
VALUE = {"shape": [4, 4], "dtype": "float32"}


def with_graph(graph: Any) -> dict[str, Any]:
    return GOOD | {"operators": [{"graph": making.relu_json(64)}, {"graph": graph}]}


def node(op: str, *inputs: Any, **attrs: Any) -> dict[str, Any]:
    return {"op": op, "attrs": attrs, "inputs": list(inputs)}


def as_onnx(model: onnx.ModelProto | bytes) -> dict[str, Any]:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return {"onnx": base64.b64encode(data).decode()}


def model(nodes: list[Any], initializers: Any = (), inputs: Any = None, opset: int = 17) -> onnx.ModelProto:
    inputs = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def external() -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../../../../etc/passwd"), ("offset", "0"), ("length", "64")):
        tensor.external_data.add(key=key, value=value)
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor])


def giant_initializer() -> onnx.ModelProto:
    """Says that it has a terabyte of values, and has none."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 18])
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor])


def nested(depth: int) -> onnx.ModelProto:
    """If within If within If …"""
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["o"], value=condition)], "leaf", [],
        [helper.make_tensor_value_info("o", TensorProto.BOOL, [])],
    )  # fmt: skip
    for level in range(depth):
        inner = helper.make_node("If", ["c"], [f"o{level}"], then_branch=branch, else_branch=branch)
        branch = helper.make_graph(
            [inner], f"level{level}", [], [helper.make_tensor_value_info(f"o{level}", TensorProto.BOOL, [])]
        )
    return model([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], [condition])


def deep_json(depth: int) -> Any:
    document: Any = 1
    for _ in range(depth):
        document = [document]
    return document


BATCH = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
RELU_MODEL = model([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()

# name → (the body, words that the sentence must have)
BODIES: dict[str, tuple[Any, str]] = {
    "not an object": ([], "object"),
    "null": (None, "object"),
    "no target": ({"operators": GOOD["operators"]}, "target"),
    "no operators": ({"target": GOOD["target"]}, "operators"),
    "an unknown field": (GOOD | {"operator": []}, "no field"),
    "operators is no list": (GOOD | {"operators": {}}, "list"),
    "no operator at all": (GOOD | {"operators": []}, "1 to 1024"),
    "too many operators": (GOOD | {"operators": [{"key": making.relu(1).key}] * 1025}, "1 to 1024"),
    "too many related": (GOOD | {"related": [{"key": making.relu(1).key}] * 1025}, "0 to 1024"),
    "an operator that is a text": (GOOD | {"operators": ["Relu"]}, "operator is"),
    "an operator without anything": (GOOD | {"operators": [{}]}, "key or a graph"),
    "an operator with an unknown field": (GOOD | {"operators": [{"graf": {}}]}, "operator is"),
    "a key that is none": (GOOD | {"operators": [{"key": "o1:xyz"}]}, "hexadecimal"),
    "a key that is a number": (GOOD | {"operators": [{"key": 7}]}, "hexadecimal"),
    "a key of something else": (
        GOOD | {"operators": [{"key": making.relu(1).key, "graph": making.relu_json(2)}]}, "not the one",
    ),
    "calls that are none": (GOOD | {"operators": [{"key": making.relu(1).key, "calls": 0}]}, "calls"),
    "negative calls": (GOOD | {"operators": [{"key": making.relu(1).key, "calls": -1}]}, "calls"),
    "calls of true": (GOOD | {"operators": [{"key": making.relu(1).key, "calls": True}]}, "calls"),
    "calls of 1e400": ('{"target": "t1:' + "0" * 64 + '", "operators": [{"key": "' + making.relu(1).key
                       + '", "calls": 1e400}]}', "calls"),
    "calls beyond floats": (GOOD | {"operators": [{"key": making.relu(1).key, "calls": 10**400}]}, "calls"),
    "a number of 5000 digits": ('{"target": ' + "9" * 5000 + "}", "number"),
    "a wait that is too long": (GOOD | {"wait_s": 31}, "wait_s"),
    "a wait that is a text": (GOOD | {"wait_s": "1"}, "wait_s"),
    "a negative wait": (GOOD | {"wait_s": -1}, "wait_s"),
    "a stage that is none": (GOOD | {"wait_for": "best"}, "wait_for"),
    "a stage that is a number": (GOOD | {"wait_for": 1}, "wait_for"),
    "a job that is a number": (GOOD | {"job": 7}, "job"),
    "a job's name that is too long": (GOOD | {"job": "x" * 201}, "200"),
    "a job's name with a line break": (GOOD | {"job": "a\nb"}, "printable"),
    "accepts that is a list": (GOOD | {"accepts": ["recipe"]}, "object"),
    "an unknown kind": (GOOD | {"accepts": {"kinds": ["pickle"]}}, "kinds are"),
    "kinds that are a text": (GOOD | {"accepts": {"kinds": "recipe"}}, "list"),
    "no kinds": (GOOD | {"accepts": {"kinds": []}}, "list"),
    "a kind that is an object": (GOOD | {"accepts": {"kinds": [{}]}}, "kinds are"),
    "versions that are numbers": (GOOD | {"accepts": {"versions": {"torch": 2}}}, "texts"),
    "an unknown part of accepts": (GOOD | {"accepts": {"formats": []}}, "kinds and versions"),
    "a target that is a number": (GOOD | {"target": 7}, "object"),
    "a target's key that is none": (GOOD | {"target": "t1:xyz"}, "hexadecimal"),
    "an empty target": (GOOD | {"target": {}}, "."),
    "a target with no cores": (GOOD | {"target": making.TARGET.to_json() | {"cores": 0}}, "cores"),
    "a target of another kind": (GOOD | {"target": making.TARGET.to_json() | {"kind": "toaster"}}, "toaster"),
    "a setting's key that is none": (GOOD | {"setting": "s1:xyz"}, "hexadecimal"),
    "a setting with too many threads": (GOOD | {"setting": {"threads": 64}}, "4 cores"),
    "a setting with no threads": (GOOD | {"setting": {"threads": 0}}, "threads"),
    "a setting with an unknown field": (GOOD | {"setting": {"thread": 1}}, "thread"),
    # operators
    "an empty graph": (with_graph({}), "."),
    "a graph that is a list": (with_graph([]), "object"),
    "an unknown op type": (with_graph(node("Rulu", VALUE)), "Rulu"),
    "an op type that is a number": (with_graph({"op": 7, "inputs": [VALUE]}), "."),
    "an unknown dtype": (with_graph(node("Relu", VALUE | {"dtype": "float33"})), "float33"),
    "a dtype that the op does not take": (with_graph(node("Relu", VALUE | {"dtype": "bool"})), "bool"),
    "too many dimensions": (with_graph(node("Relu", VALUE | {"shape": [1] * 100})), "."),
    "a negative dimension": (with_graph(node("Relu", VALUE | {"shape": [4, -1]})), "."),
    "a dimension that is a text": (with_graph(node("Relu", VALUE | {"shape": ["batch", 4]})), "batch"),
    "a dimension that is a fraction": (with_graph(node("Relu", VALUE | {"shape": [1.5]})), "."),
    "a dimension beyond 64 bits": (with_graph(node("Relu", VALUE | {"shape": [2**70]})), "."),
    "shapes that contradict": (with_graph(node("MatMul", VALUE, VALUE | {"shape": [5, 4]})), "."),
    "too few inputs": (with_graph(node("MatMul", VALUE)), "."),
    "too many inputs": (with_graph(node("Relu", VALUE, VALUE)), "."),
    "an unknown attribute": (with_graph(node("Relu", VALUE, speed=9)), "speed"),
    "an attribute of a wrong type": (with_graph(node("Softmax", VALUE, axis="last")), "axis"),
    "an attribute out of bounds": (with_graph(node("Softmax", VALUE, axis=9)), "axis"),
    "an operator larger than memory": (with_graph(node("Relu", VALUE | {"shape": [1 << 20, 1 << 20]})), "."),
    "a small input with a giant output": (
        with_graph(node("MatMul", VALUE | {"shape": [1 << 20, 1]}, VALUE | {"shape": [1, 1 << 20]})), ".",
    ),
    "onnx that is no base64": (with_graph({"onnx": "§§§"}), "."),
    "onnx that is a list": (with_graph({"onnx": [1, 2]}), "."),
    "empty onnx": (with_graph({"onnx": ""}), "."),
    "truncated onnx": (with_graph(as_onnx(RELU_MODEL[:-7])), "."),
    "garbage for onnx": (with_graph(as_onnx(bytes(range(256)) * 4)), "."),
    "onnx with external data": (with_graph(as_onnx(external())), "external"),
    "onnx with a giant initializer": (with_graph(as_onnx(giant_initializer())), "."),
    "deeply nested onnx": (with_graph(as_onnx(nested(12))), "."),
    "onnx with an unknown op": (with_graph(as_onnx(model([helper.make_node("Rulu", ["x"], ["y"])]))), "Rulu"),
    "onnx with a dangling input": (with_graph(as_onnx(model([helper.make_node("Relu", ["z"], ["y"])]))), "z"),
    "onnx of an opset to come": (
        with_graph(as_onnx(model([helper.make_node("Relu", ["x"], ["y"])], opset=9999))), "9999",
    ),
    "onnx with a symbolic dimension": (
        with_graph(as_onnx(model([helper.make_node("Relu", ["x"], ["y"])], inputs=[BATCH]))), "batch",
    ),
    "deeply nested attributes": (with_graph(node("Relu", VALUE, axis=deep_json(200))), "."),
    # bytes
    "no body": (b"", "JSON"),
    "malformed JSON": (b'{"target": ', "line 1, column"),
    "JSON with NaN": (b'{"wait_s": NaN}', "NaN"),
    "bytes that are no text": (b"\xff\xfe{}", "UTF-8"),
    "JSON nested too deeply": (b"[" * 100_000, "deep"),
    "a NUL in a text": (b'{"job": "a\\u0000b"}', "NUL"),
    "half of a surrogate pair": (b'{"job": "\\ud800"}', "surrogate"),
    "an object with a strange key": (b'{"\\ud83d": 1}', "surrogate"),
    "a key twice": (b'{"job": "a", "job": "b"}', 'the key "job" twice'),
    "a key twice, once as an escape": (b'{"job": "a", "\\u006aob": "a"}', 'the key "job" twice'),
    "a key twice, far inside": (
        json.dumps(GOOD).replace('"shape"', '"shape": [9], "shape"', 1).encode(), 'the key "shape" twice',
    ),
    "a key twice, beside a long number": (b'{"a": 1234567890123456789012, "a": 1}', '"a" twice'),
    "a key twice, beside escaped colons": (b'{"job": "\\u003a", "job": ":"}', 'the key "job" twice'),
    "half of a surrogate pair twice": (b'{"\\ud800": 1, "\\ud800": 2}', "twice in one object"),
    "a long key twice": (b'{"%b": 1, "%b": 2}' % (b"k" * 900, b"k" * 900), "twice in one object"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_it_is_a_4xx_with_one_sentence_and_changes_nothing(api, name):
    body, words = BODIES[name]
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    before = making.row_counts()
    response = api.client.post("/api/v1/lookup", raw, content_type="application/json", headers=api.headers)
    answer = response.json()
    assert response.status_code in (400, 404, 413), answer
    assert words in answer["error"], answer
    assert_one_sentence(answer["error"])
    assert making.row_counts() == before


def assert_one_sentence(text: str) -> None:
    assert 10 <= len(text) <= 500, text
    assert "\n" not in text
    for leak in ("Traceback", "/work", "site-packages", "0x7f", "Error:"):
        assert leak not in text


def test_where_points_into_the_request(api):
    response = api.post("lookup", with_graph(node("Relu", VALUE | {"shape": [4, -1]})))
    assert response.json()["where"].startswith("operators[1].graph")


def test_the_good_request_that_the_bad_ones_are_made_of_is_good(api):
    assert api.post("lookup", GOOD).status_code == 200


@pytest.mark.parametrize("kind", ["target", "setting"])
def test_unknown_keys_are_404s_that_register_nothing(api, kind):
    before = making.row_counts()
    response = api.post("lookup", GOOD | {kind: f"{kind[0]}1:" + "0" * 64})
    assert response.status_code == 404
    assert "JSON" in response.json()["error"]
    assert making.row_counts() == before


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(api):
    class Unread(io.BytesIO):
        """A body that must not be read."""

        def read(self, *args: Any) -> bytes:
            raise AssertionError("it was read")

        readline = read

    before = making.row_counts()
    response = api.client.generic(
        "POST", "/api/v1/lookup", b" ", "application/json", headers=api.headers,
        CONTENT_LENGTH=str((1 << 20) + 1), **{"wsgi.input": Unread()},
    )  # fmt: skip
    assert response.status_code == 413
    assert "1024 KiB" in response.json()["error"]
    assert making.row_counts() == before


def test_a_body_that_lies_about_its_length_is_bounded_too(api):
    raw = b'{"job": "' + b"x" * (2 << 20) + b'"}'
    response = api.client.generic(
        "POST", "/api/v1/lookup", raw, "application/json", headers=api.headers, CONTENT_LENGTH="12"
    )
    assert response.status_code == 400


@pytest.mark.parametrize(
    ("content_type", "status"),
    [("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/xml", 415),
     ("application/json; charset=utf-16", 415), ("application/json; charset=bz2_codec", 415), ("", 415)],
)  # fmt: skip
def test_other_content_types_are_refused(api, content_type, status):
    response = api.client.generic("POST", "/api/v1/lookup", b"{}", content_type, headers=api.headers)
    assert response.status_code == status, response.content
    assert response.json()["error"]


@pytest.mark.parametrize("key", [None, "opk_aaaaaaaaaaaa_nothing"])
def test_without_a_key_nothing_is_read_or_changed(api_with, key):
    before = making.row_counts()
    response = api_with(key).post("lookup", GOOD)
    assert response.status_code == 401
    assert making.row_counts() == before


def test_a_bad_item_among_good_ones_changes_nothing_at_all(api):
    before = making.row_counts()
    operators = [{"graph": making.relu_json(n)} for n in range(1, 40)] + [{"graph": node("Rulu", VALUE)}]
    response = api.post("lookup", GOOD | {"operators": operators})
    assert response.status_code == 400
    assert response.json()["where"].startswith("operators[39]")
    assert making.row_counts() == before
