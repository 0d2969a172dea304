"""Bad input: one clear sentence, whatever it is."""

import base64
import json
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opatlas.errors import InvalidOperator
from opatlas.identity import canonicalise, parse_operator, to_onnx
from tests import by_day
from tests.opatlas.identity.examples import (
    EXAMPLES,
    GRAPHS,
    IMAGE,
    MATRIX,
    Document,
    graph,
    known,
    node,
    step,
    tensor,
    weight,
)

RGB = tensor(1, 3, 8, 8)
CONV = node("Conv", RGB, weight(4, 3, 3, 3))


def encoded(model: onnx.ModelProto) -> Document:
    return {"onnx": base64.b64encode(model.SerializeToString()).decode()}


def model_of(*nodes: onnx.NodeProto, **more: Any) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes),
        "g",
        more.get(
            "inputs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, more.get("shape", [2, 3]))]
        ),
        more.get("outputs", [helper.make_empty_tensor_value_info("y")]),
        more.get("initializers", []),
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", more.get("opset", 23))])


RELU = helper.make_node("Relu", ["x"], ["y"])
NOT_TEXT = model_of(RELU).SerializeToString().replace(b"x", b"\xa4")


def symbolic() -> onnx.ModelProto:
    return model_of(RELU, shape=["batch", 3])


def external() -> onnx.ModelProto:
    tensor_proto = numpy_helper.from_array(np.zeros(3, "float32"), "w")
    tensor_proto.data_location = TensorProto.EXTERNAL
    tensor_proto.external_data.add(key="location", value="../../etc/passwd")
    return model_of(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[tensor_proto])


def loop() -> onnx.ModelProto:
    body = helper.make_graph([RELU], "body", [], [helper.make_empty_tensor_value_info("y")])
    return model_of(helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body))


def deep() -> str:
    """Graphs within graphs, written by hand: a subgraph in an attribute of a node of a subgraph ..."""

    def field(number: int, content: bytes) -> bytes:
        size, varint = len(content), bytearray()
        while size >= 128:
            varint.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2, *varint, size]) + content

    content = b""
    for _ in range(2000):
        content = field(1, field(5, field(6, content)))  # graph.node, node.attribute, attribute.g
    return base64.b64encode(field(7, content)).decode()


def places(*shape: int) -> dict[str, Any]:
    return tensor(*shape, dtype="int64")


BAD: list[tuple[Any, str]] = [
    # what kind of thing it is
    ([], "must be a JSON object"),
    ("Conv", "must be a JSON object"),
    ({}, "exactly one of 'op'"),
    ({"op": "Conv", "nodes": []}, "exactly one of 'op'"),
    ({**CONV, "attr": {}}, "field 'attr' is not known here; known are"),
    ({"op": 7}, "must name an ONNX operator type"),
    # operator types
    (node("Convolution", MATRIX), "opset 23 has no operator type 'Convolution'"),
    ({**node("Gelu", MATRIX), "domain": "com.microsoft"}, "domain 'com.microsoft' is not known"),
    (node("Loop", MATRIX), "Loop holds whole graphs"),
    (node("RandomNormal"), "random numbers"),
    (node("NonZero", MATRIX), "depends on its input's values"),
    (node("StringConcat", MATRIX, MATRIX), "sequences, optionals or strings"),
    ({**node("Relu", MATRIX), "opset": True}, "'opset' must be an integer"),
    ({**node("Relu", MATRIX), "opset": 3}, "from 7 to 28"),
    # inputs
    (node("Conv", IMAGE), "Conv takes 2 to 3 inputs, not 1"),
    (node("MatMul", None, MATRIX), "input 0 may not be left out"),
    (node("Relu", {"shape": [2]}), "dtype None; known are: float32"),
    (node("Relu", tensor(2, dtype="float")), "dtype 'float'; known are: float32"),
    (node("Relu", {"shape": "2", "dtype": "float32"}), "must be a list of integers"),
    (node("Relu", tensor(2, True)), "must be a list of integers; found True"),
    (node("Relu", tensor(2, 1.5)), "must be a list of integers; found 1.5"),
    (node("Relu", tensor(2, float("nan"))), "must be a list of integers; found nan"),
    (node("Relu", tensor(2, 10**5000)), "must be a list of integers; found a huge int"),
    (node("Relu", tensor(2, -1)), "dimension of -1; each must be from 1"),
    (node("Relu", tensor(2, 0)), "dimension of 0; each must be from 1"),
    (node("Relu", tensor(2**31 + 1)), "each must be from 1 to 2147483648"),
    (node("Relu", tensor(*[2] * 9)), "9 dimensions; at most 8"),
    (node("Relu", tensor(*[2**30] * 3)), "at most 1099511627776"),
    (node("Relu", tensor(2, role="weight")), "'role' of inputs.0. must be 'runtime' or 'const'"),
    (node("Relu", tensor(2, const=1)), "must be true or false, not 1"),
    (node("Relu", tensor(2, const=False, role="const")), "contradict each other"),
    (node("Relu", tensor(2, 3, strides=[1])), "2 dimensions and 1 strides"),
    (node("Relu", tensor(2, 3, strides=[-3, 1])), "negative stride"),
    (node("Relu", tensor(2, 3, strides=[2**62, 1])), "by its strides; at most"),
    (node("Add", MATRIX, {"same_as": 1}), "number of an earlier input"),
    (node("Relu", 5), "must be an object with 'shape'"),
    # values that shape the computation
    (node("Reshape", MATRIX, weight(2, dtype="int64")), "give them as 'data'"),
    (node("Reshape", MATRIX, known(4, 9)), "35 elements cannot take the shape .4, 9., which has 36"),
    (node("Reshape", MATRIX, {"data": [35.5], "dtype": "int64", "shape": [1]}), "35.5, which is no int64"),
    (node("Reshape", MATRIX, {"data": [5, 7], "dtype": "int64", "shape": [3]}), "2 values where its shape"),
    (node("Reshape", MATRIX, {"data": [1] * 5000}), "at most 4096"),
    (node("Clip", MATRIX, {"value": 1e39, "dtype": "float32"}), "too large for float32"),
    (node("Tile", MATRIX, known(2**40, 1)), "repeats must be at most 2147483648"),
    # attributes
    (node("Relu", MATRIX, alpha=1.0), "Relu has no attribute 'alpha'; it knows: none"),
    (node("Conv", *CONV["inputs"], pads="same"), "'pads' of Conv must be a list of integers"),
    (node("Conv", *CONV["inputs"], pads=[1, 1, True, 1]), "'pads' of Conv must be an integer"),
    (node("Conv", *CONV["inputs"], group=1.0), "'group' of Conv must be an integer"),
    (node("Conv", *CONV["inputs"], group=2**63), "does not fit 64 bits"),
    (node("Conv", *CONV["inputs"], auto_pad="SAME"), "auto_pad"),
    (node("LeakyRelu", MATRIX, alpha="0.1"), "'alpha' of LeakyRelu must be a number"),
    (node("LRN", IMAGE), "LRN needs its attribute 'size'"),
    (node("Cast", MATRIX, to=8), "element type"),
    # shapes and types that contradict each other
    (node("Conv", RGB, weight(4, 5, 3, 3)), r"needs a weight of shape \[4, 3, …\], not \[4, 5"),
    (node("Conv", RGB, weight(4, 3, 3, 3), weight(5)), r"bias must have shape \[4\], not \[5\]"),
    (node("Conv", tensor(1, 3, 8, 8), weight(4, 3, 3, 3), kernel_shape=[5, 5]), "kernel_shape"),
    (node("ScatterND", tensor(3), places(4, 3), tensor(4, 1)), "an index of 3 numbers is too long for 1 dim"),
    (node("ScatterND", tensor(5, 2), places(1), tensor()), r"updates must have shape \[2\], not \[\]"),
    (node("GatherElements", tensor(3, 4), places(3)), "same number of dimensions, not 2 and 1"),
    (node("GatherElements", tensor(3, 4), places(7, 5)), r"\[7, 5\] reach beyond data \[3, 4\] on another"),
    (node("ScatterElements", tensor(3), places(2), tensor(3)), r"updates must have shape \[2\], not \[3\]"),
    (node("ReverseSequence", tensor(4, 16), places(1)), r"sequence_lens must have shape \[16\], not \[1\]"),
    (node("ReverseSequence", tensor(4, 4, 4), places(4), batch_axis=2), "batch_axis must be 0 or 1, not 2"),
    (node("NegativeLogLikelihoodLoss", tensor(7, 8, 2), places(7)), r"target must have shape \[7, 2\]"),
    (node("DFT", tensor(1, 4, 4)), "last dimension must be 1 .real. or 2 .complex., not 4"),
    (node("Conv", tensor(1, 3, 2, 2), weight(4, 3, 3, 3)), "dimension of 0"),
    (node("Conv", RGB, weight(4, 3, 3, 3, dtype="int32")), "Conv cannot take float32.1,3,8,8., int32"),
    (node("MatMul", MATRIX, weight(5, 7)), "MatMul cannot take float32.5,7., float32.5,7."),
    (node("Add", MATRIX, tensor(6)), "Add cannot take"),
    (node("Add", MATRIX, tensor(7, dtype="float16")), "Add cannot take float32.5,7., float16.7."),
    (node("Concat", MATRIX, tensor(4, 6), axis=0), "Concat cannot take"),
    (node("Softmax", MATRIX, axis=2), "Softmax cannot take|axis"),
    (node("Transpose", MATRIX, perm=[0, 0]), "Transpose|perm"),
    (node("BatchNormalization", IMAGE, *[weight(5)] * 4), "BatchNormalization"),
    (node("MaxPool", tensor(1, 1, 2, 2), kernel_shape=[3, 3]), "dimension of 0"),
    (node("Resize", IMAGE, None, None, known(2, 6, 4, 4), mode="bilinear"), "must be one of nearest, linear"),
    (node("ReduceSum", MATRIX, known(0), keepdims=2), "keepdims must be 0 or 1"),
    (node("Gelu", MATRIX, approximate="yes"), "approximate must be one of none, tanh, not yes"),
    # what would end the process inside ONNX's inference
    (node("GatherND", tensor(2, 5), tensor(4, 2, dtype="int64"), batch_dims=-(2**31)), "batch_dims must be"),
    (node("Split", MATRIX, num_outputs=1, outputs=3), "num_outputs 1 does not go with 3 outputs"),
    (node("Split", MATRIX, num_outputs=2**31, outputs=3), "does not go with 3 outputs"),
    (node("Split", MATRIX, known(2, 3), outputs=5), "2 sizes do not go with 5 outputs"),
    (node("SpaceToDepth", IMAGE, blocksize=0), "blocksize must be at least 1"),
    (node("Conv", RGB, weight(4, 3, 3, 3), strides=[0, 1]), "strides must be at least 1"),
    (node("Conv", RGB, weight(4, 3, 3, 3), group=0), "group must be at least 1"),
    (node("STFT", tensor(2, 8), known()), "frame_step must be one number"),
    (node("Range", {"value": 0}, {"value": 9}, {"value": 0}), "delta must not be 0"),
    (node("Attention", *[tensor(2, 3, 8)] * 3, q_num_heads=0), "q_num_heads must be at least 1"),
    (node("Attention", *[tensor(2, 3, 4, 8)] * 3, None, *[tensor(2)] * 2), "input 4 must have 4 dimensions"),
    (node("Attention", tensor(2, 3, 4, 8), *[tensor(2, 2, 4, 8)] * 2), "3 query heads do not divide by 2"),
    (node("Einsum", MATRIX, equation="ij->k"), "every letter of the output"),
    (node("Pad", MATRIX, known(1)), "pads must have 4 numbers"),
    (node("Slice", MATRIX, known(0, 1), known(2)), "2 starts do not go with 1 ends"),
    (node("Transpose", MATRIX, perm=[0, 5]), "perm must order the axes 0 to 1"),
    # graphs
    (graph(step("Relu", [0], [1]), inputs=[MATRIX], outputs=[5]), "Output 'value 5' is no node's result"),
    (graph(step("Relu", [2], [1]), inputs=[MATRIX], outputs=[1]), "reads 'value 2', which nothing produces"),
    (graph(step("Relu", [0], [0]), inputs=[MATRIX], outputs=[0]), "names must be unique"),
    (graph(step("Relu", [2], [1]), step("Relu", [1], [2]), inputs=[MATRIX], outputs=[1]), "cycle"),
    (graph(inputs=[MATRIX], outputs=[0]), "computes nothing"),
    (graph(step("Relu", [0], [1]), inputs=[MATRIX], outputs=[]), "computes nothing"),
    (graph(*[step("Relu", [0], [1])] * 257, inputs=[MATRIX], outputs=[1]), "at most 256"),
    (
        {**graph(step("Relu", [0], [1]), inputs=[MATRIX], outputs=[1]), "produced": [tensor(9)]},
        r"makes float32\[5, 7\], not the float32\[9\] that is declared",
    ),
    # ONNX
    ({"onnx": 5}, "base64"),
    ({"onnx": "not base64!"}, "is not base64"),
    ({"onnx": base64.b64encode(b"garbage that is no protobuf").decode()}, "no ONNX model"),
    ({"onnx": base64.b64encode(model_of(RELU).SerializeToString()[:-3]).decode()}, "no ONNX model"),
    ({"onnx": ""}, "exactly one opset"),
    ({"onnx": "A" * 2_000_000}, "larger than 1048576 bytes; a constant's values are not needed"),
    (encoded(symbolic()), "Input 'x' has the symbolic dimension 'batch' at axis 0; give it a number"),
    (encoded(model_of(RELU, shape=[None, 3])), "unknown dimension at axis 0"),
    (encoded(external()), "external data"),
    (encoded(loop()), "If holds whole graphs"),
    ({"onnx": deep()}, "no ONNX model"),
    ({"onnx": base64.b64encode(NOT_TEXT).decode()}, "not UTF-8"),
    ({**encoded(model_of(RELU)), "const": ["w"]}, "'w' is said to be a constant"),
    ({**encoded(model_of(RELU)), "const": "x"}, "'const' must be a list of the names"),
    (encoded(model_of(helper.make_node("Relu", ["x"], ["y"], domain="a.b"))), "domain 'a.b' is not known"),
    (
        encoded(model_of(RELU, outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, [9])])),
        r"not the float32\[9\] that is declared",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "sentence"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_clear_sentence(document: Any, sentence: str) -> None:
    with pytest.raises(InvalidOperator, match=sentence) as caught:
        parse_operator(document)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500


def test_the_place_of_the_fault_is_told() -> None:
    with pytest.raises(InvalidOperator) as caught:
        parse_operator(node("Add", MATRIX, tensor(-1)))
    assert caught.value.where == "inputs[1].shape"
    bad = graph(step("Relu", [0], [1]), step("Softmax", [1], [2], axis=9), inputs=[MATRIX], outputs=[2])
    with pytest.raises(InvalidOperator) as caught:
        parse_operator(bad)
    assert caught.value.where == "nodes[1]"


def test_nesting_is_bounded() -> None:
    attrs: Any = 1
    for _ in range(500):
        attrs = [attrs]
    with pytest.raises(InvalidOperator, match="nested more than 32"):
        parse_operator(node("Relu", MATRIX, alpha=attrs))


def test_a_constant_needs_its_shape_only() -> None:
    """A giant initializer cannot be sent; its declaration as an input means the same."""
    weights = numpy_helper.from_array(np.ones((3, 4), "float32"), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    with_values = parse_operator(encoded(model_of(product, initializers=[weights])))
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]),
    ]
    declared = parse_operator({**encoded(model_of(product, inputs=infos)), "const": ["w"]})
    assert declared == with_values


def test_the_three_forms_agree() -> None:
    simple = parse_operator({**CONV, "op": "onnx.Conv"})
    assert parse_operator(simple.to_json()) == simple
    assert parse_operator(encoded(to_onnx(simple))) == simple


def test_two_spellings_of_a_layout_agree() -> None:
    dense = parse_operator(node("Relu", tensor(2, 1, 3)))
    assert parse_operator(node("Relu", tensor(2, 1, 3, strides=[3, 3, 1]))) == dense
    assert parse_operator(node("Relu", tensor(2, 1, 3, strides=[3, 77, 1]))) == dense
    assert parse_operator(node("Relu", tensor(2, 1, 3, strides=[1, 2, 2]))) != dense


def test_numbers_that_are_not_finite_stay_json() -> None:
    operator = parse_operator(node("Pad", MATRIX, known(0, 0, 1, 1), {"value": "-inf", "dtype": "float32"}))
    json.dumps(operator.to_json(), allow_nan=False)
    assert canonicalise(to_onnx(operator)).operator == operator
    lenient = json.loads('{"value": -Infinity, "dtype": "float32"}')
    assert parse_operator(node("Pad", MATRIX, known(0, 0, 1, 1), lenient)) == operator


# ---- nothing but InvalidOperator --------------------------------------------------------------------

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["float32", "int64", "Conv", "Add", "Reshape", "runtime", "const"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(document, dict):
        for name, value in document.items():
            found += places(value, (*path, name))
    elif isinstance(document, list):
        for i, value in enumerate(document):
            found += places(value, (*path, i))
    return found


@given(st.sampled_from([*EXAMPLES, *GRAPHS]), st.data())
@settings(max_examples=by_day.draws(200))
def test_any_json_gives_an_operator_or_invalid_operator(document: Document, data: st.DataObject) -> None:
    changed = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 3))):
        where = places(changed)
        if not where:
            break
        path = data.draw(st.sampled_from(where))
        place = changed
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = data.draw(anything | st.integers(-3, 9) | st.lists(st.integers(-3, 9), max_size=5))
    try:
        operator = parse_operator(changed)
    except InvalidOperator as error:
        assert "\n" not in str(error)
    else:
        assert parse_operator(operator.to_json()) == operator


@given(anything)
@settings(max_examples=by_day.draws(100))
def test_any_json_value_at_all(document: Any) -> None:
    with pytest.raises(InvalidOperator):
        parse_operator(document)


BYTES = [to_onnx(parse_operator(document)).SerializeToString() for document in (*EXAMPLES[::4], *GRAPHS)]


@given(st.sampled_from(BYTES), st.data())
@settings(max_examples=by_day.draws(300))
def test_any_bytes_give_an_operator_or_invalid_operator(serialised: bytes, data: st.DataObject) -> None:
    content = bytearray(serialised)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        if data.draw(st.booleans()):
            content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        else:
            del content[at:]
    try:
        parse_operator({"onnx": base64.b64encode(bytes(content)).decode()})
    except InvalidOperator as error:
        assert "\n" not in str(error)
