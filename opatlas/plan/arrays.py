"""Values as arrays: which values can be arrays, where they are stored, and how they are copied there."""

from __future__ import annotations

from typing import Any

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import NAMES
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype
from opatlas.plan.arena import ALIGNMENT

Arrays = dict[int, Any]
"""Values by number; a value that is no tensor is as ONNX Runtime gives it."""


class Misfit(OpatlasError):
    """A value that does not fit its place; the message says how."""


class OnlyDefault(OpatlasError):
    """This run needs a fact that only the default framework knows. No part has failed."""


def has_array(kind: TensorType | None) -> bool:
    """Whether a value can have a place: its size is known, and NumPy has its element type."""
    return kind is not None and NAMES.get(kind.element) in ONNX_NUMBER


def has_place(graph: ModelGraph, number: int) -> bool:
    """The same for a value of a graph; constants have no place."""
    return has_array(graph.type_of(number)) and not graph.is_constant(number)


def dtype_of(kind: TensorType) -> np.dtype:
    """NumPy's type of a value that can be an array."""
    return numpy_dtype(NAMES[kind.element])


def memory_of(size: int) -> np.ndarray:
    """Aligned memory of so many bytes. Raises :class:`MemoryError`."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def put(place: np.ndarray, value: Any) -> None:
    """Copy a value into its place. Raises :class:`Misfit` for one that NumPy would have to broadcast."""
    if not isinstance(value, np.ndarray) or value.shape != place.shape or value.dtype != place.dtype:
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else "no tensor"
        raise Misfit(f"a value is {found}, where {place.dtype} {list(place.shape)} was inferred")
    place[...] = value


def copied(value: Any) -> Any:
    """A deep copy: of a sequence each element, of a map its numbers and texts."""
    if isinstance(value, list):
        return [copied(one) for one in value]
    if isinstance(value, dict):
        return dict(value)
    return value if value is None else np.array(value)
