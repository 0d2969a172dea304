"""Operators for tests: one ONNX node made canonical, with inputs, and ONNX's own answer to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opatlas.identity import OPSET, Operator, Setting, canonicalise
from opatlas.load import LoadedKernel, Manifest, load


@dataclass(frozen=True)
class Case:
    """A node's type, attributes and inputs. ``fixed`` names input positions that are initializers (they shape
    the computation, or are weights); an input that is None is left out."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    fixed: Sequence[int] = ()
    outputs: int = 1
    strides: Mapping[int, Sequence[int]] = field(default_factory=dict)
    opset: int = OPSET

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, x.shape)) or "s" for x in self.inputs if x is not None)
        attrs = ",".join(f"{name}={value}" for name, value in self.attrs.items())
        return f"{self.op}({shapes})[{attrs}]"[:90]


def model_of(case: Case) -> onnx.ModelProto:
    """The case as a model of one node."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(case.inputs)]
    outputs = [f"y{index}" for index in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **case.attrs)
    graph_inputs, initializers = [], []
    for index, array in enumerate(case.inputs):
        if array is None:
            continue
        if index in case.fixed:
            initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), names[index]))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph_inputs.append(helper.make_tensor_value_info(names[index], kind, array.shape))
    made = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    for value in made:
        value.ClearField("type")
    graph = helper.make_graph([node], "case", graph_inputs, made, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def operator_of(case: Case) -> tuple[Operator, dict[int, np.ndarray]]:
    """The case's canonical operator and its tensor inputs by canonical number, each laid out as stated."""
    strides = {f"x{index}": steps for index, steps in case.strides.items()}
    canonical = canonicalise(model_of(case), strides=strides)
    inputs = {}
    for number in canonical.operator.tensor_inputs:
        name = canonical.inputs[number]
        assert name is not None
        index = int(name[1:])
        array = case.inputs[index]
        assert array is not None
        inputs[number] = laid_out(array, case.strides.get(index))
    return canonical.operator, inputs


def laid_out(array: np.ndarray, strides: Sequence[int] | None) -> np.ndarray:
    """A copy of the array with these strides (in elements)."""
    if strides is None:
        return np.asarray(array, order="C")
    order = sorted(range(array.ndim), key=lambda axis: -strides[axis])
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def expected(case: Case) -> list[np.ndarray]:
    """ONNX's own answer (its reference evaluator)."""
    from onnx.reference import ReferenceEvaluator

    feeds = {
        f"x{index}": array
        for index, array in enumerate(case.inputs)
        if array is not None and index not in case.fixed
    }
    return [np.asarray(made) for made in ReferenceEvaluator(model_of(case)).run(None, feeds)]


def expected_by_ort(case: Case) -> list[np.ndarray]:
    """ONNX Runtime's answer, for what the reference evaluator gets wrong or is slow at."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = {
        f"x{index}": array
        for index, array in enumerate(case.inputs)
        if array is not None and index not in case.fixed
    }
    session = ort.InferenceSession(
        model_of(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(made) for made in session.run(None, feeds)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    return np.abs(normal(*shape, seed=seed)) + np.float32(0.1)


def integers(*shape: int, low: int = -5, high: int = 6, seed: int = 0, dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype=dtype)


def recipe_kernel(operator: Operator, route: str, recipe: dict[str, Any], threads: int = 1) -> LoadedKernel:
    """The operator as a library computes it by this recipe."""
    manifest = Manifest(
        kind="recipe",
        route=route,
        operator=operator.to_json(),
        setting=Setting(threads=threads).to_json(),
        recipe=recipe,
    )
    return load(manifest, Path())
