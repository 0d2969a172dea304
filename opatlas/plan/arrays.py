"""Values as arrays: which can be one, where they lie, and how they get there."""

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
"""Values by their numbers; what is no tensor is as ONNX Runtime gives it."""


class Misfit(OpatlasError):
    """A value that is not as its place is; says how."""


class OnlyDefault(OpatlasError):
    """What the default alone knows, in this run; nobody has failed."""


def has_array(kind: TensorType | None) -> bool:
    """Whether its values can lie in a place of their own: its size is known, and its element type has one."""
    return kind is not None and NAMES.get(kind.element) in ONNX_NUMBER


def has_place(graph: ModelGraph, number: int) -> bool:
    """Whether a value of a graph does: one that is no constant."""
    return has_array(graph.type_of(number)) and not graph.is_constant(number)


def dtype_of(kind: TensorType) -> np.dtype:
    """The element type's, of what an array can have."""
    return numpy_dtype(NAMES[kind.element])


def memory_of(size: int) -> np.ndarray:
    """So many bytes, aligned. Raises :class:`MemoryError` where there are none."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def put(place: np.ndarray, value: Any) -> None:
    """Into its place. Raises :class:`Misfit` for a value that is not as the place is, which NumPy would
    spread."""
    if not isinstance(value, np.ndarray) or value.shape != place.shape or value.dtype != place.dtype:
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else "no tensor"
        raise Misfit(f"a value is {found}, where {place.dtype} {list(place.shape)} was inferred")
    place[...] = value


def copied(value: Any) -> Any:
    """A copy of one's own; a sequence element by element, a map with the numbers and texts in it."""
    if isinstance(value, list):
        return [copied(one) for one in value]
    if isinstance(value, dict):
        return dict(value)
    return value if value is None else np.array(value)
