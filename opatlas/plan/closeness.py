"""The rule by which a candidate's outputs equal the default's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_MANTISSA = {
    "float64": 52,
    "float32": 23,
    "float16": 10,
    "complex128": 52,
    "complex64": 23,
    "bfloat16": 7,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz"), 3),
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz"), 2),
}
"""Bits of precision of a type's numbers, and of a complex type's parts."""
_QUANTISED = ("int8", "uint8")


def is_close(found: Any, expected: Any) -> bool:
    """Whether two results (arrays, lists of results, or anything else) agree up to rounding. Floats and
    complex numbers may differ by the square root of their precision, as a share of the largest value. Whole
    numbers of 8 bits may differ by one, since quantised models round. Wider ones are counts and indices, and
    must be equal."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_close, found, expected))
    if not isinstance(expected, np.ndarray):
        return bool(found == expected)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if expected.dtype.name in _QUANTISED:
        return bool((np.abs(found.astype(np.int16) - expected.astype(np.int16)) <= 1).all())
    if (bits := _MANTISSA.get(expected.dtype.name)) is None:
        return bool((found == expected).all())
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    finite = np.abs(other[np.isfinite(other)])
    allowed = math.sqrt(2.0**-bits) * float(finite.max(initial=0.0))
    return bool(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True))
