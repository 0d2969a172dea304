"""Operators of many kinds and awkward shapes, and how to run what a route made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from opatlas.identity import Operator, Setting, detect_target, parse_operator
from opatlas.identity.operator import Value
from opatlas.load import load
from opatlas.load.buffers import empty
from tuning.routes.base import Budget, BuiltArtifact
from tuning.routes.compiler.tvm import TvmRoute

ROUTE = TvmRoute()
TARGET = detect_target()


def one(op: str, *inputs: Any, **attrs: Any) -> Operator:
    """One node. An input is a shape (float32), or a dictionary as :func:`parse_operator` takes it."""
    documents = [
        {"shape": list(value), "dtype": "float32"} if isinstance(value, tuple) else value for value in inputs
    ]
    return parse_operator({"op": op, "attrs": attrs, "inputs": documents})


def const(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, "const": True}


def data(*values: int) -> dict[str, Any]:
    return {"shape": [len(values)], "dtype": "int64", "const": True, "data": list(values)}


def typed(dtype: str, *shape: int) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype}


def lying(shape: tuple[int, ...], *strides: int, dtype: str = "float32", **more: str) -> dict[str, Any]:
    """An input that is not dense and row-major."""
    return {"shape": list(shape), "strides": list(strides), "dtype": dtype, **more}


def random_inputs(operator: Operator, seed: int = 7, offset_bytes: int = 0) -> dict[int, np.ndarray]:
    """Values for every tensor input; floats around zero (variances positive), indices within 0 … 9."""
    random = np.random.default_rng(seed)
    made = {}
    for number in operator.tensor_inputs:
        value = operator.inputs[number]
        if value.dtype == "bool":
            array = random.random(value.shape) < 0.5
        elif value.dtype.startswith(("int", "uint")):
            array = random.integers(0, 10, value.shape)
        else:
            array = random.standard_normal(value.shape)
        if operator.op_types[0] == "BatchNormalization" and number == 4:
            array = np.abs(array) + 0.1
        array = np.asarray(array).astype(value.dtype)
        made[number] = _laid(array, value) if value.strides else _placed(array, offset_bytes)
    return made


def _laid(array: np.ndarray, value: Value) -> np.ndarray:
    """A copy with the value's strides."""
    laid = empty(value, 64)
    laid[...] = array
    return laid


def _placed(array: np.ndarray, offset_bytes: int) -> np.ndarray:
    """A copy that starts ``offset_bytes`` after a multiple of 64."""
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset_bytes
    placed = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def reference(operator: Operator, inputs: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The operator's outputs in float64 by PyTorch."""
    import torch

    from opatlas.load.torch.graph import run_graph

    wide = {
        number: torch.from_numpy(np.array(array)).double()
        if array.dtype.kind == "f"
        else torch.from_numpy(np.array(array))
        for number, array in inputs.items()
    }
    return [output.numpy() for output in run_graph(operator, wide)]


def run(artifact: BuiltArtifact, operator: Operator, inputs: dict[int, np.ndarray]) -> list[np.ndarray]:
    """Load and run once."""
    kernel = load(artifact.manifest, artifact.folder)
    try:
        kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
        bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
        bound.poison()
        bound()
        return [np.array(output) for output in bound.outputs()]
    finally:
        kernel.close()


def first_candidates(operator: Operator, setting: Setting) -> list[Any]:
    return list(ROUTE.candidates(operator, TARGET, setting, Budget(seconds=5)))
