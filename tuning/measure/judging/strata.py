"""Inputs over the whole domain: what a set of the distribution ``strata`` holds.

For a function of one element, every element of the set is drawn from one stratum of its own: the range in
which the function does something, magnitudes spread evenly over the exponents from the smallest number to
near the largest, denormal numbers, and zero, minus zero, one and the range's ends; infinities and NaN where
libraries agree about them. Operators that couple elements get rows whose sizes differ by powers of two.

A bound below a type's own limit says beyond what honest implementations lose themselves, as
``docs/accuracy.md`` has it: 1e19 squared is beyond float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opatlas.identity import Operator
from opatlas.identity.operator_types import TYPES, types_with

_LEAST, _MOST = -149, 126
"""Exponents of float32's smallest and largest magnitudes (half of the largest: sums of two stay finite)."""


@dataclass(frozen=True)
class Strata:
    """``low`` … ``high``: where the function does something. ``least`` … ``most``: exponents of magnitudes.
    ``signs``: of what is drawn by magnitude: both, or 1 for positive only."""

    low: float = -4.0
    high: float = 4.0
    least: int = _LEAST
    most: int = _MOST
    signs: tuple[int, ...] = (-1, 1)
    zero: bool = True
    extra: tuple[float, ...] = ()  # infinities and NaN, where libraries agree about them


_POSITIVE = (1,)
_UNIT = Strata(-1.0, 1.0, most=-1)
_SATURATING = Strata(-100.0, 100.0, most=6)

OF_ARGUMENT: dict[str, dict[int, Strata]] = {
    "Acos": {0: _UNIT},
    "Acosh": {0: Strata(1.0, 1e4, 1, 60, _POSITIVE, zero=False)},
    "Add": {0: Strata(), 1: Strata()},
    "Asin": {0: _UNIT},
    "Asinh": {0: Strata(-10.0, 10.0, most=60)},
    "Atan": {0: Strata()},
    "Atanh": {0: Strata(-0.9999, 0.9999, most=-1)},
    "Celu": {0: _SATURATING},
    "Cos": {0: Strata(-100.0, 100.0, most=17)},
    "Cosh": {0: Strata(-87.0, 87.0, most=6)},
    "Div": {0: Strata(most=60, least=-60), 1: Strata(1.0, 4.0, -60, 60, zero=False)},
    "Elu": {0: _SATURATING},
    "Erf": {0: Strata(-6.0, 6.0, most=20)},
    "Exp": {0: Strata(-104.0, 88.5, most=7)},
    "Gelu": {0: Strata(-12.0, 12.0, most=20)},
    "HardSigmoid": {0: Strata(-6.0, 6.0)},
    "HardSwish": {0: Strata(-6.0, 6.0, most=60)},
    "Log": {0: Strata(0.5, 2.0, -126, _MOST, _POSITIVE, zero=False)},
    "Mish": {0: Strata(-100.0, 100.0, most=20)},
    "Mod": {0: Strata(-100.0, 100.0, -20, 20), 1: Strata(1.0, 4.0, -20, 20, zero=False)},
    "Mul": {0: Strata(most=60, least=-60), 1: Strata(most=60, least=-60)},
    "Pow": {0: Strata(0.5, 4.0, -20, 20, _POSITIVE, zero=False), 1: Strata(-4.0, 4.0, -20, 2)},
    "Reciprocal": {0: Strata(1.0, 4.0, -120, 120, zero=False)},
    "Selu": {0: _SATURATING},
    "Sigmoid": {0: Strata(-104.0, 104.0, most=20)},
    "Sin": {0: Strata(-100.0, 100.0, most=17)},
    "Sinh": {0: Strata(-87.0, 87.0, most=6)},
    "Softplus": {0: Strata(-100.0, 100.0, most=20)},
    "Softsign": {0: Strata(most=60)},
    "Sqrt": {0: Strata(0.0, 4.0, -126, _MOST, _POSITIVE)},
    "Tan": {0: Strata(-100.0, 100.0, most=13)},
    "Tanh": {0: Strata(-12.0, 12.0, most=20)},
}
_ANY = types_with("pointwise")
_CHAIN = Strata(least=-30, most=3)
"""For chains of functions: beyond it one of them may overflow in float32 and not in the reference."""
_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5])
_WITHOUT_INFINITY = frozenset({"Cast", "Gelu", "Log", "PRelu", "Pow", "ThresholdedRelu"})
_WITHOUT_NAN = _WITHOUT_INFINITY | frozenset(
    {"Celu", "Clip", "Elu", "Equal", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "LeakyRelu"}
    | {"Less", "LessOrEqual", "Max", "Min", "Relu", "Selu", "Shrink", "Sign", "Softplus"}
)
"""Types of which PyTorch, ONNX Runtime, NumPy, TVM, XLA and Halide do not all make the same of an infinity or
of NaN (tried one by one), and their like."""


def strata_of(operator: Operator, number: int) -> Strata | None:
    """How the elements of one floating input are spread; None where its rows are."""
    if not all(_elementwise(op) for op in operator.op_types):
        return None
    if len(operator.nodes) > 1:
        return _CHAIN
    [node] = operator.nodes
    places = [place for place, taken in enumerate(node.inputs) if taken == number]
    strata = OF_ARGUMENT.get(node.op, {}).get(places[0], Strata())
    adding = node.attributes.get("reduction", "none") != "none"  # a scatter that adds, multiplies, chooses
    return strata if adding else replace(strata, extra=_extra(node.op, strata))


def _extra(op: str, strata: Strata) -> tuple[float, ...]:
    infinities = () if op in _WITHOUT_INFINITY else tuple(sign * np.inf for sign in strata.signs)
    return infinities if op in _WITHOUT_NAN else (*infinities, np.nan)


def _elementwise(op: str) -> bool:
    kind = TYPES.get(op)
    return op in _ANY or (kind is not None and kind.family in ("movement", "indexing"))


def spread_elements(strata: Strata, dtype: np.dtype, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` elements, each from a stratum of its own; in float32, but for float64's."""
    least, most = _exponents(strata, dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    legal = _SPECIAL[(strata.low <= _SPECIAL) & (strata.high >= _SPECIAL)]
    points = np.concatenate(
        [legal if strata.zero else legal[legal != 0], [strata.low, strata.high], strata.extra]
    ).astype(wide)
    signs = np.array(strata.signs, wide)

    def sizes(low: float, high: float, so_many: int) -> np.ndarray:
        exponents = rng.random(so_many, wide) * wide(high - low) + wide(low)
        return np.exp2(exponents) * signs[rng.integers(0, len(signs), so_many, np.uint8)]

    values = np.empty(count, wide)
    for start in range(0, count, _BLOCK):
        part = values[start : start + _BLOCK]
        part[...] = rng.random(part.size, wide) * wide(strata.high - strata.low) + wide(strata.low)
        kinds = rng.integers(0, 256, part.size, np.uint8)
        places = np.flatnonzero(kinds < _BY_SIZE)
        part[places] = sizes(least, most, places.size)
        if least < _normal(dtype):
            places = np.flatnonzero((kinds >= _BY_SIZE) & (kinds < _TINY))
            part[places] = sizes(least, _normal(dtype), places.size)
        places = np.flatnonzero((kinds >= _TINY) & (kinds < _POINT))
        part[places] = points[rng.integers(0, len(points), places.size, np.uint8)]
    return values


_BY_SIZE, _TINY, _POINT = 115, 128, 154
"""Of 256: 45 % are drawn by magnitude, 5 % are denormal, 10 % points, the others of the range."""
_BLOCK = 1 << 15
"""Elements at a time: what is drawn for them stays in the cache."""


def _exponents(strata: Strata, dtype: np.dtype) -> tuple[float, float]:
    """Float16's range is a tenth of float32's; float64's is not gone through."""
    if dtype.itemsize == 2 and dtype.kind == "f":
        return -4.0 if strata.least < -24 else strata.least, min(strata.most, 14)
    return strata.least, strata.most


def _normal(dtype: np.dtype) -> int:
    return -14 if dtype.itemsize == 2 and dtype.kind == "f" else -126
