"""What this route lowers to Halide, known without importing Halide."""

from __future__ import annotations

from importlib import metadata
from math import prod

from opatlas.identity import Operator, Target
from opatlas.identity.dtypes import item_bytes
from opatlas.identity.operator import Node
from opatlas.identity.operator_types import types_with

VERSION = "21.0.0"
ALIGNMENT = 64
"""Bytes. The code runs on any alignment of its elements; vectors that straddle cache lines make it slower."""

MOST_BYTES = 1 << 31
"""Halide's indices are 32 bits wide."""
MOST_NODES = 24
"""Adams2019's search grows faster than the graph."""

HALF_TYPES = ("float16", "bfloat16")
FLOATS = (*HALF_TYPES, "float32", "float64")
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *FLOATS,
)

POINTWISE = types_with("halide", "pointwise")
REDUCTIONS = types_with("halide", family="reduction")
NORMALISATIONS = types_with("halide", family="normalisation") | {"LogSoftmax", "Softmax"}
POOLING = types_with("halide", family="pooling")
CONTRACTIONS = types_with("halide", family="convolution") | types_with("halide", family="linear")
MOVEMENT = types_with("halide", family="movement") | types_with("halide", family="indexing")
OPS = types_with("halide")

SMOOTH = NORMALISATIONS | CONTRACTIONS | types_with("smooth")
"""Operators of products and polynomials. Halide fuses multiplications and additions only where it may also
reorder them, so one of these in a graph has it compiled by the relaxed rules; all others are compiled by the
strict ones, under which NaN and infinity are what they are elsewhere."""


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
    for number in node.inputs:
        if 0 <= number < len(operator.inputs):
            value = operator.inputs[number]
            if value.data is not None and len(value.data) > 1 and node.op in POINTWISE:
                return f"{node.op} with a table of written-out numbers is not lowered to Halide"
    return _LIMITS.get(node.op, lambda *_: None)(operator, node)


def _floats_only(operator: Operator, node: Node) -> str | None:
    dtype = operator.value(node.inputs[0]).dtype
    return None if dtype in FLOATS else f"{node.op} of {dtype} is not lowered to Halide"


def _pool(operator: Operator, node: Node) -> str | None:
    if sum(number >= 0 for number in node.outputs) > 1:
        return f"{node.op} that also returns indices is not lowered to Halide"
    return _floats_only(operator, node)


def _pad(operator: Operator, node: Node) -> str | None:
    mode = node.attributes["mode"]
    return None if mode in ("constant", "edge", "reflect") else f"Pad of mode {mode} is not lowered to Halide"


def _resize(operator: Operator, node: Node) -> str | None:
    attributes = node.attributes
    if attributes.get("antialias") or attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        return "Resize of a region or with antialias is not lowered to Halide"
    return None if attributes["mode"] == "nearest" else _floats_only(operator, node)


def _power(operator: Operator, node: Node) -> str | None:
    dtypes = {operator.value(number).dtype for number in node.inputs}
    return None if dtypes <= set(FLOATS) else "Pow of whole numbers is not lowered to Halide"


_LIMITS = {
    **dict.fromkeys(NORMALISATIONS | CONTRACTIONS | {"Mean"}, _floats_only),
    **dict.fromkeys(POOLING, _pool),
    "Pad": _pad,
    "Pow": _power,
    "Resize": _resize,
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
