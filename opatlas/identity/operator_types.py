"""What is known of each ONNX operator type, in one table: a new type is a line here and its builders.

Columns: the type; its *family*, which names the module with its builder wherever there is one; *operations*
per element of the output, transcendental functions counted as ten (0: it moves data; products, pools and sums
are counted by :mod:`opatlas.identity.cost`); and who has it, and what holds of it:

``torch`` (``opatlas.load.torch.ops``), ``kept`` (PyTorch computes it straight into a kept buffer:
``opatlas.load.torch.kept``), ``xla``, ``tvm``, ``halide`` (``tuning.routes.compiler``); ``pointwise``: each
element of the output depends on the inputs' elements at its own place only; ``smooth``: made of products and
polynomials, which Halide fuses by relaxed rules only; ``ort-single``: ONNX Runtime's CPU kernel is float32
only (tried one by one with 1.31).
"""

from __future__ import annotations

from dataclasses import dataclass

_TABLE = """
Abs                         elementwise     1  torch kept xla tvm halide pointwise
Acos                        elementwise     1  torch kept xla tvm halide pointwise ort-single
Acosh                       elementwise     1  torch kept xla tvm halide pointwise ort-single
Add                         elementwise     1  torch kept xla tvm halide pointwise
And                         elementwise     1  torch kept xla tvm halide pointwise
ArgMax                      reduction       1  torch xla tvm
ArgMin                      reduction       1  torch xla tvm
Asin                        elementwise     1  torch kept xla tvm halide pointwise ort-single
Asinh                       elementwise     1  torch kept xla tvm halide pointwise ort-single
Atan                        elementwise     1  torch kept xla tvm halide pointwise ort-single
Atanh                       elementwise     1  torch kept xla tvm halide pointwise ort-single
Attention                   attention       1  torch xla
AveragePool                 pooling         1  torch kept xla tvm halide ort-single
BatchNormalization          normalisation   2  torch kept xla tvm halide
BitShift                    elementwise     1  torch xla tvm
BitwiseAnd                  elementwise     1  torch xla tvm halide pointwise
BitwiseNot                  elementwise     1  torch xla tvm halide pointwise
BitwiseOr                   elementwise     1  torch xla tvm halide pointwise
BitwiseXor                  elementwise     1  torch xla tvm halide pointwise
Cast                        elementwise     0  torch kept xla tvm halide pointwise
Ceil                        elementwise     1  torch kept xla tvm halide pointwise
Celu                        activation     12  torch xla halide pointwise smooth
CenterCropPad               movement        0
Clip                        elementwise     1  torch kept xla tvm halide pointwise
Col2Im                      movement        1  torch
Concat                      movement        0  torch kept xla tvm halide
ConstantOfShape             elementwise     0  torch xla
Conv                        convolution     1  torch xla tvm halide ort-single
ConvInteger                 convolution     1  xla
ConvTranspose               convolution     1  torch xla tvm halide ort-single
Cos                         elementwise    10  torch kept xla tvm halide pointwise
Cosh                        elementwise     1  torch kept xla tvm halide pointwise ort-single
CumSum                      reduction       1  torch kept xla tvm
DepthToSpace                movement        0  torch xla tvm
DequantizeLinear            quantised       1  xla tvm
Det                         linear          1  torch ort-single
DFT                         signal         20  torch
Div                         elementwise     1  torch kept xla tvm halide pointwise
DynamicQuantizeLinear       quantised       1  xla
Einsum                      linear          1  torch xla tvm
Elu                         activation     12  torch kept xla tvm halide pointwise smooth ort-single
Equal                       elementwise     1  torch kept xla tvm halide pointwise
Erf                         elementwise    10  torch kept xla tvm halide pointwise smooth ort-single
Exp                         elementwise    10  torch kept xla tvm halide pointwise smooth
Expand                      movement        0  torch xla tvm halide
EyeLike                     elementwise     0  torch xla tvm
Flatten                     movement        0  torch xla tvm halide
Floor                       elementwise     1  torch kept xla tvm halide pointwise
Gather                      indexing        0  torch kept xla tvm halide
GatherElements              indexing        0  torch xla halide
GatherND                    indexing        0  torch xla
Gelu                        activation     15  torch kept xla tvm halide pointwise smooth ort-single
Gemm                        linear          1  torch kept xla tvm halide
GlobalAveragePool           pooling         1  torch xla tvm halide ort-single
GlobalLpPool                pooling         1  tvm
GlobalMaxPool               pooling         1  torch xla tvm halide ort-single
Greater                     elementwise     1  torch kept xla tvm halide pointwise
GreaterOrEqual              elementwise     1  torch kept xla tvm halide pointwise
GridSample                  resize          1  torch tvm
GroupNormalization          normalisation   8  torch xla tvm halide
Hardmax                     activation      1  torch xla tvm ort-single
HardSigmoid                 activation      4  torch kept xla tvm halide pointwise smooth ort-single
HardSwish                   activation      5  torch kept xla tvm halide pointwise smooth ort-single
Identity                    elementwise     0  torch xla tvm halide pointwise
InstanceNormalization       normalisation   8  torch xla tvm halide ort-single
IsInf                       elementwise     1  torch xla tvm halide pointwise
IsNaN                       elementwise     1  torch xla tvm halide pointwise
LayerNormalization          normalisation   8  torch xla tvm halide
LeakyRelu                   activation      1  torch kept xla tvm halide pointwise ort-single
Less                        elementwise     1  torch kept xla tvm halide pointwise
LessOrEqual                 elementwise     1  torch kept xla tvm halide pointwise
Log                         elementwise    10  torch kept xla tvm halide pointwise
LogSoftmax                  activation     14  torch kept xla tvm halide
LpNormalization             normalisation   5  torch xla
LpPool                      pooling         1  torch xla tvm ort-single
LRN                         normalisation  15  torch xla tvm ort-single
MatMul                      linear          1  torch kept xla tvm halide
MatMulInteger               linear          1  xla tvm
Max                         elementwise     1  torch kept xla tvm halide pointwise
MaxPool                     pooling         1  torch kept xla tvm halide
Mean                        elementwise     1  torch xla tvm halide pointwise ort-single
MeanVarianceNormalization   normalisation   8  torch xla tvm ort-single
Min                         elementwise     1  torch kept xla tvm halide pointwise
Mish                        activation     25  torch kept xla tvm halide pointwise smooth ort-single
Mod                         elementwise     1  torch xla tvm
Mul                         elementwise     1  torch kept xla tvm halide pointwise
Neg                         elementwise     1  torch kept xla tvm halide pointwise
NegativeLogLikelihoodLoss   reduction       1  torch
Not                         elementwise     1  torch kept xla tvm halide pointwise
OneHot                      indexing        0  torch xla tvm ort-single
Or                          elementwise     1  torch kept xla tvm halide pointwise
Pad                         movement        0  torch kept xla tvm halide
Pow                         elementwise    10  torch kept xla tvm halide pointwise
PRelu                       activation      1  torch xla tvm halide pointwise ort-single
QuantizeLinear              quantised       1  xla tvm
Range                       movement        1  torch xla
Reciprocal                  elementwise     1  torch kept xla tvm halide pointwise
ReduceL1                    reduction       1  torch xla tvm halide
ReduceL2                    reduction       1  torch xla tvm halide smooth
ReduceLogSum                reduction       1  torch xla tvm halide smooth
ReduceLogSumExp             reduction       1  torch xla tvm halide smooth
ReduceMax                   reduction       1  torch xla tvm halide
ReduceMean                  reduction       1  torch xla tvm halide smooth
ReduceMin                   reduction       1  torch xla tvm halide
ReduceProd                  reduction       1  torch xla tvm halide
ReduceSum                   reduction       1  torch xla tvm halide smooth
ReduceSumSquare             reduction       1  torch xla tvm halide smooth
Relu                        activation      1  torch kept xla tvm halide pointwise
Reshape                     movement        0  torch xla tvm halide
Resize                      resize          8  torch xla tvm halide ort-single
ReverseSequence             indexing        0  torch
RMSNormalization            normalisation   5  torch xla tvm halide
RotaryEmbedding             attention       3  torch xla
Round                       elementwise     1  torch kept xla tvm halide pointwise
ScatterElements             indexing        0  torch xla
ScatterND                   indexing        0  torch xla
Selu                        activation     12  torch xla tvm halide pointwise smooth ort-single
Shape                       movement        0  torch xla
Shrink                      activation      1  torch xla tvm halide pointwise
Sigmoid                     activation     12  torch kept xla tvm halide pointwise smooth
Sign                        elementwise     1  torch kept xla tvm halide pointwise
Sin                         elementwise    10  torch kept xla tvm halide pointwise
Sinh                        elementwise     1  torch kept xla tvm halide pointwise ort-single
Size                        movement        0  torch xla
Slice                       movement        0  torch xla tvm halide
Softmax                     activation     14  torch kept xla tvm halide
SoftmaxCrossEntropyLoss     reduction       1  torch
Softplus                    activation     20  torch xla tvm halide pointwise smooth ort-single
Softsign                    activation      1  torch xla tvm halide pointwise ort-single
SpaceToDepth                movement        0  torch xla tvm
Split                       movement        0  torch xla tvm halide
Sqrt                        elementwise     1  torch kept xla tvm halide pointwise
Squeeze                     movement        0  torch xla tvm halide
STFT                        signal         20  torch
Sub                         elementwise     1  torch kept xla tvm halide pointwise
Sum                         elementwise     1  torch xla tvm halide pointwise
Tan                         elementwise    10  torch kept xla tvm halide pointwise ort-single
Tanh                        activation     10  torch kept xla tvm halide pointwise smooth
ThresholdedRelu             activation      1  torch xla tvm halide pointwise ort-single
Tile                        movement        0  torch xla tvm halide
TopK                        reduction       1  torch xla
Transpose                   movement        0  torch xla tvm halide
Trilu                       linear          0  torch xla tvm
Unsqueeze                   movement        0  torch xla tvm halide
Where                       elementwise     0  torch kept xla tvm halide pointwise
Xor                         elementwise     1  torch kept xla tvm halide pointwise
"""


@dataclass(frozen=True)
class OperatorType:
    """One line of the table."""

    name: str
    family: str
    operations: float
    marks: frozenset[str]


def _read(line: str) -> OperatorType:
    name, family, operations, *marks = line.split()
    return OperatorType(name, family, float(operations), frozenset(marks))


TYPES: dict[str, OperatorType] = {one.name: one for one in map(_read, _TABLE.strip().splitlines())}


def types_with(*marks: str, family: str = "") -> frozenset[str]:
    """Names of the types that have all of these marks, of one family or of any."""
    wanted = frozenset(marks)
    return frozenset(one.name for one in TYPES.values() if wanted <= one.marks and family in ("", one.family))


def families_with(mark: str) -> dict[str, str]:
    """Type → family, of the types with this mark."""
    return {one.name: one.family for one in TYPES.values() if mark in one.marks}
