"""Many single nodes with awkward attributes, by family: what every implementation must get right."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.opatlas.load.operators import Case, integers, ints, normal, positive, scalar

BOOLS = np.array([[True, False, True], [False, False, True]])
F32 = np.float32

ELEMENTWISE = [
    *(
        Case(op, [normal(3, 5)])
        for op in [
            "Abs",
            "Atan",
            "Ceil",
            "Cos",
            "Erf",
            "Exp",
            "Floor",
            "Neg",
            "Round",
            "Sign",
            "Sin",
            "Identity",
            "Tanh",
            "Asinh",
            "Sinh",
            "Cosh",
            "Tan",
        ]
    ),
    *(Case(op, [positive(3, 5)]) for op in ["Log", "Sqrt", "Reciprocal"]),
    *(Case(op, [np.clip(normal(3, 5) / 4, -0.9, 0.9)]) for op in ["Acos", "Asin", "Atanh"]),
    Case("Acosh", [positive(3, 5) + 1]),
    *(
        Case(op, [normal(2, 3, 4), normal(3, 1)])
        for op in ["Add", "Sub", "Mul", "Div", "Greater", "Less", "Equal"]
    ),
    *(Case(op, [normal(4), normal(2, 3, 1)]) for op in ["Add", "Sub", "GreaterOrEqual", "LessOrEqual"]),
    *(Case(op, [normal(2, 3), scalar(0.5)]) for op in ["Add", "Mul", "Div", "Sub"]),
    *(
        Case(op, [integers(3, 4), integers(4, low=1, high=5)])
        for op in ["Add", "Sub", "Mul", "Greater", "Less", "Equal"]
    ),
    Case("Div", [integers(5, 5, dtype=np.int32), integers(5, low=1, high=4, dtype=np.int32)]),
    Case("Div", [integers(5, 5, low=0, dtype=np.uint8), integers(5, low=1, high=4, dtype=np.uint8)]),
    Case("Mod", [integers(5, 5), integers(5, low=1, high=4)]),
    Case("Mod", [integers(5, 5), integers(5, low=-4, high=-1)]),
    Case("Mod", [normal(5, 5), positive(5)], {"fmod": 1}),
    Case("Mod", [integers(5, 5), integers(5, low=1, high=4)], {"fmod": 1}),
    Case("Pow", [positive(3, 4), normal(4)]),
    Case("Pow", [normal(3, 4), scalar(2.0)], fixed=[1]),
    Case("Pow", [normal(3, 4), scalar(3, np.int64)], fixed=[1]),
    Case("Pow", [positive(3, 4), integers(4, low=0, high=4, dtype=np.int32)]),
    Case("Pow", [integers(3, 4, low=1), scalar(2.0)]),
    Case(
        "BitShift",
        [integers(4, low=1, dtype=np.uint8), ints(1, 2, 3, 0).astype(np.uint8)],
        {"direction": "LEFT"},
    ),
    Case(
        "BitShift",
        [integers(4, low=9, high=200, dtype=np.uint8), ints(1, 2, 3, 0).astype(np.uint8)],
        {"direction": "RIGHT"},
    ),
    *(Case(op, [integers(4), integers(2, 4, seed=3)]) for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]),
    Case("BitwiseNot", [integers(4)]),
    *(Case(op, [BOOLS, BOOLS[0]]) for op in ["And", "Or", "Xor", "Equal"]),
    Case("Not", [BOOLS]),
    *(
        Case(op, [normal(2, 3), normal(3, seed=1), normal(2, 1, seed=2)])
        for op in ["Sum", "Max", "Min", "Mean"]
    ),
    *(Case(op, [normal(2, 3)]) for op in ["Sum", "Max", "Min", "Mean"]),
    *(Case(op, [integers(2, 3), integers(3, seed=4)]) for op in ["Max", "Min"]),
    Case("Clip", [normal(3, 4), scalar(-0.5), scalar(0.5)], fixed=[1, 2]),
    Case("Clip", [normal(3, 4), None, scalar(0.5)], fixed=[2]),
    Case("Clip", [normal(3, 4), scalar(0.0)], fixed=[1]),
    Case("Clip", [normal(3, 4)]),
    Case("Clip", [integers(3, 4), scalar(-2, np.int64), scalar(3, np.int64)], fixed=[1, 2]),
    Case("Cast", [normal(3, 4) * 3], {"to": 7}),
    Case("Cast", [normal(3, 4)], {"to": 11}),
    Case("Cast", [normal(3, 4)], {"to": 10}),
    Case("Cast", [integers(3, 4)], {"to": 9}),
    Case("Cast", [BOOLS], {"to": 1}),
    Case("Cast", [normal(3, 4).astype(np.float16)], {"to": 1}),
    Case("Where", [BOOLS, normal(2, 1), normal(3)]),
    Case("Where", [np.array(True), normal(2, 1), normal(3)]),
    Case("IsNaN", [np.array([1, np.nan, np.inf], F32)]),
    Case("IsInf", [np.array([1, np.nan, np.inf, -np.inf], F32)]),
    Case("IsInf", [np.array([1, np.nan, np.inf, -np.inf], F32)], {"detect_negative": 0}),
    Case("IsInf", [np.array([1, np.nan, np.inf, -np.inf], F32)], {"detect_positive": 0}),
    Case("Dropout", [normal(3, 4)]),
    Case("CastLike", [normal(2, 3), np.ones(2, np.float64)]),
    *(
        Case("ConstantOfShape", [ints(2, 3)], {"value": numpy_helper.from_array(np.array([fill]))}, fixed=[0])
        for fill in (F32(2.5), F32(np.inf), np.int64(7), np.bool_(True))
    ),
    Case("ConstantOfShape", [ints(2, 3)], fixed=[0]),
    Case("EyeLike", [normal(3, 4)], {"k": 1}),
    Case("EyeLike", [normal(4, 3)], {"k": -1, "dtype": 7}),
    Case("Range", [scalar(1, np.int64), scalar(10, np.int64), scalar(3, np.int64)], fixed=[0, 1, 2]),
    Case("Range", [scalar(1.0), scalar(-1.0), scalar(-0.3)], fixed=[0, 1, 2]),
    Case("Shape", [normal(2, 3, 4)], {"start": 1}),
    Case("Size", [normal(2, 3)]),
]

ACTIVATIONS = [
    *(
        Case(op, [normal(3, 7)])
        for op in [
            "Relu",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "Sigmoid",
            "HardSigmoid",
            "HardSwish",
            "Softplus",
            "Softsign",
            "Mish",
            "Gelu",
            "Shrink",
            "ThresholdedRelu",
        ]
    ),
    Case("Relu", [integers(3, 7, dtype=np.int32)]),
    Case("LeakyRelu", [normal(3, 7)], {"alpha": 0.3}),
    Case("Elu", [normal(3, 7)], {"alpha": 0.3}),
    Case("Celu", [normal(3, 7)], {"alpha": 2.0}),
    Case("Selu", [normal(3, 7)], {"alpha": 2.0, "gamma": 3.0}),
    Case("HardSigmoid", [normal(3, 7) * 5], {"alpha": 1 / 6, "beta": 0.5}),
    Case("Shrink", [normal(3, 7)], {"lambd": 0.4, "bias": 0.2}),
    Case("ThresholdedRelu", [normal(3, 7)], {"alpha": 0.4}),
    Case("Gelu", [normal(3, 7)], {"approximate": "tanh"}),
    Case("PRelu", [normal(2, 3, 4, 4), normal(3, 1, 1)]),
    Case("PRelu", [normal(2, 3, 4, 4), normal(1)]),
    Case("PRelu", [normal(2, 3, 4, 4), normal(4)]),
    Case("PRelu", [normal(2, 3), normal(2, 3, seed=2)]),
    *(
        Case(op, [normal(2, 3, 5)], {"axis": axis})
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (-1, 0, 1)
    ),
    Case("Softmax", [normal(2, 3, 5) * 50]),
]

LINEAR = [
    Case("MatMul", [normal(3, 4), normal(4, 5)]),
    Case("MatMul", [normal(2, 3, 4), normal(4, 5)]),
    Case("MatMul", [normal(2, 1, 3, 4), normal(5, 4, 2)]),
    Case("MatMul", [normal(4), normal(4, 5)]),
    Case("MatMul", [normal(3, 4), normal(4)]),
    Case("MatMul", [normal(4), normal(4, seed=1)]),
    Case("MatMul", [normal(4), normal(2, 4, 5)]),
    Case("MatMul", [normal(3, 64), normal(64, 32)], fixed=[1]),
    Case("MatMul", [normal(2, 7, 64), normal(64, 32)], fixed=[1]),
    Case("MatMul", [normal(64, 32), normal(32, 5)], fixed=[0]),
    Case("MatMul", [normal(3, 4, 5), normal(3, 5, 6)], fixed=[1]),
    Case("MatMul", [integers(3, 4, dtype=np.int32), integers(4, 2, dtype=np.int32)]),
    Case("MatMul", [normal(6, 8), normal(8, 5)], strides={1: (1, 8)}),
    Case("MatMul", [normal(6, 8), normal(8, 5)], fixed=[1], strides={0: (1, 6)}),
    Case("Gemm", [normal(3, 4), normal(4, 5), normal(5)]),
    Case("Gemm", [normal(3, 4), normal(5, 4), normal(5)], {"transB": 1}, fixed=[1, 2]),
    Case("Gemm", [normal(3, 4), normal(5, 4)], {"transB": 1}, fixed=[1]),
    Case("Gemm", [normal(3, 64), normal(32, 64), normal(32)], {"transB": 1}, fixed=[1, 2]),
    Case("Gemm", [normal(4, 3), normal(4, 5), normal(3, 1)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [normal(4, 3), normal(5, 4), normal(3, 5)], {"transA": 1, "transB": 1, "beta": 0.0}),
    Case("Gemm", [normal(3, 4), normal(4, 5), scalar(2.0)], {"alpha": 1.5}),
    Case("Gemm", [normal(3, 4), normal(4, 5)], {"alpha": 0.25}),
    Case("Gemm", [normal(3, 4), normal(4, 5), normal(1, 5)], {"alpha": 0.25, "beta": 0.5}, fixed=[1, 2]),
    Case("Gemm", [normal(3, 4), normal(5, 4), normal(3, 5)], {"transB": 1}, fixed=[1]),
    Case("Einsum", [normal(2, 3, 4), normal(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    Case("Einsum", [normal(3, 4)], {"equation": "ij->ji"}),
    Case("Einsum", [normal(3, 4), normal(3, 4, seed=1)], {"equation": "ij,ij->i"}),
    Case("Det", [normal(2, 4, 4)]),
    Case("Trilu", [normal(4, 5)]),
    Case("Trilu", [normal(4, 5), scalar(-1, np.int64)], {"upper": 0}, fixed=[1]),
    Case("Trilu", [normal(2, 4, 5), scalar(2, np.int64)], {"upper": 1}, fixed=[1]),
]

CONVOLUTIONS = [
    Case("Conv", [normal(2, 4, 9), normal(6, 4, 3)], {"pads": [1, 1]}),
    Case(
        "Conv", [normal(2, 4, 9), normal(6, 4, 3), normal(6)], {"pads": [2, 0], "strides": [2]}, fixed=[1, 2]
    ),
    Case("Conv", [normal(2, 4, 8, 9), normal(6, 4, 3, 3), normal(6)], {"pads": [1, 1, 1, 1]}, fixed=[1, 2]),
    Case("Conv", [normal(2, 4, 8, 9), normal(6, 4, 3, 3), normal(6)], {"pads": [1, 1, 1, 1]}),
    Case(
        "Conv", [normal(2, 4, 8, 9), normal(6, 4, 3, 3)], {"pads": [0, 1, 2, 1], "strides": [2, 1]}, fixed=[1]
    ),
    Case("Conv", [normal(1, 4, 12, 9), normal(6, 2, 3, 3)], {"group": 2, "dilations": [2, 1]}, fixed=[1]),
    Case(
        "Conv",
        [normal(2, 8, 8, 9), normal(8, 1, 3, 3), normal(8)],
        {"group": 8, "pads": [1] * 4},
        fixed=[1, 2],
    ),
    Case("Conv", [normal(1, 16, 1, 1), normal(8, 16, 1, 1), normal(8)], fixed=[1, 2]),
    Case("Conv", [normal(1, 3, 10, 10), normal(4, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", [normal(1, 3, 10, 10), normal(4, 3, 4, 4)], {"auto_pad": "SAME_LOWER", "strides": [3, 3]}),
    Case("Conv", [normal(1, 3, 10, 10), normal(4, 3, 3, 3)], {"auto_pad": "VALID"}),
    Case("Conv", [normal(1, 2, 5, 6, 7), normal(3, 2, 3, 3, 3), normal(3)], {"pads": [1] * 6}, fixed=[1, 2]),
    Case("Conv", [normal(1, 2, 5, 6, 7), normal(3, 2, 2, 3, 2)], {"pads": [1, 0, 0, 0, 2, 1]}, fixed=[1]),
    Case("Conv", [normal(2, 4, 6, 6), normal(5, 4, 3, 3)], fixed=[1], strides={0: (144, 1, 24, 4)}),
    Case("ConvTranspose", [normal(1, 3, 5, 6), normal(3, 4, 3, 3), normal(4)]),
    Case(
        "ConvTranspose",
        [normal(1, 3, 5, 6), normal(3, 4, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        fixed=[1],
    ),
    Case("ConvTranspose", [normal(1, 3, 5), normal(3, 4, 3)], {"strides": [2], "output_padding": [1]}),
    Case(
        "ConvTranspose",
        [normal(1, 4, 5, 6), normal(4, 2, 3, 3), normal(4)],
        {"group": 2, "dilations": [2, 1]},
    ),
    Case(
        "ConvTranspose",
        [normal(1, 3, 5, 6), normal(3, 4, 3, 3), normal(4)],
        {"strides": [2, 2], "pads": [0, 1, 2, 0]},
    ),
    Case("ConvTranspose", [normal(1, 2, 3, 4, 5), normal(2, 3, 2, 2, 2)], {"strides": [2, 2, 2]}),
    Case(
        "ConvTranspose",
        [normal(1, 3, 5, 6), normal(3, 4, 3, 3)],
        {"strides": [3, 2], "output_shape": [13, 12]},
    ),
    Case(
        "ConvTranspose",
        [normal(1, 3, 5, 6), normal(3, 4, 3, 3)],
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
]

POOLS = [
    Case("MaxPool", [normal(2, 3, 9)], {"kernel_shape": [3], "strides": [2]}),
    Case("MaxPool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("MaxPool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0]}),
    Case("MaxPool", [normal(2, 3, 10, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case(
        "MaxPool",
        [normal(2, 3, 10, 8)],
        {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1, "pads": [1] * 4},
    ),
    Case("MaxPool", [normal(1, 3, 12, 12)], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    Case("MaxPool", [normal(1, 3, 6, 6, 6)], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    Case(
        "MaxPool", [normal(1, 3, 9, 9)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}
    ),
    Case("MaxPool", [normal(1, 3, 9, 9) - 5], {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
    Case("MaxPool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 3], "pads": [1] * 4}, outputs=2),
    Case("AveragePool", [normal(2, 3, 9)], {"kernel_shape": [3], "strides": [2]}),
    Case("AveragePool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]}),
    Case(
        "AveragePool",
        [normal(2, 3, 9, 8)],
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Case("AveragePool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0]}),
    Case(
        "AveragePool",
        [normal(2, 3, 9, 8)],
        {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "count_include_pad": 1},
    ),
    Case("AveragePool", [normal(2, 3, 10, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case(
        "AveragePool",
        [normal(2, 3, 10, 7)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1] * 4, "count_include_pad": 1},
    ),
    Case("AveragePool", [normal(1, 3, 12, 12)], {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    Case("AveragePool", [normal(1, 3, 6, 6, 6)], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    Case("LpPool", [normal(2, 3, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2]}),
    Case("LpPool", [normal(2, 3, 9)], {"kernel_shape": [3], "p": 3, "pads": [1, 1]}),
    *(Case(op, [normal(2, 3, 4, 5)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case(op, [normal(2, 3, 7)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case(op, [normal(2, 3, 3, 4, 5)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
]

NORMALISATIONS = [
    Case(
        "BatchNormalization",
        [normal(2, 4, 5, 5), normal(4), normal(4, seed=1), normal(4, seed=2), positive(4)],
        fixed=[1, 2, 3, 4],
    ),
    Case(
        "BatchNormalization",
        [normal(6, 4), normal(4), normal(4, seed=1), normal(4, seed=2), positive(4)],
        {"epsilon": 0.01},
    ),
    Case(
        "BatchNormalization",
        [normal(2, 4, 5, 5), normal(4), normal(4, seed=1), normal(4, seed=2), positive(4)],
        {"training_mode": 1},
        outputs=3,
    ),
    Case(
        "BatchNormalization",
        [normal(2, 4, 5, 5), normal(4), normal(4, seed=1), normal(4, seed=2), positive(4)],
        {"training_mode": 1, "momentum": 0.0},
        outputs=3,
    ),
    Case("LayerNormalization", [normal(3, 4, 5), normal(5), normal(5, seed=1)]),
    Case("LayerNormalization", [normal(3, 4, 5), normal(5)], {"epsilon": 0.1}),
    Case(
        "LayerNormalization", [normal(3, 4, 5), normal(4, 5), normal(4, 5, seed=1)], {"axis": 1}, fixed=[1, 2]
    ),
    Case("LayerNormalization", [normal(3, 4, 5), normal(4, 1), normal(5, seed=1)], {"axis": 1}),
    Case("LayerNormalization", [normal(3, 4, 5), normal(5), normal(5, seed=1)], outputs=3),
    Case("GroupNormalization", [normal(2, 6, 4, 4), normal(6), normal(6, seed=1)], {"num_groups": 3}),
    Case("InstanceNormalization", [normal(2, 6, 4, 4), normal(6), normal(6, seed=1)]),
    Case("InstanceNormalization", [normal(2, 6, 4), normal(6), normal(6, seed=1)], {"epsilon": 0.1}),
    Case("InstanceNormalization", [normal(2, 6, 1, 1), normal(6), normal(6, seed=1)]),
    Case("RMSNormalization", [normal(3, 4, 5), normal(5)]),
    Case("RMSNormalization", [normal(3, 4, 5), normal(4, 5)], {"axis": 1, "epsilon": 0.01}),
    Case("RMSNormalization", [normal(3, 4, 5), normal(4, 1)], {"axis": 1}),
    Case("LRN", [normal(2, 7, 4, 4)], {"size": 3}),
    Case("LRN", [normal(2, 7, 4, 4)], {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    Case("MeanVarianceNormalization", [normal(2, 3, 4, 4)]),
    Case("MeanVarianceNormalization", [normal(2, 3, 4, 4)], {"axes": [1, 2]}),
    Case("LpNormalization", [normal(2, 3, 4)]),
    Case("LpNormalization", [normal(2, 3, 4)], {"axis": 1, "p": 1}),
]

_REDUCES = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]

REDUCTIONS = [
    *(Case(op, [positive(2, 3, 4), ints(1)], fixed=[1]) for op in _REDUCES),
    *(Case(op, [positive(2, 3, 4), ints(-1, 0)], {"keepdims": 0}, fixed=[1]) for op in _REDUCES),
    *(Case(op, [positive(2, 3, 4)]) for op in _REDUCES),
    *(Case(op, [positive(2, 3, 4)], {"keepdims": 0}) for op in _REDUCES),
    *(
        Case(op, [positive(2, 3, 4)], {"noop_with_empty_axes": 1})
        for op in ("ReduceSum", "ReduceMean", "ReduceMax")
    ),
    *(
        Case(op, [integers(3, 4), ints(1)], fixed=[1])
        for op in ("ReduceSum", "ReduceMax", "ReduceProd", "ReduceL1")
    ),
    Case("ReduceSum", [integers(3, 4, dtype=np.int32), ints(0)], fixed=[1]),
    *(
        Case(
            op,
            [np.array([[3, 1, 3, 2], [0, 5, 5, 0]], F32)],
            {"axis": axis, "keepdims": keep, "select_last_index": last},
        )
        for op in ("ArgMax", "ArgMin")
        for axis, keep, last in ((0, 1, 0), (-1, 0, 0), (1, 1, 1))
    ),
    *(
        Case(
            "CumSum",
            [normal(3, 4), scalar(axis, np.int64)],
            {"exclusive": exclusive, "reverse": reverse},
            fixed=[1],
        )
        for axis in (0, -1)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    Case("CumSum", [integers(3, 4, dtype=np.int32), scalar(1, np.int64)], fixed=[1]),
    Case("TopK", [normal(3, 7), ints(3)], fixed=[1], outputs=2),
    Case("TopK", [normal(3, 7), ints(2)], {"axis": 0, "largest": 0}, fixed=[1], outputs=2),
    *(
        Case(
            op,
            [normal(5, 4), integers(5, low=0, high=4), *([positive(4)] if weighted else [])],
            {"reduction": how},
        )
        for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for how in ("mean", "sum", "none")
        for weighted in (False, True)
    ),
    Case("NegativeLogLikelihoodLoss", [normal(2, 3, 6), integers(2, 6, low=0, high=3)], {"ignore_index": 1}),
    Case("SoftmaxCrossEntropyLoss", [normal(2, 3, 6), integers(2, 6, low=0, high=3)], outputs=2),
]

MOVEMENTS = [
    Case("Col2Im", [normal(2, 12, 20), ints(5, 7), ints(2, 3)], fixed=[1, 2]),
    Case(
        "Col2Im",
        [normal(1, 12, 9), ints(5, 5), ints(2, 2)],
        {"pads": [1, 0, 1, 0], "strides": [2, 1], "dilations": [1, 2]},
        fixed=[1, 2],
    ),
    Case("Concat", [normal(2, 3), normal(4, 3)], {"axis": 0}),
    Case("Concat", [normal(2, 3), normal(2, 1), normal(2, 5)], {"axis": -1}),
    Case("Split", [normal(6, 4), ints(2, 1, 3)], {"axis": 0}, fixed=[1], outputs=3),
    Case("Split", [normal(6, 4)], {"axis": 1, "num_outputs": 2}, outputs=2),
    Case("Split", [normal(7, 4)], {"axis": 0, "num_outputs": 3}, outputs=3),
    Case("Slice", [normal(6, 7), ints(1), ints(5), ints(0), ints(2)], fixed=[1, 2, 3, 4]),
    Case("Slice", [normal(6, 7), ints(1, 2), ints(5, 1000)], fixed=[1, 2]),
    Case("Slice", [normal(6, 7), ints(-1), ints(-1000), ints(1), ints(-1)], fixed=[1, 2, 3, 4]),
    Case("Slice", [normal(6, 7), ints(-1, -2), ints(0, -7), ints(1, 0), ints(-2, -3)], fixed=[1, 2, 3, 4]),
    Case("Slice", [normal(6, 7), ints(-3), ints(-1), ints(-1)], fixed=[1, 2, 3]),
    Case("Slice", [normal(6, 7), ints(0), ints(9223372036854775807), ints(0)], fixed=[1, 2, 3]),
    Case("Transpose", [normal(2, 3, 4)]),
    Case("Transpose", [normal(2, 3, 4)], {"perm": [1, 0, 2]}),
    Case("Reshape", [normal(2, 3, 4), ints(0, -1)], fixed=[1]),
    Case("Reshape", [normal(2, 3, 4), ints(4, 6)], fixed=[1]),
    Case("Flatten", [normal(2, 3, 4)]),
    Case("Flatten", [normal(2, 3, 4)], {"axis": 0}),
    Case("Flatten", [normal(2, 3, 4)], {"axis": -1}),
    Case("Squeeze", [normal(1, 3, 1, 4), ints(0)], fixed=[1]),
    Case("Squeeze", [normal(1, 3, 1, 4)]),
    Case("Unsqueeze", [normal(3, 4), ints(0, -1)], fixed=[1]),
    Case("Expand", [normal(3, 1), ints(2, 1, 4)], fixed=[1]),
    Case("Tile", [normal(2, 3), ints(2, 2)], fixed=[1]),
    Case("Pad", [normal(3, 4), ints(1, 0, 2, 3)], fixed=[1]),
    Case("Pad", [normal(3, 4), ints(1, 0, 2, 3), scalar(1.5)], fixed=[1, 2]),
    Case("Pad", [normal(5, 4), ints(-1, 0, 2, -1)], fixed=[1]),
    Case("Pad", [normal(3, 4), ints(2, 1), None, ints(1)], fixed=[1, 3]),
    *(
        Case("Pad", [normal(2, 3, 4, 5), ints(0, 0, 1, 2, 0, 0, 2, 1)], {"mode": mode}, fixed=[1])
        for mode in ("edge", "reflect", "wrap")
    ),
    *(
        Case("Pad", [normal(3, 4), ints(1, 2, 2, 1)], {"mode": mode}, fixed=[1])
        for mode in ("edge", "reflect", "wrap")
    ),
    Case("Pad", [integers(3, 4), ints(1, 2, 2, 1)], {"mode": "edge"}, fixed=[1]),
    Case("DepthToSpace", [normal(2, 8, 3, 4)], {"blocksize": 2}),
    Case("DepthToSpace", [normal(2, 8, 3, 4)], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [normal(2, 3, 4, 6)], {"blocksize": 2}),
]

INDEXING = [
    *(Case("Gather", [normal(5, 4, 3), integers(2, 3, low=-4, high=4)], {"axis": axis}) for axis in (0, 1)),
    Case("Gather", [normal(5, 4, 3), integers(2, 3, low=-3, high=3)], {"axis": -1}),
    Case("Gather", [normal(5, 4, 3), scalar(-1, np.int64)], {"axis": 1}, fixed=[1]),
    Case("Gather", [normal(5, 4, 3), scalar(2, np.int64)], {"axis": 1}),
    Case("Gather", [normal(5, 4, 3), ints(0, -1, 2)], {"axis": 0}, fixed=[1]),
    Case("Gather", [normal(50, 8), integers(2, 3, low=0, high=50, dtype=np.int32)], fixed=[0]),
    *(
        Case("GatherElements", [normal(4, 5), integers(3, 5, low=-3, high=4)], {"axis": axis})
        for axis in (0, 1)
    ),
    Case("GatherND", [normal(3, 4, 5), integers(2, 2, low=-3, high=3)]),
    Case("GatherND", [normal(3, 4, 5), integers(3, 2, 1, low=0, high=4)], {"batch_dims": 1}),
    Case("ScatterElements", [normal(4, 5), np.array([[0, -1, 2, 1, 3]]), normal(1, 5)], {"axis": 0}),
    Case("ScatterElements", [normal(3, 5), np.array([[1, 3], [0, 2], [4, -2]]), normal(3, 2)], {"axis": 1}),
    *(
        Case(
            "ScatterElements",
            [normal(3, 5), np.array([[1, 1], [0, 2], [4, 4]]), normal(3, 2)],
            {"axis": 1, "reduction": how},
        )
        for how in ("add", "mul", "max", "min")
    ),
    Case("ScatterND", [normal(4, 5), np.array([[1], [3]]), normal(2, 5)]),
    Case("ScatterND", [normal(4, 5), np.array([[1, 2], [-1, 0]]), normal(2)]),
    *(
        Case("ScatterND", [normal(4, 5), np.array([[1], [1]]), normal(2, 5)], {"reduction": how})
        for how in ("add", "mul", "max", "min")
    ),
    Case("OneHot", [integers(2, 3, low=0, high=4), ints(4), np.array([0.5, 2.0], F32)], fixed=[1, 2]),
    Case(
        "OneHot", [integers(2, 3, low=0, high=4), ints(4), np.array([0.5, 2.0], F32)], {"axis": 1}, fixed=[1]
    ),
    Case("ReverseSequence", [normal(4, 3, 2), ints(1, 4, 2)]),
    Case("ReverseSequence", [normal(3, 4, 2), ints(1, 4, 2)], {"time_axis": 1, "batch_axis": 0}),
]


def _scales(*numbers: float) -> np.ndarray:
    return np.array(numbers, F32)


RESIZES = [
    *(
        Case(
            "GridSample",
            [normal(2, 3, 5, 6), np.tanh(normal(2, 4, 3, 2)) * np.float32(1.2)],
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
        )
        for mode in ("linear", "nearest", "cubic")
        for padding, corners in (("zeros", 0), ("border", 1), ("reflection", 0))
    ),
    Case("GridSample", [normal(1, 2, 3, 4, 5), np.tanh(normal(1, 2, 3, 4, 3))], {"mode": "linear"}),
    *(
        Case(
            "Resize",
            [normal(1, 2, 4, 5), None, None, ints(1, 2, 7, 8)],
            {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding},
            fixed=[3],
        )
        for place in (
            "half_pixel",
            "asymmetric",
            "align_corners",
            "pytorch_half_pixel",
            "half_pixel_symmetric",
        )
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    *(
        Case(
            "Resize",
            [normal(1, 2, 4, 5), None, None, ints(1, 2, *size)],
            {"mode": mode, "coordinate_transformation_mode": place},
            fixed=[3],
        )
        for mode in ("linear", "cubic")
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for size in ((7, 8), (2, 3), (1, 8))
    ),
    Case(
        "Resize",
        [normal(1, 2, 4, 5), None, _scales(1, 1, 2, 2)],
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        fixed=[2],
    ),
    Case("Resize", [normal(1, 2, 4, 5), None, _scales(1, 1, 2, 2)], {"mode": "nearest"}, fixed=[2]),
    Case("Resize", [normal(1, 2, 4, 5), None, _scales(1, 1, 1.7, 0.6)], {"mode": "linear"}, fixed=[2]),
    Case(
        "Resize",
        [normal(1, 2, 4, 5), None, _scales(1, 1, 2, 2)],
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
        fixed=[2],
    ),
    Case("Resize", [normal(3, 4, 5), None, _scales(2, 1, 2)], {"mode": "linear"}, fixed=[2]),
    Case("Resize", [normal(1, 2, 6), None, _scales(2)], {"mode": "linear", "axes": [2]}, fixed=[2]),
]

ATTENTIONS = [
    Case("Attention", [normal(2, 3, 4, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8, seed=1)]),
    Case(
        "Attention",
        [normal(2, 3, 4, 8), normal(2, 3, 4, 8, seed=2), normal(2, 3, 4, 8, seed=1)],
        {"is_causal": 1},
    ),
    Case(
        "Attention",
        [normal(2, 3, 4, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8, seed=1), normal(4, 6)],
        {"scale": 0.2},
    ),
    Case("Attention", [normal(2, 3, 4, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8, seed=1)], {"softcap": 2.0}),
    Case(
        "Attention",
        [normal(2, 4, 24), normal(2, 6, 24), normal(2, 6, 24, seed=1)],
        {"q_num_heads": 3, "kv_num_heads": 3},
    ),
    Case("Attention", [normal(2, 4, 4, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 8, seed=1)]),
    Case(
        "RotaryEmbedding",
        [normal(2, 3, 4, 8), normal(50, 4), normal(50, 4, seed=1), integers(2, 4, low=0, high=50)],
    ),
    Case(
        "RotaryEmbedding",
        [normal(2, 3, 4, 8), normal(50, 4), normal(50, 4, seed=1), integers(2, 4, low=0, high=50)],
        {"interleaved": 1},
    ),
    Case("RotaryEmbedding", [normal(2, 4, 24), normal(2, 4, 4), normal(2, 4, 4, seed=1)], {"num_heads": 3}),
]

SIGNAL = [
    Case("DFT", [normal(2, 9, 3, 1), scalar(11, np.int64), scalar(1, np.int64)], fixed=[1, 2]),
    Case("DFT", [normal(2, 3, 8, 2), None, scalar(2, np.int64)], {"inverse": 1}, fixed=[2]),
    Case("DFT", [normal(2, 9, 1), None, scalar(1, np.int64)], {"inverse": 1}, fixed=[2]),
    Case("DFT", [normal(2, 10, 1), None, scalar(1, np.int64)], {"onesided": 1}, fixed=[2]),
    Case("STFT", [normal(2, 40, 1), scalar(5, np.int64), normal(16)], fixed=[1]),
    Case("STFT", [normal(2, 40, 2), scalar(7, np.int64), normal(16)], {"onesided": 0}, fixed=[1]),
]

FAMILIES = {
    "elementwise": ELEMENTWISE,
    "activations": ACTIVATIONS,
    "linear": LINEAR,
    "convolutions": CONVOLUTIONS,
    "pools": POOLS,
    "normalisations": NORMALISATIONS,
    "reductions": REDUCTIONS,
    "movements": MOVEMENTS,
    "indexing": INDEXING,
    "resizes": RESIZES,
    "attentions": ATTENTIONS,
    "signals": SIGNAL,
}
