"""Loops whose end depends on data: who computes that otherwise may never end. PURE."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import numpy_helper

from opatlas.graph.normal import ModelGraph
from opatlas.graph.read import graphs_of

MOST_TURNS = 1 << 20
"""A loop of at most so many ends, whatever its condition comes to; exporters write 2^63 - 1 for none."""


def unbounded_loop(graph: ModelGraph) -> str:
    """What people call a loop of the model, in bodies too, that only its own condition ends; "" where there
    is none."""
    counts = {
        name: int(array)
        for name, array in graph.walk.values.items()
        if array.size == 1 and array.dtype.kind in "iu"
    }
    graphs = [one for one, _ in graphs_of(graph.model.graph)]
    for one in graphs:
        counts |= dict(_numbers(one))
    for node in (node for one in graphs for node in one.node if node.op_type == "Loop"):
        turns = counts.get(node.input[0], MOST_TURNS + 1) if node.input and node.input[0] else MOST_TURNS + 1
        if turns > MOST_TURNS and not _goes_on_as_given(node):
            return node.name or node.output[0]
    return ""


def _numbers(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """Constants of one whole number, by name."""
    tensors = [(one.name, one) for one in graph.initializer]
    tensors += [
        (node.output[0], attribute.t)
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    for name, tensor in tensors:
        if tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) and list(tensor.dims) in (
            [],
            [1],
        ):
            yield name, int(numpy_helper.to_array(tensor).item())


def _goes_on_as_given(node: onnx.NodeProto) -> bool:
    """Whether the body hands its condition on, so that only the number of turns ends the loop."""
    body = next(one.g for one in node.attribute if one.name == "body")
    same = {one.output[0]: one.input[0] for one in body.node if one.op_type == "Identity"}
    true = {one.output[0] for one in body.node if one.op_type == "Constant"}
    true |= {one.name for one in body.initializer}
    name = body.output[0].name
    while name in same:
        name = same[name]
    return name == body.input[1].name or name in true
