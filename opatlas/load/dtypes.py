"""Element types by their one name (NumPy's), as NumPy dtypes and as ONNX numbers."""

from __future__ import annotations

import numpy as np

from opatlas.errors import LoadError

ONNX_NUMBER = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}
"""``TensorProto.DataType`` of every type that a kernel can be given (packed 4-bit types have no array)."""

EXTENSION_TYPES = frozenset(name for name in ONNX_NUMBER if name.startswith(("bfloat16", "float8")))
"""Types that NumPy has only through ``ml_dtypes``."""


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype called ``name``; raises :class:`LoadError` for one that no array can have."""
    if name not in ONNX_NUMBER:
        raise LoadError(f"element type {name!r} has no array form here; one of {', '.join(ONNX_NUMBER)} has")
    if name in EXTENSION_TYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def extreme(dtype: np.dtype) -> object:
    """The value that poisons a buffer: NaN, or the type's largest value where it has no NaN."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return np.array(np.nan).astype(dtype)[()]
