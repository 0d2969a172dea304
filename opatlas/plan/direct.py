"""A whole model in ONNX Runtime, run with nothing between the caller and it.

A model may take 0.1 ms, of which 2 % are two microseconds. ONNX Runtime runs any number of calls at once, so
nobody waits for anybody; what a run does not take, or fails over, is None, and the executor's own way then
says why in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.plan.arrays import dtype_of, has_array
from opatlas.plan.regions import OnnxRuntimeRegion

Expected = Sequence[tuple[str, np.dtype, tuple[int, ...]]]
"""Inputs' names, types and shapes."""


def expected_inputs(graph: ModelGraph) -> Expected | None:
    """Of a model's inputs; None where one is no array of a known shape."""
    kinds = [(name, graph.walk.types.get(name)) for name in graph.input_names]
    known = [(name, dtype_of(kind), kind.shape) for name, kind in kinds if kind and has_array(kind)]
    return known if len(known) == len(kinds) else None


def fits(inputs: Mapping[str, Any], expected: Expected) -> bool:
    """Whether these are the arrays that are expected, as they are. ONNX Runtime looks itself, but not at the
    order of bytes: it would read the numbers of another machine as its own."""
    if len(inputs) != len(expected):
        return False
    for name, dtype, shape in expected:
        array = inputs.get(name)
        if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
            return False
    return True


class DirectRuns:
    """Runs of a region that is the whole model, over inputs that are ``expected``."""

    def __init__(self, region: OnnxRuntimeRegion, outputs: Sequence[str], expected: Expected) -> None:
        self._region, self._outputs, self._expected = region, list(outputs), expected
        self._run = region.session._sess.run

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        """The outputs of these names (all, where there are none), or None."""
        if not fits(inputs, self._expected):
            return None
        try:
            made: list[Any] = self._run(outputs or self._outputs, inputs, None)
        except Exception:  # ONNX Runtime's exceptions have no base class of their own
            return None
        return made

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        """A run over memory that stays, where all of it does; else None."""
        buffers = {name: array for name, array in outputs.items() if array is not None}
        stays = len(buffers) == len(outputs) and all(map(_is_dense, (*inputs.values(), *buffers.values())))
        if not buffers or not stays or not fits(inputs, self._expected):
            return None
        try:
            return self._region.bind_named(inputs, buffers)
        except Exception:  # of a buffer that does not fit
            return None


def _is_dense(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.kind in "biufc"
