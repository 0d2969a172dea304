"""Sends runs over unusual inputs to ONNX Runtime, whatever else runs the model.

Frameworks and kernels treat NaN, infinities and whole numbers beyond 32 bits differently, and do not report
an index beyond its axis or a division by zero as ONNX Runtime does. Looking at the inputs takes microseconds
for an image, which is little beside a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opatlas.graph.input_uses import InputUse, input_uses
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import NAMES
from opatlas.plan.semantics.intervals import LIMITS
from opatlas.plan.semantics.ranges import guarded

LARGEST = 1e15
"""Larger finite floats go to ONNX Runtime too: their products may overflow float32."""
_SMALLER_FLOATS = {"float16": (np.uint16, 0x7C00), "bfloat16": (np.uint16, 0x7F80)}
"""The same bits as whole numbers, and the exponent's bits, which are all set in NaN and infinities."""

Look = Callable[[np.ndarray], bool]
"""Whether an array has values that only ONNX Runtime may compute with."""


class InputGuard:
    """The guard of one model."""

    def __init__(self, graph: ModelGraph) -> None:
        uses = input_uses(graph)
        looks = ((name, _look(graph.walk.types.get(name), uses[name])) for name in graph.input_names)
        self._looks = [(name, look) for name, look in looks if look is not None]

    def needs_default(self, inputs: Mapping[str, Any]) -> bool:
        """Whether ONNX Runtime must execute this run. Inputs that are no arrays are ignored."""
        for name, look in self._looks:
            array = inputs.get(name)
            if isinstance(array, np.ndarray) and look(array):
                return True
        return False


def _look(kind: TensorType | None, use: InputUse) -> Look | None:
    if kind is None:
        return None
    name = NAMES.get(kind.element, "")
    if name in ("float32", "float64"):
        return _has_special
    if name in _SMALLER_FLOATS:
        return _bits_look(*_SMALLER_FLOATS[name])
    return _bounds_look(kind, use, name) if name in LIMITS else None


def _has_special(array: np.ndarray) -> bool:
    """One pass: the sum of squares is NaN, infinite or too large if an element is."""
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        return not np.dot(flat, flat) < LARGEST**2


def _bits_look(as_whole: type, exponent: int) -> Look:
    def look(array: np.ndarray) -> bool:
        bits = np.ascontiguousarray(array).view(as_whole) & exponent
        return bool(bits.size) and bool(bits.max() == exponent)

    return look


def _bounds_look(kind: TensorType, use: InputUse, name: str) -> Look | None:
    """The look at whole numbers: none may exceed what a guarded run is given."""
    wanted, limits = guarded(kind, use), LIMITS[name]
    is_bounded = (wanted.low, wanted.high) != limits
    if not is_bounded and not use.never:
        return None

    def look(array: np.ndarray) -> bool:
        if not array.size:
            return False
        if is_bounded and not wanted.low <= array.min() <= array.max() <= wanted.high:
            return True
        return any(bool((array == one).any()) for one in use.never)

    return look
