"""Whole numbers, truth values and places: of all that is legal there, its ends, equal ones, ordered ones."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

import numpy as np

from opatlas.identity import Node, Operator
from opatlas.identity.operator_types import TYPES
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.drawing.dealing import Hand
from tuning.measure.judging.drawing.drawn import behind
from tuning.measure.judging.drawing.roles import BLOCK, ROLES, layout_of
from tuning.measure.judging.placing import divisors, integers, marked
from tuning.measure.judging.tolerance import terms
from tuning.measure.shared_tensors import span

SMALL = 64
"""Where nobody knows what becomes of a large one."""
IN_FLOAT64 = 2**53
"""ONNX Runtime adds whole numbers, and takes their fmod, in float64."""
_SHARES = (0.5, 0.02, 0.98)
"""Of what is true."""

_KEPT = frozenset({
    "Abs", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Clip",
    "Div", "Equal", "GlobalMaxPool", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Max",
    "MaxPool", "Min", "Mod", "Neg", "OneHot", "ReduceMax", "ReduceMin", "Relu", "Sign", "TopK", "Trilu",
    "Where",
})  # fmt: skip
"""They compare, choose or turn whole numbers: of any size."""
_ADDED = frozenset({"Add", "Sub", "Sum"})
_SUMMED = frozenset({"ReduceSum", "CumSum", "ReduceL1"})
_MULTIPLIED = frozenset({"MatMul", "Gemm", "Mul"})


def draw_whole(operator: Operator, number: int, domain: Domain, hand: Hand) -> np.ndarray:
    """The flat elements behind one input of whole numbers or truth values."""
    value, layout, rng = operator.inputs[number], layout_of(operator, number), hand.rng
    dtype, count = numpy_dtype(value.dtype), prod(value.shape)
    if dtype.kind == "b":
        shares: np.ndarray = np.repeat(rng.choice(_SHARES, -(-count // BLOCK)), BLOCK)[:count]
        truths = (rng.random(count) < shares).reshape(value.shape)
        if layout.role is ROLES["mask"]:
            truths[..., :1] = True  # who sees nothing has no answer that all agree on
        return behind(value, truths)
    if domain.kind in ("unique", "tuple", "unique_tuple", "in_plane", "positive"):
        return integers(value, domain, dtype, span(value.shape, value.strides), rng)
    if domain.kind == "index":
        made = _places(domain, count, rng)
    elif domain.kind in ("length", "between"):
        low, high = (1, max(1, domain.bounds[0])) if domain.kind == "length" else domain.bounds
        made = _between(low, high, count, rng)
    else:
        most = largest(operator, layout.node, dtype)
        if domain.kind == "nonzero":
            made = divisors(_between(1, most, count, rng), dtype, rng)
        else:
            made = _between(0 if dtype.kind == "u" else _least(layout.node, dtype, most), most, count, rng)
    return behind(value, made.astype(dtype).reshape(value.shape))


def largest(operator: Operator, node: Node, dtype: np.dtype) -> int:
    """What numbers may come to, so that what is made of them stays within the type. Bytes wrap everywhere
    alike."""
    most = int(np.iinfo(dtype).max)
    family = TYPES[node.op].family if node.op in TYPES else ""
    if len(operator.nodes) > 1 and any(
        TYPES[op].family != "movement" for op in operator.op_types if op in TYPES
    ):
        return min(SMALL, most)
    if node.op == "Mod" and node.attributes.get("fmod"):
        return min(most, IN_FLOAT64)
    if dtype.itemsize == 1 or family in ("movement", "indexing") or node.op in _KEPT:
        return most
    if node.op == "Identity":
        return most
    if node.op == "Cast":
        made = numpy_dtype(operator.value(node.outputs[0]).dtype)
        return min(most, int(np.iinfo(made).max)) if made.kind in "iu" else most
    if node.op in _ADDED:
        return most // max(2, len(node.inputs))
    if node.op in _SUMMED:
        return min(most, IN_FLOAT64) // (terms(operator, node) + 1)
    if node.op in _MULTIPLIED:
        return isqrt(most // terms(operator, node))
    return min(SMALL, most)


def _least(node: Node, dtype: np.dtype, most: int) -> int:
    if dtype.itemsize == 1 and node.op not in ("Abs", "Neg", "Div", "Mod"):
        return int(np.iinfo(dtype).min)
    return -most


Draw = Callable[[int, int, int, np.random.Generator], np.ndarray]


def _any(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(low, high, count, np.int64 if low < 0 else np.uint64, endpoint=True)


def _small(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    return _any(max(low, -SMALL), min(high, max(low, 0) + SMALL), count, rng)


def _ends(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    kept = [one for one in (low, low + 1, -1, 0, 1, high - 1, high) if low <= one <= high]
    return np.array(kept, np.int64 if low < 0 else np.uint64)[rng.integers(0, len(kept), count)]


def _equal(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    return np.repeat(_any(low, high, 1, rng), count)


def _sizes(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Of all lengths in bits."""
    made = _any(low, high, count, rng)
    return made >> rng.integers(0, max(1, (high - low).bit_length()), count).astype(made.dtype)


def _sorted(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(_any(low, high, count, rng))


_WAYS: tuple[Draw, ...] = (_any, _small, _ends, _equal, _sizes, _sorted)


def _between(low: int, high: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """In runs, each in one way; where there are few, in one of all."""
    made: np.ndarray = np.empty(count, np.int64 if low < 0 else np.uint64)
    dealt = rng.permutation(len(_WAYS))
    ways: np.ndarray = np.repeat(dealt[np.arange(-(-count // BLOCK)) % len(_WAYS)], BLOCK)[:count]
    for place, way in enumerate(_WAYS):
        mine = np.flatnonzero(ways == place)
        if mine.size:
            made[mine] = np.clip(way(low, high, mine.size, rng), low, high)
    return made


def _places(domain: Domain, count: int, rng: np.random.Generator) -> np.ndarray:
    """Along an axis: any, its ends, one again and again, in order; from both ends where they may be."""
    extent = max(1, domain.bounds[0])
    made: np.ndarray = _between(0, extent - 1, count, rng).astype(np.int64)
    if rng.integers(0, 4) == 0:  # as positions are
        made = (np.arange(count) + int(rng.integers(0, extent))) % extent
    return marked(made, domain, rng)
