"""Operators of every kind as callers write them, for the tests of this folder."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> Document:
    return {"shape": list(shape), "dtype": dtype, **more}


def weight(*shape: int, dtype: str = "float32") -> Document:
    return tensor(*shape, dtype=dtype, role="const")


def known(*values: Any, dtype: str = "int64") -> Document:
    return {"data": list(values), "dtype": dtype, "shape": [len(values)]}


def node(op: str, *inputs: Document | None, outputs: int | None = None, **attrs: Any) -> Document:
    document: Document = {"op": op, "attrs": attrs, "inputs": list(inputs)}
    if outputs is not None:
        document["outputs"] = outputs
    return document


IMAGE = tensor(2, 6, 9, 8)
MATRIX = tensor(5, 7)
TOKENS = tensor(2, 5, 12)

UNARY = [
    "Abs", "Acos", "Asin", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Gelu", "HardSwish",
    "Identity", "IsInf", "IsNaN", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
]  # fmt: skip
BINARY = [
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "PRelu", "Greater", "Less", "Equal",
    "GreaterOrEqual", "LessOrEqual",
]  # fmt: skip

EXAMPLES: list[Document] = [
    *(node(op, IMAGE) for op in UNARY),
    *(node(op, IMAGE, tensor(6, 1, 8)) for op in BINARY),
    node("Conv", IMAGE, weight(4, 6, 3, 3), weight(4), strides=[2, 1], pads=[1, 0, 1, 2]),
    node("Conv", IMAGE, weight(6, 2, 3, 3), group=3, dilations=[2, 2], auto_pad="SAME_LOWER"),
    node("Conv", tensor(1, 4, 20), weight(8, 4, 5)),
    node("ConvTranspose", IMAGE, weight(6, 4, 3, 3), strides=[2, 2], output_padding=[1, 0]),
    node("ConvTranspose", IMAGE, weight(6, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 3]),
    node("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
    node("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, outputs=2),
    node("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    node("LpPool", IMAGE, kernel_shape=[2, 2], p=3),
    node("GlobalAveragePool", IMAGE),
    node("GlobalMaxPool", IMAGE),
    node("BatchNormalization", IMAGE, weight(6), weight(6), weight(6), weight(6), epsilon=0.001),
    node("InstanceNormalization", IMAGE, weight(6), weight(6)),
    node("GroupNormalization", IMAGE, weight(6), weight(6), num_groups=3),
    node("LayerNormalization", TOKENS, weight(12), weight(12)),
    node("RMSNormalization", TOKENS, weight(12), axis=-1),
    node("LRN", IMAGE, size=5, alpha=0.0002, beta=0.5),
    node("LpNormalization", TOKENS, axis=1, p=1),
    node("MeanVarianceNormalization", IMAGE),
    node("MatMul", tensor(3, 5, 7), weight(7, 4)),
    node("MatMul", tensor(5, 7, strides=[1, 5]), tensor(7, 4)),
    node("Gemm", MATRIX, weight(4, 7), weight(4), transB=1, alpha=0.5),
    node("Gemm", tensor(7, 5), weight(7, 4), transA=1),
    node("MatMulInteger", tensor(5, 7, dtype="uint8"), weight(7, 4, dtype="int8")),
    node("Softmax", TOKENS, axis=1),
    node("LogSoftmax", TOKENS),
    node("Hardmax", TOKENS),
    node("Attention", tensor(1, 4, 3, 8), tensor(1, 4, 6, 8), tensor(1, 4, 6, 8), is_causal=1),
    node("Elu", IMAGE, alpha=0.5),
    node("Celu", IMAGE, alpha=2.0),
    node("Selu", IMAGE),
    node("LeakyRelu", IMAGE, alpha=0.2),
    node("HardSigmoid", IMAGE),
    node("ThresholdedRelu", IMAGE, alpha=0.3),
    node("Shrink", IMAGE, lambd=0.4, bias=0.1),
    node("Gelu", IMAGE, approximate="tanh"),
    node("Clip", IMAGE, {"value": 0, "dtype": "float32"}, {"value": 6, "dtype": "float32"}),
    node("Pow", IMAGE, {"value": 2.0, "dtype": "float32"}),
    node("Cast", IMAGE, to=10),
    node("Concat", MATRIX, MATRIX, axis=1),
    node("Concat", MATRIX, {"same_as": 0}, axis=0),
    node("Split", MATRIX, known(2, 3), axis=0),
    node("Slice", TOKENS, known(1, 2), known(4, 9), known(1, 2), known(1, 3)),
    node("Slice", TOKENS, known(-1), known(-100), known(2), known(-2)),
    node("Pad", MATRIX, known(0, 1, 2, 3), {"value": 1.5, "dtype": "float32"}),
    node("Pad", MATRIX, known(1, 1, 1, 1), mode="reflect"),
    node("Reshape", TOKENS, known(2, 5, 3, 4)),
    node("Flatten", TOKENS, axis=2),
    node("Squeeze", tensor(2, 1, 3, 1), known(1)),
    node("Unsqueeze", MATRIX, known(0, 3)),
    node("Transpose", TOKENS, perm=[0, 2, 1]),
    node("Expand", tensor(5, 1), known(2, 5, 7)),
    node("Tile", MATRIX, known(2, 1)),
    node("Gather", tensor(30, 8), tensor(4, 3, dtype="int64"), axis=0),
    node("GatherElements", MATRIX, tensor(5, 2, dtype="int64"), axis=1),
    node("GatherND", TOKENS, tensor(4, 2, dtype="int64")),
    node("ScatterElements", MATRIX, tensor(5, 2, dtype="int64"), tensor(5, 2), axis=1, reduction="add"),
    node("ScatterND", MATRIX, tensor(4, 1, dtype="int64"), tensor(4, 7)),
    node("Where", tensor(5, 7, dtype="bool"), MATRIX, tensor(7)),
    node("ReduceMean", TOKENS, known(1), keepdims=0),
    node("ReduceSum", TOKENS, known(-1)),
    node("ReduceMax", TOKENS, known(0, 2)),
    node("ReduceL2", TOKENS, known(2)),
    node("ArgMax", TOKENS, axis=1, keepdims=0),
    node("TopK", TOKENS, known(3), axis=2),
    node("CumSum", TOKENS, {"value": 1, "dtype": "int64"}, reverse=1),
    node("OneHot", tensor(4, dtype="int64"), known(10), weight(2), axis=0),
    node("Resize", IMAGE, None, known(1.0, 1.0, 2.0, 2.0, dtype="float32"), mode="linear"),
    node("Resize", IMAGE, None, None, known(2, 6, 5, 4), mode="cubic", cubic_coeff_a=-0.5),
    node("DepthToSpace", tensor(1, 8, 3, 3), blocksize=2, mode="CRD"),
    node("SpaceToDepth", tensor(1, 2, 6, 6), blocksize=3),
    node("Trilu", MATRIX, {"value": 1, "dtype": "int64"}, upper=0),
    node("Einsum", tensor(2, 3, 4), tensor(2, 4, 5), equation="bij,bjk->bik"),
    node("Mod", tensor(4, dtype="int64"), tensor(4, dtype="int64")),
    node("Not", tensor(4, dtype="bool")),
    node("And", tensor(4, dtype="bool"), tensor(3, 4, dtype="bool")),
    node("Range", {"value": 0}, {"value": 10}, {"value": 2}),
    node("ConstantOfShape", known(2, 3), value=["float32", [1], [1.5]]),
    node("LSTM", tensor(5, 2, 3), weight(1, 16, 3), weight(1, 16, 4), outputs=3),
    node("GRU", tensor(5, 2, 3), weight(1, 12, 3), weight(1, 12, 4), linear_before_reset=1),
    node("RNN", tensor(5, 2, 3), weight(1, 4, 3), weight(1, 4, 4)),
    node("QuantizeLinear", IMAGE, weight(), weight(dtype="int8")),
    node("DequantizeLinear", tensor(6, 4, dtype="int8"), weight(6), weight(6, dtype="int8"), axis=0),
    node("GridSample", IMAGE, tensor(2, 4, 4, 2), mode="nearest"),
    node("RoiAlign", IMAGE, tensor(3, 4), tensor(3, dtype="int64"), output_height=2, output_width=2),
    node("DFT", tensor(2, 8, 1)),
    node("BitwiseAnd", tensor(4, dtype="int32"), tensor(3, 4, dtype="int32")),
    node("ReverseSequence", tensor(4, 3, 2), tensor(3, dtype="int64")),
    node("Conv", tensor(1, 3, 8, 8, dtype="float16"), weight(4, 3, 3, 3, dtype="float16")),
    node("MatMul", tensor(5, 7, dtype="bfloat16"), weight(7, 4, dtype="bfloat16")),
]


def graph(*nodes: Document, inputs: list[Document], outputs: list[int]) -> Document:
    return {"inputs": inputs, "nodes": list(nodes), "outputs": outputs}


def step(op: str, reads: list[int], writes: list[int], **attrs: Any) -> Document:
    return {"op": op, "inputs": reads, "outputs": writes, "attrs": attrs}


GRAPHS: list[Document] = [
    graph(  # a residual block's end
        step("Conv", [0, 1, 2], [4], pads=[1, 1, 1, 1]),
        step("Add", [4, 3], [5]),
        step("Relu", [5], [6]),
        inputs=[IMAGE, weight(6, 6, 3, 3), weight(6), IMAGE],
        outputs=[6],
    ),
    graph(  # attention scores
        step("MatMul", [0, 1], [4]),
        step("Mul", [4, 2], [5]),
        step("Add", [5, 3], [6]),
        step("Softmax", [6], [7], axis=-1),
        inputs=[tensor(2, 4, 5, 8), tensor(2, 4, 8, 5), weight(), tensor(5, 5)],
        outputs=[7],
    ),
    graph(  # gelu by hand, both branches wanted
        step("Div", [0, 1], [3]),
        step("Erf", [3], [4]),
        step("Add", [4, 2], [5]),
        step("Mul", [0, 5], [6]),
        inputs=[TOKENS, weight(), weight()],
        outputs=[5, 6],
    ),
    graph(  # a gate
        step("Sigmoid", [0], [1]),
        step("Mul", [0, 1], [2]),
        inputs=[TOKENS],
        outputs=[2],
    ),
]
