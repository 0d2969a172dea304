"""Element types by their one name (NumPy's), as NumPy dtypes and as ONNX numbers."""

from __future__ import annotations

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.dtypes import CODES, PACKED
from opatlas.identity.dtypes import numpy_dtype as known_dtype

ONNX_NUMBER = {name: code for name, code in CODES.items() if name not in PACKED}
"""``TensorProto.DataType`` of every type that a kernel can be given."""

EXTENSION_TYPES = frozenset(name for name in ONNX_NUMBER if name.startswith(("bfloat16", "float8")))
"""Types that NumPy has only through ``ml_dtypes``."""


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype called ``name``; raises :class:`LoadError` for one that no array can have."""
    if name not in ONNX_NUMBER:
        raise LoadError(f"element type {name!r} has no array form here; one of {', '.join(ONNX_NUMBER)} has")
    return known_dtype(name)


def extreme(dtype: np.dtype) -> object:
    """The value that poisons a buffer: NaN, or the type's largest value where it has no NaN."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return np.array(np.nan).astype(dtype)[()]
