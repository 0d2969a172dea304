"""Small ONNX models, sound and hostile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any] | None],
    outputs: Sequence[str],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 21,
    element: int = TensorProto.FLOAT,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model from nodes; ``inputs`` maps names to shapes, whose dimensions may be names."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid("own", 1)] * bool(functions)
    return helper.make_model(graph, opset_imports=imports, functions=functions)


def relu(shape: Sequence[Any] = (2, 3)) -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="act")], {"x": shape}, ["y"])


def nested(depth: int) -> onnx.GraphProto:
    """A graph of Ifs within Ifs."""
    node = helper.make_node("Identity", ["x"], ["inner"])
    graph = helper.make_graph([node], "leaf", [], [helper.make_empty_tensor_value_info("inner")])
    for level in range(depth):
        node = helper.make_node("If", ["c"], [f"l{level}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "level", [], [helper.make_empty_tensor_value_info(f"l{level}")])
    return graph
