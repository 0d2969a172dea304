"""Seeded random weights instead of generated constants.

The weights of the sample graphs in ONNX's wheel are all 0.02. With those several of them give the same output
for any input, so every wrong plan would look right. Random weights scaled by fan-in (He et al. 2015) keep
activations in a sane range, so that errors show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.graph.read import reads_of

MOVERS = frozenset({"Unsqueeze", "Squeeze", "Reshape", "Transpose", "Identity", "Cast", "Flatten", "Expand"})
"""A weight's role is its consumer's, seen through these operators."""

_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
)


@dataclass(frozen=True)
class Draw:
    """How to draw a weight: normal around ``centre``, or uniform in centre ± spread where ``positive``."""

    centre: float
    spread: float
    positive: bool = False


def randomise_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """A copy of the model whose weights are random, the same for the same seed.

    Replaced are floating-point initializers and ConstantOfShape outputs that a layer uses as weight, bias,
    scale, mean, variance or embedding, those of branches and loops with them. Everything else (exponents,
    epsilons, shapes) stays.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _randomise(result.graph, np.random.default_rng(seed))
    result.ir_version = max(result.ir_version, 4)  # before 4 every initializer had to be a graph input too
    return result


def _randomise(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """A graph's own weights, whoever reads them, then those of its bodies."""
    users = _users(graph)
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    generated = _generated(graph, shapes)
    drawn: dict[str, onnx.TensorProto] = {}
    for tensor in graph.initializer:
        if tensor.data_type in _FLOATS and (draw := _role(tensor.name, list(tensor.dims), users)):
            drawn[tensor.name] = _tensor(random, tensor.name, list(tensor.dims), tensor.data_type, draw)
    for name, (dims, data_type) in generated.items():
        if data_type in _FLOATS and (draw := _role(name, dims, users)):
            drawn[name] = _tensor(random, name, dims, data_type, draw)
    _replace(graph, drawn)
    for body in _bodies(graph):
        _randomise(body, random)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def _users(graph: onnx.GraphProto) -> dict[str, list[tuple[onnx.NodeProto, int]]]:
    """By name, those in bodies last: a graph's names are unique, in its bodies too."""
    users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            users.setdefault(name, []).append((node, index))
    for body in _bodies(graph):
        for name, inner in _users(body).items():
            users.setdefault(name, []).extend(inner)
    return users


def _generated(
    graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto]
) -> dict[str, tuple[list[int], int]]:
    """Outputs of ConstantOfShape nodes with a known shape → (shape, element type)."""
    found = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in constants:
            dims = [int(size) for size in numpy_helper.to_array(constants[node.input[0]])]
            value = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
            found[node.output[0]] = (dims, value.data_type if value is not None else onnx.TensorProto.FLOAT)
    return found


def _role(name: str, dims: list[int], users: dict[str, list[tuple[onnx.NodeProto, int]]]) -> Draw | None:
    """How to draw it: decided by the first consumer that tells the tensor's role."""
    for node, index in users.get(name, []):
        if node.op_type in MOVERS and index == 0:
            draw = _role(node.output[0], dims, users)
        else:
            draw = _draw(node, index, dims)
        if draw is not None:
            return draw
    return None


def _draw(node: onnx.NodeProto, index: int, dims: list[int]) -> Draw | None:
    size = math.prod(dims)
    if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        if index == 1 and len(dims) > 1:
            return Draw(0.0, math.sqrt(2.0 / max(_fan_in(node, dims), 1)))
        return Draw(0.0, 0.02) if index == 2 else None
    if node.op_type in (
        "BatchNormalization",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
    ):
        # Below 1, so that sixteen residual sums do not blow activations up.
        return (
            (Draw(0.65, 0.1), Draw(0.0, 0.02), Draw(0.0, 0.02), Draw(1.0, 0.5, positive=True))[index - 1]
            if index
            else None
        )
    if node.op_type == "Gather" and index == 0 and len(dims) == 2:
        return Draw(0.0, 1.0)
    if node.op_type == "Mul" and size > 1:
        return Draw(1.5, 0.2)  # follows a batch norm where it occurs: undoes its factor
    if node.op_type == "Add" and size > 1:
        return Draw(0.0, 0.02)
    return None


def _fan_in(node: onnx.NodeProto, dims: list[int]) -> int:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Conv":
        return math.prod(dims[1:])
    if node.op_type == "ConvTranspose":
        return dims[0] * math.prod(dims[2:]) // max(attributes.get("group", 1), 1)
    if node.op_type == "Gemm" and attributes.get("transB", 0):
        return dims[1]
    return dims[-2]


def _tensor(
    random: np.random.Generator, name: str, dims: list[int], data_type: int, draw: Draw
) -> onnx.TensorProto:
    if draw.positive:
        array: np.ndarray = random.uniform(draw.centre - draw.spread, draw.centre + draw.spread, dims)
    else:
        array = random.standard_normal(dims, dtype=np.float32) * draw.spread + draw.centre
    return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(data_type)), name)


def _replace(graph: onnx.GraphProto, drawn: dict[str, onnx.TensorProto]) -> None:
    """Put the drawn tensors in, and drop what made them before and is read by nothing else."""
    nodes = [
        node for node in graph.node if not (node.op_type == "ConstantOfShape" and node.output[0] in drawn)
    ]
    read = {one.name for one in graph.output}.union(*map(reads_of, nodes))
    before = {tensor.name for tensor in graph.initializer}
    kept = [tensor for tensor in graph.initializer if tensor.name not in drawn and tensor.name in read]
    inputs = [value for value in graph.input if value.name not in before]
    # Copies first: clearing a repeated field frees what it held.
    nodes, kept, inputs = ([_copy(item) for item in items] for items in (nodes, kept, inputs))
    for field, items in (
        (graph.node, nodes),
        (graph.initializer, [*kept, *drawn.values()]),
        (graph.input, inputs),
    ):
        del field[:]
        field.extend(items)


def _copy(item: Any) -> Any:
    copy = type(item)()
    copy.CopyFrom(item)
    return copy
