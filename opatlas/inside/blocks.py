"""Convolution kernels that read and write ONNX Runtime's blocks of channels.

ONNX Runtime's optimised graph is a model. Its convolutions are nodes of ``com.microsoft.nchwc``, with weights
in blocks and with the sum or activation that followed them. A kernel replaces such a node there, so no value
is converted. What the kernel does not compute follows it as element-wise nodes, which work in any layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from opatlas.errors import LoadError
from opatlas.graph.linked import LEFT_OUT, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.inside.handed import DOMAIN, VERSION
from opatlas.inside.nodes import KernelNode, name_of
from opatlas.load.onnxruntime_recipe import quiet_options

NCHWC = "com.microsoft.nchwc"
SIZES = (8, 16)
_ACTIVATIONS = {"": "", "Relu": "Relu"}
"""Of ONNX Runtime's node: what comes after a kernel that does not compute it."""
_WINDOWS = {"kernel_shape": None, "strides": None, "pads": None, "dilations": None, "auto_pad": b"NOTSET"}
"""A convolution's attributes, and what is meant where one is not there."""


@functools.cache
def block_size() -> int:
    """Channels in a block on this processor; 0 if ONNX Runtime has no blocks."""
    channels = 2 * max(SIZES)
    ends = [helper.make_tensor_value_info(name, 1, [1, channels, 1, 2]) for name in "xy"]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC)
    graph = helper.make_graph([node], "blocks", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(NCHWC, 1)])
    model.ir_version = 8
    x = np.arange(2 * channels, dtype=np.float32).reshape(1, channels, 1, 2)
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), quiet_options(1), providers=["CPUExecutionProvider"]
        )
        [made] = session.run(None, {"x": x})
    except Exception:  # a processor without: ONNX Runtime's exceptions have no base class of their own
        return 0
    as_blocks = {size: np.stack(np.split(x[0, :, 0], channels // size)).transpose(0, 2, 1) for size in SIZES}
    return next((size for size, one in as_blocks.items() if (one.reshape(-1) == made.reshape(-1)).all()), 0)


class OptimisedModel:
    """ONNX Runtime's optimised graph of a model whose nodes are named by :mod:`opatlas.inside.nodes`.
    ``where``: the node of ``graph`` for a name there (:mod:`opatlas.plan.node_names`)."""

    def __init__(
        self, graph: ModelGraph, model: onnx.ModelProto, where: Callable[[str], NodePath | None]
    ) -> None:
        self._graph, self.model = graph, model
        self._weights = {one.name: one for one in model.graph.initializer}
        self._convs: dict[int, int] = {}
        for place, node in enumerate(model.graph.node):
            at = where(node.name) if (node.domain, node.op_type) == (NCHWC, "Conv") else None
            if at is not None and len(at) == 1:
                self._convs[at[0]] = place

    def replace(self, kernels: Sequence[KernelNode], block: int) -> None:
        """Put kernels in place of convolutions, each with the sum and the Relu after it if it computes them
        too. Raises :class:`opatlas.errors.LoadError` if :meth:`why_not` says that one cannot be there."""
        made: dict[int, list[onnx.NodeProto]] = {}
        gone = set[str]()
        for kernel in kernels:
            if why := self.why_not(kernel, block):
                raise LoadError(why)
            made[place := self._convs[kernel.nodes[0]]] = self._nodes(kernel, block)
            gone.add(self.model.graph.node[place].input[1])
        nodes = [
            one for place, node in enumerate(self.model.graph.node) for one in made.get(place, [_copy(node)])
        ]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        gone -= {name for node in nodes for name in node.input}
        weights = self.model.graph.initializer
        for at in reversed([at for at, one in enumerate(weights) if one.name in gone]):
            del weights[at]
        if all(one.domain != DOMAIN for one in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))

    def why_not(self, kernel: KernelNode, block: int) -> str:
        """Why a kernel cannot replace its node, as a sentence without its end; "" if it can."""
        conv = self._graph.nodes[kernel.nodes[0]]
        if kernel.nodes[0] not in self._convs:
            return "ONNX Runtime does not compute it in blocks of channels"
        node = self.model.graph.node[self._convs[kernel.nodes[0]]]
        said, own = _attributes(node), _attributes(conv.proto)
        activation = said.get("activation", b"").decode()
        kinds = [self._graph.type_of(number) for number in (conv.inputs[0], conv.outputs[0])]
        channels = [kind.shape[1] for kind in kinds if kind is not None and len(kind.shape) == 4]
        if said.get("group", 1) != 1 or len(channels) < 2 or any(one % block for one in channels):
            return f"its channels do not come out even in blocks of {block}"
        if any(said.get(name, usual) != own.get(name, usual) for name, usual in _WINDOWS.items()):
            return "ONNX Runtime computes it over other windows"
        if activation not in _ACTIVATIONS:
            return f"ONNX Runtime computes {activation} with it"
        types = [self._graph.nodes[number].proto.op_type for number in kernel.nodes[1:]]
        there = ["Add"] * (len(node.input) > 3) + ["Relu"] * (activation == "Relu")
        if types and types != there[: len(types)]:
            return "ONNX Runtime computes something else with it"
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if has_bias != (len(conv.inputs) > 2 and conv.inputs[2] != LEFT_OUT):
            return "ONNX Runtime has put something else into its bias"
        weights = self._weights.get(node.input[1])
        wanted = self._graph.type_of(conv.inputs[1])
        if weights is None or wanted is None or tuple(weights.dims) != wanted.shape:
            return "its weights are no constant of their own shape"
        return ""

    def _nodes(self, kernel: KernelNode, block: int) -> list[onnx.NodeProto]:
        node = self.model.graph.node[self._convs[kernel.nodes[0]]]
        conv, number = self._graph.nodes[kernel.nodes[0]], kernel.nodes[-1]
        own = f"{DOMAIN}/{name_of(number)}"
        weights = f"{own}weights"
        self.model.graph.initializer.append(
            numpy_helper.from_array(_unblocked(self._weights[node.input[1]], block), weights)
        )
        names = dict(zip(conv.inputs, [node.input[0], weights, *node.input[2:3]], strict=False))
        after = [("Add", [node.input[3]])] if len(node.input) > 3 else []
        if activation := _ACTIVATIONS[_attributes(node).get("activation", b"").decode()]:
            after.append((activation, []))
        if len(node.input) > 3 and len(kernel.nodes) > 1:  # what is added, and what the convolution makes
            names |= dict.fromkeys(self._graph.nodes[kernel.nodes[1]].reads - names.keys(), node.input[3])
        after = after[len(kernel.nodes) - 1 :]
        steps = [f"{own}{at}" for at in range(len(after))] + [node.output[0]]
        read, name = [names[one] for one in kernel.tensors], name_of(number)
        made = [helper.make_node(kernel.name, read, steps[:1], domain=DOMAIN, name=name)]
        for at, (op_type, others) in enumerate(after):
            ends = [steps[at], *others], [steps[at + 1]]
            made.append(helper.make_node(op_type, *ends, name=f"{name_of(kernel.nodes[0])}{op_type}"))
        kind = self._graph.type_of(conv.outputs[0])
        assert kind is not None
        known = {one.name for one in self.model.graph.value_info}
        self.model.graph.value_info.extend(
            helper.make_value_info(name, kind.to_proto()) for name in steps if name not in known
        )
        return made


def _unblocked(weights: onnx.TensorProto, block: int) -> np.ndarray:
    """Weights from ONNX Runtime's [O / b][I / b][H][W][b of I][b of O] to [O][I][H][W]."""
    o, i, h, w = weights.dims
    lying = numpy_helper.to_array(weights).reshape(o // block, i // block, h, w, block, block)
    return np.ascontiguousarray(lying.transpose(0, 5, 1, 4, 2, 3).reshape(o, i, h, w))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def _copy(proto: Any) -> Any:
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy
