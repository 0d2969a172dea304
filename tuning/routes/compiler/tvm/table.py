"""What TVM's ONNX frontend takes and this route can ship, known without importing TVM."""

from __future__ import annotations

ALIGNMENT = 64
"""Bytes: TVM's code crashes on buffers aligned to less (seen with 16)."""

HALF_TYPES = ("float16", "bfloat16")

_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
DTYPES = tuple(_BYTES)


def item_bytes(dtype: str) -> int:
    """Size of one element, by NumPy's name."""
    return _BYTES[dtype]


_OPS = """
Add Sub Mul Div Mod Less LessOrEqual Greater GreaterOrEqual Equal BitwiseAnd BitwiseOr BitwiseXor
BitShift And Or Xor Not BitwiseNot Log Exp Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Tanh
Neg Abs Reciprocal Floor Ceil Round IsInf IsNaN Sqrt Relu Selu Mish Trilu PRelu LeakyRelu
ThresholdedRelu Elu Gelu HardSigmoid HardSwish Sign Softplus Softsign Shrink Erf Sum Min Max Mean Cast
Gemm MatMul MatMulInteger Reshape Sigmoid Softmax LogSoftmax Hardmax Transpose Unsqueeze Where Concat
Clip Pow CumSum Squeeze Gather EyeLike
BatchNormalization LayerNormalization RMSNormalization GroupNormalization InstanceNormalization
MeanVarianceNormalization LRN ReduceMax ReduceMin ReduceSum ReduceMean ReduceProd ReduceLogSumExp
ReduceLogSum ReduceSumSquare ReduceL1 ReduceL2 ArgMax ArgMin Expand Slice Pad Split Tile AveragePool
MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool Conv ConvTranspose Flatten Identity Dropout
Resize Einsum OneHot GridSample DepthToSpace SpaceToDepth QuantizeLinear DequantizeLinear
"""
OPS = frozenset(_OPS.split())
"""Op types of the default domain. Left out of the frontend's map: control flow, sequences, operators
whose output shape or algorithm depends on values (NonZero, Unique, TopK, NonMaxSuppression …), and those that
read or write where an index says without looking whether that lies in the tensor (GatherND, ScatterND,
GatherElements, ScatterElements; Gather is made to clamp)."""

_ELEMENTWISE = """
Add Sub Mul Div Less LessOrEqual Greater GreaterOrEqual Equal And Or Xor Not Log Exp Acos Acosh Asin Asinh
Atan Atanh Cos Cosh Sin Sinh Tan Tanh Neg Abs Reciprocal Floor Ceil Round IsInf IsNaN Sqrt Relu Selu Mish
LeakyRelu ThresholdedRelu Elu Gelu HardSigmoid HardSwish Sign Softplus Softsign Shrink Erf Sum Min Max Mean
Cast Sigmoid Where Clip Pow Identity
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
"""Op types whose every output element depends on the inputs' elements at its own place only."""
