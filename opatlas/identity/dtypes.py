"""Element types: NumPy's names, ONNX's codes, sizes, and values as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

CODES: dict[str, int] = {
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
    "uint4": 21,
    "int4": 22,
    "float4_e2m1fn": 23,
}
"""NumPy's name → ``onnx.TensorProto.DataType``: every element type of opset 23 but strings."""

NAMES: dict[int, str] = {code: name for name, code in CODES.items()}

PACKED = frozenset({"int4", "uint4", "float4_e2m1fn"})
"""Types of which ONNX packs two elements into a byte: there is no array of them to give to a kernel."""

FLOATS = frozenset(name for name in CODES if "float" in name)

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@cache
def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a name (``bfloat16``, ``int4`` and the eights are ml_dtypes')."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@cache
def bits(name: str) -> int:
    """Bits that one element takes in memory as ONNX packs it (4 for ``int4``)."""
    return 4 if name in PACKED else 8 * numpy_dtype(name).itemsize


def item_bytes(name: str) -> int:
    """Bytes of one element in an array."""
    return int(numpy_dtype(name).itemsize)


def short_float(value: float, dtype: str = "float32") -> float | str:
    """A float as JSON can hold it: the shortest decimal that gives the same ``dtype``; a word where it is
    not finite (JSON has no infinity)."""
    if dtype not in ("float32", "float64"):
        with np.errstate(over="ignore"):
            value = float(np.asarray(value, dtype=np.float32).astype(numpy_dtype(dtype)))
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # float32's shortest decimal; the narrower types' values are float32 values too.
    return float(value) if dtype == "float64" else float(str(np.float32(value)))


def long_float(value: float | str) -> float:
    """What :func:`short_float` wrote, as a float."""
    return _NON_FINITE[value] if isinstance(value, str) else float(value)


def plain(values: np.ndarray, dtype: str) -> tuple[int | float | bool | str, ...]:
    """An array as flat, row-major JSON values."""
    flat = values.reshape(-1)
    if dtype in FLOATS:
        return tuple(short_float(float(value), dtype) for value in flat)
    if dtype == "bool":
        return tuple(bool(value) for value in flat)
    return tuple(int(value) for value in flat)


def array(data: Iterable[Any], dtype: str, shape: Sequence[int]) -> np.ndarray:
    """What :func:`plain` wrote, as an array of ``shape`` and ``dtype``."""
    values = [long_float(value) if dtype in FLOATS else value for value in data]
    if dtype in FLOATS and dtype != "float64":
        return np.asarray(values, dtype=np.float32).astype(numpy_dtype(dtype)).reshape(shape)
    return np.asarray(values, dtype=numpy_dtype(dtype)).reshape(shape)
