"""What this route lowers to Halide, known without importing Halide."""

from __future__ import annotations

from importlib import metadata
from math import prod

from opatlas.identity import Operator, Target
from opatlas.identity.operator import Node

VERSION = "21.0.0"
ALIGNMENT = 64
"""Bytes. The code runs on any alignment of its elements; vectors that straddle cache lines make it slower."""

MOST_BYTES = 1 << 31
"""Halide's indices are 32 bits wide."""
MOST_NODES = 24
"""Adams2019's search grows faster than the graph."""

_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
DTYPES = tuple(_BYTES)

_ELEMENTWISE = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip
Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN
LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink
Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
_REDUCTIONS = """
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare
"""
REDUCTIONS = frozenset(_REDUCTIONS.split())
_NORMALISATIONS = """
BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LogSoftmax RMSNormalization
Softmax
"""
NORMALISATIONS = frozenset(_NORMALISATIONS.split())
POOLING = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
CONTRACTIONS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_MOVEMENT = "Concat Expand Flatten Gather Pad Reshape Slice Split Squeeze Tile Transpose Unsqueeze"
MOVEMENT = frozenset(_MOVEMENT.split())
OPS = ELEMENTWISE | REDUCTIONS | NORMALISATIONS | POOLING | CONTRACTIONS | MOVEMENT

_SMOOTH = """
Celu Elu Erf Exp Gelu HardSigmoid HardSwish Mish Selu Sigmoid Softplus Tanh ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare
"""
_SMOOTH = """
Celu Elu Erf Exp Gelu HardSigmoid HardSwish Mish Selu Sigmoid Softplus Tanh ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare
"""
SMOOTH = NORMALISATIONS | CONTRACTIONS | frozenset(_SMOOTH.split())
"""Operators of products and polynomials. Halide fuses multiplications and additions only where it may also
reorder them, so one of these in a graph has it compiled by the relaxed rules; all others are compiled by the
strict ones, under which NaN and infinity are what they are elsewhere."""

_NEEDS_NUMBERS = {
    "Expand": (1,), "Pad": (1, 3), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,),
    "Tile": (1,), "Unsqueeze": (1,), **dict.fromkeys(REDUCTIONS, (1,)),
}  # fmt: skip
"""Inputs that have to be known before the first run."""


def item_bytes(dtype: str) -> int:
    """Size of one element, by NumPy's name."""
    return _BYTES[dtype]


def installed_version() -> str | None:
    """Halide's version here; None where it is not installed. Imports nothing."""
    try:
        return metadata.version("halide")
    except metadata.PackageNotFoundError:
        return None


def limit(operator: Operator) -> str | None:
    """One sentence on why the operator is not lowered; None where it is."""
    if len(operator.nodes) > MOST_NODES:
        return f"graphs of more than {MOST_NODES} nodes are not given to Halide's autoschedulers"
    for value in (*operator.inputs, *operator.produced):
        if value.dtype not in DTYPES:
            return f"the Halide route has no {value.dtype}"
        if 0 in value.shape:
            return "Halide's code does not take empty tensors"
        span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.strides or (), strict=False))
        if max(prod(value.shape), span) * item_bytes(value.dtype) >= MOST_BYTES:
            return "Halide's code indexes at most 2 GiB of one tensor"
    reasons = (_node_limit(operator, node) for node in operator.nodes)
    return next((reason for reason in reasons if reason), None)


def _node_limit(operator: Operator, node: Node) -> str | None:
    if node.domain not in ("", "ai.onnx") or node.op not in OPS:
        return f"the Halide route does not lower {node.domain + '.' if node.domain else ''}{node.op}"
    for position in _NEEDS_NUMBERS.get(node.op, ()):
        if position < len(node.inputs) and node.inputs[position] >= 0:
            number = node.inputs[position]
            if number >= len(operator.inputs) or operator.inputs[number].data is None:
                return f"{node.op} with sizes known only at run time is not lowered to Halide"
    for number in node.inputs:
        if 0 <= number < len(operator.inputs):
            value = operator.inputs[number]
            if value.data is not None and len(value.data) > 1 and node.op in ELEMENTWISE:
                return f"{node.op} with a table of written-out numbers is not lowered to Halide"
    first = operator.value(node.inputs[0])
    made = operator.value(next(number for number in node.outputs if number >= 0))
    return _LIMITS.get(node.op, lambda *_: None)(operator, node, first, made)


def _floats_only(operator: Operator, node: Node, first: object, made: object) -> str | None:
    dtype = getattr(first, "dtype", "")
    return None if dtype.startswith("float") else f"{node.op} of {dtype} is not lowered to Halide"


def _pool(operator: Operator, node: Node, first: object, made: object) -> str | None:
    if sum(number >= 0 for number in node.outputs) > 1:
        return f"{node.op} that also returns indices is not lowered to Halide"
    return _floats_only(operator, node, first, made)


def _pad(operator: Operator, node: Node, first: object, made: object) -> str | None:
    mode = node.attributes.get("mode", "constant")
    return None if mode in ("constant", "edge", "reflect") else f"Pad of mode {mode} is not lowered to Halide"


def _power(operator: Operator, node: Node, first: object, made: object) -> str | None:
    dtypes = {operator.value(number).dtype for number in node.inputs}
    return None if dtypes <= {"float32", "float64"} else "Pow of whole numbers is not lowered to Halide"


_LIMITS = {
    **dict.fromkeys(NORMALISATIONS | CONTRACTIONS | {"Mean"}, _floats_only),
    **dict.fromkeys(POOLING, _pool),
    "Pad": _pad,
    "Pow": _power,
}

_LEVELS: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    (("SSE41",), frozenset({"pni", "ssse3", "sse4_1"})),
    (("AVX",), frozenset({"sse4_2", "popcnt", "avx"})),
    (("AVX2", "FMA", "F16C"), frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"})),
    (
        ("AVX512", "AVX512_Skylake"),
        frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "adx", "aes", "pclmulqdq"}),
    ),
)
"""Names in ``hl.TargetFeature``, and the raw features of the processor (Penryn, Sandy Bridge, Haswell,
Skylake server) whose whole instruction set Halide then lets LLVM use."""


def used_levels(target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Halide's feature names for the target, and the raw features that its code then may use."""
    names: list[str] = []
    used: set[str] = set()
    for level, needed in _LEVELS:
        if not needed <= set(target.features):
            break
        names += level
        used |= needed
    return tuple(names), tuple(sorted(used))


def vector_bytes(target: Target) -> int:
    """Bytes of the widest vector register that Halide's code uses."""
    names = used_levels(target)[0]
    return 64 if "AVX512" in names else 32 if "AVX" in names else 16
