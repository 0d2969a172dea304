"""A model's outputs in float64, by PyTorch: the measure of errors, and how inexact a plan may be."""

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
"""A plan of the service may err at most so many times as much as ONNX Runtime."""
ROUNDING = 2.0**-23
"""As a share of the largest value: errors up to this are always allowed."""
_COPIES = 6
"""Copies of the float32 weights that converting and loading them takes."""


def in_float64_if_possible(
    graph: ModelGraph, feed: Mapping[str, np.ndarray], threads: int
) -> list[np.ndarray] | None:
    """Like :func:`in_float64`; None if PyTorch is missing, cannot express the model or has too little
    memory."""
    if not is_installed("pytorch") or lacking(_COPIES * weight_bytes(graph.model)):
        return None
    try:
        return in_float64(graph, feed, threads)
    except LoadError:
        return None


def by_onnx(graph: ModelGraph, feed: Mapping[str, np.ndarray], seconds: float) -> list[np.ndarray] | None:
    """The model's outputs by ONNX's own evaluator: exact for whole numbers, floats in the model's precision.
    None if it lacks a node or takes too long."""
    try:
        return within(seconds, lambda: list(ReferenceEvaluator(graph.model).run(None, dict(feed))))
    except Exception:  # whatever the evaluator raises over a node that it lacks
        return None


def why_inexact(
    found: Sequence[np.ndarray], default: Sequence[np.ndarray], exact: Sequence[np.ndarray]
) -> str:
    """Why a plan errs more than allowed, compared with the default; empty if it does not."""
    mine, theirs = error_of(found, exact), error_of(default, exact)
    if mine <= max(MOST_ERROR * theirs, ROUNDING):
        return ""
    times = f"{mine / theirs:.1f} times as much as ONNX Runtime" if theirs else "where ONNX Runtime does not"
    return f"it errs {times} against float64, and at most {MOST_ERROR:g} times is allowed"


def in_float64(graph: ModelGraph, feed: Mapping[str, np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """The model's outputs over ``feed``, with weights and all steps in float64. Raises
    :class:`opatlas.errors.LoadError` if PyTorch cannot express the model (a Loop, say)."""
    wide = ModelGraph(_widened(graph.model).SerializeToString())
    arrays = [_wide(feed[name]) for name in wide.input_names]
    return open_region("pytorch", ModelPart.whole(wide), threads).run(arrays)


def error_of(found: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> float:
    """The largest difference as a share of the largest value; infinite if shapes differ or it is NaN."""
    return max(_error(one, other) for one, other in zip(found, exact, strict=True))


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    if found.shape != exact.shape or not np.isfinite(found).all():
        return math.inf
    largest = float(np.max(np.abs(exact), initial=0)) or 1.0
    return float(np.max(np.abs(found.astype(np.float64) - exact), initial=0)) / largest


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with every float32 as float64: weights, constants in nodes, inputs and outputs, casts."""
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
