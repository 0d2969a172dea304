"""What a model gives in float64, by PyTorch: what errors are told by, and how inexact a plan may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from opatlas.errors import LoadError
from opatlas.graph.normal import ModelGraph
from opatlas.graph.weights import weight_bytes
from opatlas.memory import lacking
from opatlas.plan.limits import within
from opatlas.plan.regions import ModelPart, is_installed, open_region

MOST_ERROR = 2.0
"""A plan of the service errs at most so many times as much as ONNX Runtime does."""
ROUNDING = 2.0**-23
"""Of the largest value: so exact is always exact enough."""
_COPIES = 6
"""Of the weights in float32 that making them wide, and loading them, takes."""


def in_float64_if_possible(
    graph: ModelGraph, feed: Mapping[str, np.ndarray], threads: int
) -> list[np.ndarray] | None:
    """As :func:`in_float64`; None where PyTorch is not installed, cannot express the model, or has too little
    memory for it."""
    if not is_installed("pytorch") or lacking(_COPIES * weight_bytes(graph.model)):
        return None
    try:
        return in_float64(graph, feed, threads)
    except LoadError:
        return None


def by_onnx(graph: ModelGraph, feed: Mapping[str, np.ndarray], seconds: float) -> list[np.ndarray] | None:
    """The model's outputs by ONNX's own evaluator, whose whole numbers are exact and floats as wide as the
    model has them; None where it lacks a node or takes longer."""
    try:
        return within(seconds, lambda: list(ReferenceEvaluator(graph.model).run(None, dict(feed))))
    except Exception:  # whatever the evaluator raises over a node that it lacks
        return None


def why_inexact(
    found: Sequence[np.ndarray], default: Sequence[np.ndarray], exact: Sequence[np.ndarray]
) -> str:
    """That a plan errs more than it may beside the default, in words; nothing where it does not."""
    mine, theirs = error_of(found, exact), error_of(default, exact)
    if mine <= max(MOST_ERROR * theirs, ROUNDING):
        return ""
    times = f"{mine / theirs:.1f} times as much as ONNX Runtime" if theirs else "where ONNX Runtime does not"
    return f"it errs {times} against float64, and at most {MOST_ERROR:g} times is allowed"


def in_float64(graph: ModelGraph, feed: Mapping[str, np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """The model's outputs over ``feed``, its weights and every step in float64. Raises
    :class:`opatlas.errors.LoadError` where PyTorch does not express the model (a Loop, say)."""
    wide = ModelGraph(_widened(graph.model).SerializeToString())
    arrays = [_wide(feed[name]) for name in wide.input_names]
    return open_region("pytorch", ModelPart.whole(wide), threads).run(arrays)


def error_of(found: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest difference, as a share of the largest value; endless where shapes differ or it is none."""
    return max(_error(one, other) for one, other in zip(found, exact, strict=True))


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    if found.shape != exact.shape or not np.isfinite(found).all():
        return math.inf
    largest = float(np.max(np.abs(exact), initial=0)) or 1.0
    return float(np.max(np.abs(found.astype(np.float64) - exact), initial=0)) / largest


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every float32 of the graph as float64: weights, constants in nodes, what goes in and out, casts."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        _widen(tensor)
    del made.graph.value_info[:]
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return made


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
