"""Another opset of the same meaning keeps the key, and a lift never changes what is computed."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

from opatlas.errors import InvalidOperator
from opatlas.identity import OPSET, canonicalise, parse_operator, to_onnx
from opatlas.identity.bounds import NEWEST_OPSET, OLDEST_OPSET
from opatlas.identity.lift import _ALWAYS, _LIFTS, _RENAMED
from opatlas.identity.schema import CONTROL_FLOW, DATA_DEPENDENT, NOT_TENSORS, RANDOM
from opatlas.identity.statics import REDUCTIONS
from tests.opatlas.identity.examples import Document, known, node, tensor, weight

X = tensor(2, 6, 8, 8)
NORMS = [weight(6)] * 4
DOUBLE = known(1.0, 1.0, 2.0, 2.0, dtype="float32")
GRID = tensor(2, 4, 4, 2)
REGIONS = [tensor(3, 4), tensor(3, dtype="int64")]
GEMM = [tensor(3, 4), weight(4, 5), weight(5)]

# (the node as an older opset says it, that opset, the same at the canonical opset)
PAIRS: list[tuple[Document, int, Document]] = [
    (node("ReduceMean", X, axes=[-1]), 13, node("ReduceMean", X, known(3))),
    (node("ReduceSum", X, axes=[2, 1], keepdims=0), 11, node("ReduceSum", X, known(1, 2), keepdims=0)),
    (node("ReduceMax", X), 12, node("ReduceMax", X, known(0, 1, 2, 3))),
    (node("Squeeze", tensor(2, 1, 3), axes=[1]), 11, node("Squeeze", tensor(2, 1, 3), known(1))),
    (node("Squeeze", tensor(2, 1, 3)), 11, node("Squeeze", tensor(2, 1, 3), known(-2))),
    (node("Unsqueeze", X, axes=[0]), 9, node("Unsqueeze", X, known(0))),
    (node("Split", X, axis=1, split=[2, 4]), 9, node("Split", X, known(2, 4), axis=1)),
    (node("Split", X, axis=1, outputs=3), 9, node("Split", X, axis=1, num_outputs=3)),
    (node("Slice", X, starts=[1], ends=[9999], axes=[2]), 9, node("Slice", X, known(1), known(8), known(-2))),
    (node("TopK", X, k=3), 9, node("TopK", X, known(3))),
    (node("Pad", X, pads=[0, 0, 1, 1, 0, 0, 1, 1]), 9, node("Pad", X, known(1, 1, 1, 1), None, known(2, 3))),
    (
        node("Pad", X, pads=[0] * 7 + [1], value=2.0),
        9,
        node("Pad", X, known(*[0] * 7, 1), {"value": 2.0, "dtype": "float32"}),
    ),
    (
        node("Clip", X, min=0.0, max=6.0),
        10,
        node("Clip", X, {"value": 0, "dtype": "float32"}, {"value": 6, "dtype": "float32"}),
    ),
    (node("Clip", X, min=0.0), 7, node("Clip", X, {"value": 0, "dtype": "float32"})),
    (node("Dropout", X, ratio=0.3), 9, node("Identity", X)),
    (node("Dropout", X), 13, node("Identity", X)),
    (node("BatchNormalization", X, *NORMS, momentum=0.5), 9, node("BatchNormalization", X, *NORMS)),
    (node("Softmax", tensor(4, 9)), 11, node("Softmax", tensor(4, 9), axis=1)),
    (node("Softmax", tensor(4, 9, 1, 1)), 9, node("Softmax", tensor(4, 9, 1, 1), axis=1)),
    (node("Upsample", X, scales=[1.0, 1.0, 2.0, 2.0]), 7, node("Upsample", X, DOUBLE)),
    (node("GridSample", X, GRID, mode="bicubic"), 16, node("GridSample", X, GRID, mode="cubic")),
    (node("Cast", X, to=10), 9, node("Cast", X, to=10)),
    (
        node("RoiAlign", X, *REGIONS),
        10,
        node("RoiAlign", X, *REGIONS, coordinate_transformation_mode="output_half_pixel"),
    ),
    (node("CastLike", X, tensor(1, dtype="float16")), 15, node("Cast", X, to=10)),
    (node("Conv", X, weight(4, 6, 3, 3)), 7, node("Conv", X, weight(4, 6, 3, 3), kernel_shape=[3, 3])),
    (node("MaxPool", X, kernel_shape=[2, 2]), 8, node("MaxPool", X, kernel_shape=[2, 2], strides=[1, 1])),
    (
        node("AveragePool", X, kernel_shape=[2, 2]),
        7,
        node("AveragePool", X, kernel_shape=[2, 2], dilations=[1, 1]),
    ),
    (node("Gemm", *GEMM), 7, node("Gemm", *GEMM)),
    (node("Reshape", X, known(0, -1)), 5 + 2, node("Reshape", X, known(2, 384))),
    (node("Cast", X, to=10, round_mode="up"), 24, node("Cast", X, to=10)),
    (node("Relu", X), 28, node("Relu", X)),
    (node("DFT", tensor(2, 8, 1), axis=1), 17, node("DFT", tensor(2, 8, 1), None, {"value": 1})),
    (
        node("Scatter", tensor(3, 4), tensor(2, 4, dtype="int64"), tensor(2, 4)),
        9,
        node("ScatterElements", tensor(3, 4), tensor(2, 4, dtype="int64"), tensor(2, 4)),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "opset", "new"), PAIRS, ids=[f"{p[0]['op']}-{p[1]}" for p in PAIRS])
def test_another_opset_of_the_same_meaning_keeps_the_key(old: Document, opset: int, new: Document) -> None:
    assert parse_operator({**old, "opset": opset}) == parse_operator(new)


def test_an_opset_left_out_is_the_newest_that_knows_the_attributes() -> None:
    assert parse_operator(node("ReduceMean", X, axes=[1])) == parse_operator(node("ReduceMean", X, known(1)))
    assert parse_operator(node("Dropout", X, ratio=0.5)).op_types == ("Identity",)


def single(
    op: str, opset: int, arrays: list[Any], known_from: int, attrs: dict[str, Any], outputs: int = 1
) -> Any:
    """A model of one node: arrays from ``known_from`` on are initializers."""
    names = [f"x{i}" for i in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names[:known_from], arrays[:known_from], strict=True)
    ]
    constants = [
        numpy_helper.from_array(array, name)
        for name, array in zip(names[known_from:], arrays[known_from:], strict=True)
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    made = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attrs)
    graph = helper.make_graph([made], "g", infos, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


IMAGE = floats(2, 4, 7, 6)
OLD: list[tuple[str, int, list[np.ndarray], int, dict[str, Any], int]] = [
    ("Softmax", 11, [floats(2, 3, 4)], 1, {"axis": 1}, 1),
    ("Softmax", 9, [floats(2, 3, 4)], 1, {"axis": 2}, 1),
    ("Softmax", 9, [floats(2, 3, 4)], 1, {"axis": 0}, 1),
    ("LogSoftmax", 11, [floats(2, 3, 4)], 1, {}, 1),
    ("Hardmax", 11, [floats(2, 3, 4)], 1, {}, 1),
    ("Upsample", 7, [IMAGE], 1, {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}, 1),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 2, 2], np.float32)], 1, {"mode": "linear"}, 1),
    ("Resize", 10, [IMAGE, np.array([1, 1, 0.5, 2], np.float32)], 1, {"mode": "nearest"}, 1),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 1.5], np.float32)], 1, {"mode": "linear"}, 1),
    ("Pad", 2 + 5, [IMAGE], 1, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "mode": "edge"}, 1),
    ("Pad", 10, [IMAGE], 1, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 0.5}, 1),
    ("Slice", 9, [IMAGE], 1, {"starts": [-3, 0], "ends": [100, -1], "axes": [2, 3]}, 1),
    ("Slice", 13, [IMAGE, ints(-1), ints(-100), ints(2), ints(-2)], 1, {}, 1),
    ("Split", 11, [IMAGE], 1, {"axis": -1, "split": [2, 4]}, 2),
    ("Split", 2 + 5, [IMAGE], 1, {"axis": 1}, 2),
    ("TopK", 9, [IMAGE], 1, {"k": 2, "axis": 1}, 2),
    ("Clip", 6 + 1, [IMAGE], 1, {"min": -0.5, "max": 0.25}, 1),
    ("ReduceMean", 13, [IMAGE], 1, {"axes": [1, -1], "keepdims": 0}, 1),
    ("ReduceLogSumExp", 13, [IMAGE], 1, {}, 1),
    ("ReduceSum", 11, [IMAGE], 1, {"axes": [2]}, 1),
    ("Squeeze", 11, [floats(2, 1, 3, 1)], 1, {"axes": [-1]}, 1),
    ("Unsqueeze", 11, [floats(2, 3)], 1, {"axes": [-1, 0]}, 1),
    ("BatchNormalization", 9, [IMAGE, floats(4), floats(4), floats(4), np.abs(floats(4))], 1, {}, 1),
    ("Dropout", 10, [IMAGE], 1, {"ratio": 0.9}, 1),
    ("AveragePool", 10, [IMAGE], 1, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 1),
    ("AveragePool", 7, [IMAGE], 1, {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}, 1),
    ("MaxPool", 12, [IMAGE], 1, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, 1),
    ("MaxPool", 12, [IMAGE], 1, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, 2),
    (
        "Conv",
        11,
        [IMAGE, floats(8, 2, 3, 3)],
        1,
        {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
        1,
    ),
    ("Conv", 11, [IMAGE, floats(8, 4, 2, 2)], 1, {"auto_pad": "SAME_LOWER"}, 1),
    ("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 3)], 1, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, 1),
    ("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 3)], 1, {"strides": [2, 2], "auto_pad": "SAME_LOWER"}, 1),
    ("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 3)], 1, {"strides": [2, 2], "output_shape": [16, 14]}, 1),
    ("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 3)], 1, {"strides": [2, 2], "output_shape": [14, 12]}, 1),
    ("GridSample", 16, [IMAGE, np.clip(floats(2, 3, 3, 2), -1, 1)], 2, {"mode": "bilinear"}, 1),
    ("Flatten", 9, [IMAGE], 1, {"axis": 2}, 1),
    ("LSTM", 7, [floats(3, 1, 4), floats(1, 20, 4), floats(1, 20, 5)], 1, {"hidden_size": 5}, 3),
    ("Einsum", 12, [floats(2, 3, 4), floats(2, 4, 5)], 2, {"equation": "zij , zjk"}, 1),
]


@pytest.mark.parametrize("case", OLD, ids=[f"{c[0]}-{c[1]}-{i}" for i, c in enumerate(OLD)])
def test_a_lift_never_changes_what_is_computed(case: tuple[Any, ...]) -> None:
    import onnxruntime

    op, opset, arrays, known_from, attrs, outputs = case
    model = single(op, opset, arrays, known_from, attrs, outputs)
    canonical = canonicalise(model)
    values = {f"x{i}": array for i, array in enumerate(arrays)}
    form = to_onnx(canonical.operator)
    onnx.checker.check_model(form, full_check=True)
    feeds = {f"in{i}": values[canonical.inputs[i] or ""] for i in canonical.operator.tensor_inputs}
    got = run(onnxruntime, form, feeds)
    wanted = run(onnxruntime, model, {f"x{i}": arrays[i] for i in range(known_from)})
    wanted_by_name = {f"y{i}": value for i, value in enumerate(wanted)}
    for name, value in zip(canonical.outputs, got, strict=True):
        np.testing.assert_allclose(value, wanted_by_name[name], rtol=1e-5, atol=1e-6)


def run(onnxruntime: Any, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


# Types whose schema differs from the canonical opset's in element types or in what is new and defaults to the
# old meaning: read one by one when they were listed.
SAME_MEANING = {
    "ArgMax", "ArgMin", "Attention", "AveragePool", "CastLike", "Cast", "DepthToSpace", "DequantizeLinear",
    "GRU", "GatherND", "Gemm", "LSTM", "LpPool", "MaxPool", "QuantizeLinear", "RNN", "Range", "Reshape",
    "ScatterElements", "ScatterND", "Shape", "SpaceToDepth",
}  # fmt: skip


def test_every_type_that_changed_is_handled() -> None:
    """Fails when a new ONNX changes a schema in more than element types: read it, then lift or list it."""
    handled = {*_ALWAYS, *_LIFTS, *_RENAMED, *REDUCTIONS, *SAME_MEANING}
    refused = CONTROL_FLOW | RANDOM | DATA_DEPENDENT | NOT_TENSORS | {"Constant"}
    unhandled = set()
    for name in {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}:
        for opset in range(OLDEST_OPSET, NEWEST_OPSET + 1):
            if changed(name, opset) and name not in handled | refused:
                unhandled.add((name, opset))
    assert not unhandled


def changed(name: str, opset: int) -> bool:
    try:
        now, then = defs.get_schema(name, OPSET, ""), defs.get_schema(name, opset, "")
    except defs.SchemaError:
        return False
    if now.since_version == then.since_version:
        return False

    def form(schema: Any) -> Any:
        attributes = {
            (key, str(value.type), value.required, str(value.default_value))
            for key, value in schema.attributes.items()
        }
        return attributes, [i.option for i in schema.inputs], [o.option for o in schema.outputs]

    return bool(form(now) != form(then))


def test_the_newest_opset_of_this_onnx_is_known() -> None:
    assert defs.onnx_opset_version() <= NEWEST_OPSET, (
        "read what the new opset changed, then raise NEWEST_OPSET"
    )


@pytest.mark.parametrize(
    ("document", "opset", "sentence"),
    [
        (node("Relu", X), 6, "Opset 6 is not known"),
        (node("Relu", X), 99, "Opset 99 is not known"),
        (node("Swish", X), 24, "came after ONNX opset 23"),
        (node("Gelu", X), 17, "opset 17 has no operator type 'Gelu'"),
        (node("BatchNormalization", X, *NORMS, spatial=0), 7, "spatial 0"),
        (node("BatchNormalization", X, *NORMS, outputs=5), 9, "for training"),
        (node("Dropout", X, outputs=2), 9, "mask"),
        (node("Resize", X, known(1.0, 1.0, 2.0, 2.0, dtype="float32")), 9, "opset 9 has no operator type"),
    ],
)  # fmt: skip
def test_what_cannot_be_lifted_says_why(document: Document, opset: int, sentence: str) -> None:
    with pytest.raises(InvalidOperator, match=sentence):
        parse_operator({**document, "opset": opset})


def test_dropout_in_training_is_refused() -> None:
    training = node("Dropout", X, {"value": 0.5, "dtype": "float32"}, {"value": True, "dtype": "bool"})
    with pytest.raises(InvalidOperator, match="random"):
        parse_operator(training)


def test_group_normalization_of_opset_18_spreads_its_scale() -> None:
    old = node("GroupNormalization", X, weight(3), weight(3), num_groups=3)
    operator = parse_operator({**old, "opset": 18})
    assert operator.op_types[-1] == "GroupNormalization"
    assert operator.value(operator.nodes[-1].inputs[1]).shape == (6,)
