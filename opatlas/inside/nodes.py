"""A model with kernels in place of some nodes, as operators of our domain. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.errors import LoadError
from opatlas.graph.laid_model import BODIES
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.read import nodes_inside
from opatlas.inside.handed import DOMAIN, VERSION


@dataclass(frozen=True)
class KernelNode:
    """A kernel for some nodes of a graph (a model's or a body's), in order. The last node makes all of its
    outputs. ``name``: its operator's name in the model."""

    nodes: tuple[int, ...]
    name: str
    tensors: tuple[int, ...]
    outputs: tuple[int, ...]


Body = tuple[int, int]
"""A node's number, and which of its bodies."""


@dataclass(frozen=True)
class KernelNodes:
    """The kernels of one graph, and those of its bodies."""

    own: tuple[KernelNode, ...]
    bodies: Mapping[Body, KernelNodes]

    @property
    def is_empty(self) -> bool:
        return not self.own and all(one.is_empty for one in self.bodies.values())


def model_with(graph: ModelGraph, nodes: Collection[int], kernels: KernelNodes) -> onnx.ModelProto:
    """The model of these ``nodes`` of the graph (those that its outputs need) with these kernels. Inputs and
    outputs keep their names; nodes are named by their numbers. Raises :class:`opatlas.errors.LoadError` if it
    cannot be made."""
    if names_domain(graph.model):
        raise LoadError(f"the model itself has nodes of the domain {DOMAIN}, which is for kernels")
    order = sorted(nodes)
    read = frozenset(graph.constants_of(order)) | {one for one in graph.outputs if graph.is_constant(one)}
    values = graph.evaluate(read)
    model, _ = graph.part(order, (), values)
    weights = {tensor.name for tensor in model.graph.initializer}
    model.graph.initializer.extend(
        _tensor(values[number], graph.names[number])
        for number in sorted(read)
        if graph.names[number] not in weights
    )
    del model.graph.input[:]
    model.graph.input.extend(graph.described(number) for number in graph.inputs)
    for name, number in zip(graph.output_names, graph.outputs, strict=True):
        described = onnx.ValueInfoProto()
        described.CopyFrom(graph.described(number, optional=True))
        described.name = name
        model.graph.output.append(described)
    protos = dict(zip(order, model.graph.node, strict=True))
    made = _replaced(graph, protos, kernels, model.graph)
    for name, number in zip(graph.output_names, graph.outputs, strict=True):
        if name != graph.names[number]:  # of a branch that is always taken, or given twice
            made.append(helper.make_node("Identity", [graph.names[number]], [name]))
    del model.graph.node[:]
    model.graph.node.extend(made)
    if not kernels.is_empty:
        model.opset_import.append(helper.make_opsetid(DOMAIN, VERSION))
    return model


def names_domain(model: onnx.ModelProto) -> bool:
    """Whether a model that somebody gives has anything of our domain in it."""
    nodes = [*model.graph.node, *(node for own in model.functions for node in own.node)]
    inner = (one for node in nodes for one in nodes_inside(node))
    return any(one.domain == DOMAIN for one in (*model.opset_import, *model.functions, *nodes, *inner))


def _replaced(
    graph: ModelGraph, protos: Mapping[int, onnx.NodeProto], kernels: KernelNodes, into: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """The nodes, with kernels in place of some. The kernels' outputs are described in ``into``."""
    within = {number for one in kernels.own for number in one.nodes}
    own = {one.nodes[-1]: one for one in kernels.own}
    described = {one.name for one in (*into.value_info, *into.output)}
    found = []
    for number, proto in protos.items():
        if (kernel := own.get(number)) is not None:
            found.append(_node(graph, kernel))
            for value in kernel.outputs:
                if graph.names[value] not in described:
                    into.value_info.append(graph.described(value))
        elif number not in within:
            copy = onnx.NodeProto()
            copy.CopyFrom(proto)
            _replace_in_bodies(graph.nodes[number], number, copy, kernels)
            found.append(copy)
        else:
            continue
        found[-1].name = name_of(number)
    return found


def name_of(number: int) -> str:
    """A node's name. ONNX Runtime appends what it fuses with it after the point."""
    return f"node{number}."


def _node(graph: ModelGraph, kernel: KernelNode) -> onnx.NodeProto:
    read = [graph.names[one] for one in kernel.tensors]
    made = [graph.names[one] for one in kernel.outputs]
    return helper.make_node(kernel.name, read, made, domain=DOMAIN)


def _replace_in_bodies(node: GraphNode, number: int, proto: onnx.NodeProto, kernels: KernelNodes) -> None:
    given = sorted(
        (one for one in proto.attribute if one.name in BODIES), key=lambda one: BODIES.index(one.name)
    )
    for which, body in enumerate(node.bodies):
        inner = kernels.bodies.get((number, which))
        if inner is None or inner.is_empty:
            continue
        _replace_in_body(body.graph, given[which].g, inner)


def _replace_in_body(graph: ModelGraph, given: onnx.GraphProto, kernels: KernelNodes) -> None:
    """Weights of kernels are put into the body: ONNX Runtime does not treat outer values as constants
    there."""
    places = {proto.output[0]: at for at, proto in enumerate(given.node) if proto.output}
    at = {number: places.get(node.proto.output[0], LEFT_OUT) for number, node in enumerate(graph.nodes)}
    wanted = {number for one in kernels.own for number in one.nodes} | {
        number for number, _ in kernels.bodies
    }
    if any(at[number] == LEFT_OUT for number in wanted):
        raise LoadError("a body of the model has other nodes than its file says")
    number_at = {place: number for number, place in at.items() if place != LEFT_OUT}
    own = {one.nodes[-1]: one for one in kernels.own}
    within = {number for one in kernels.own for number in one.nodes}
    made = []
    for place, proto in enumerate(given.node):
        number = number_at.get(place, LEFT_OUT)
        if (kernel := own.get(number)) is not None:
            node = _node(graph, kernel)
            for index, value in enumerate(kernel.tensors):
                if graph.is_constant(value):
                    node.input[index] = f"{node.input[index]}/kernel{number}.{index}"
                    [array] = graph.evaluate([value]).values()
                    given.initializer.append(_tensor(array, node.input[index]))
            made.append(node)
        elif number not in within:
            copy = onnx.NodeProto()
            copy.CopyFrom(proto)
            if number != LEFT_OUT:
                _replace_in_bodies(graph.nodes[number], number, copy, kernels)
            made.append(copy)
    del given.node[:]
    given.node.extend(made)


def _tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, order="C"), name)
