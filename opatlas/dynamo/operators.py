"""Nodes of an aten graph as operators of the catalogue."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import numpy_helper
from torch import fx
from torch._ops import OpOverload

from opatlas.errors import InvalidOperator
from opatlas.graph.aten import CallRecord, CannotMap, TensorArgument, map_aten
from opatlas.identity import Operator, canonicalise, check_measurable


@dataclass(frozen=True)
class NodeOperator:
    """A node's operator. ``tensors``: the node that each of its tensor inputs is, by the input's number;
    ``numbers``: those that the call itself says (the 2 of ``x * 2``). ``outputs``: for each tensor that the
    node makes, the operator's output that it is (as far as it has one)."""

    operator: Operator
    tensors: Mapping[int, fx.Node]
    numbers: Mapping[int, np.ndarray]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class _ReadCall:
    """The same by positions in the record, so that equal calls are read once."""

    operator: Operator
    positions: Mapping[int, int]
    numbers: Mapping[int, np.ndarray]
    outputs: tuple[int, ...]


def made_by(node: fx.Node) -> list[Any]:
    """Fake tensors that a node makes, in order."""
    value = node.meta.get("val")
    return list(value) if isinstance(value, tuple | list) else [value]


def weights_of(graph: fx.Graph, inputs: Collection[int]) -> dict[fx.Node, int]:
    """The graph's inputs of these numbers, and what is nothing but a view of one of them; each with the
    number."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    found = {placeholders[number]: number for number in inputs}
    for node in graph.nodes:
        read = node.all_input_nodes
        if node.op == "call_function" and is_view(node) and len(read) == 1 and read[0] in found:
            found[node] = found[read[0]]
    return found


def is_view(node: fx.Node) -> bool:
    """Whether what the node makes lies in the memory of its inputs."""
    target = node.target
    return isinstance(target, OpOverload) and any(one.alias_info for one in target._schema.returns)


def read_node(node: fx.Node, weights: Collection[fx.Node]) -> NodeOperator | str:
    """The operator of a node that computes, or why it has none. ``weights`` become its constants."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return f"{target} is no operator of PyTorch's own"
    name = str(target).removeprefix("aten.").removesuffix(".default")
    if target._schema.is_mutable or is_view(node):
        return "views and writes in place"
    for value in made_by(node):
        if not isinstance(value, torch.Tensor):
            return f"{name}: makes something else than tensors"
        if not value.is_contiguous():
            return f"{name}: its result is not row-major and dense"
    try:
        inputs, nodes, attrs = _arguments(node, target, weights)
        listed = tuple(sorted(attrs.items()))
        read = _read(str(target), inputs, listed, repr(listed))
    except CannotMap as error:
        return str(error)
    if isinstance(read, str):
        return read
    if not _fits(read, made_by(node), node):
        return f"{name}: has other results in ONNX"
    tensors = {number: nodes[at] for number, at in read.positions.items()}
    return NodeOperator(read.operator, tensors, read.numbers, read.outputs)


def _arguments(
    node: fx.Node, target: OpOverload, weights: Collection[fx.Node]
) -> tuple[tuple[TensorArgument, ...], list[fx.Node], dict[str, Any]]:
    inputs: list[TensorArgument] = []
    nodes: list[fx.Node] = []
    attrs: dict[str, Any] = {}
    named = dict(zip((one.name for one in target._schema.arguments), node.args, strict=False))
    for name, value in {**named, **node.kwargs}.items():
        listed: Sequence[Any] = value if isinstance(value, list | tuple) else ()
        several = any(isinstance(one, fx.Node) for one in listed)
        for place, one in enumerate(listed if several else [value]):
            if isinstance(one, fx.Node):
                inputs.append(_tensor(one, f"{name}[{place}]" if several else name, one in weights))
                nodes.append(one)
            elif several and one is not None:
                raise CannotMap(f"a list of tensors and {type(one).__name__}")
        if not several and value is not None and not isinstance(value, fx.Node):
            attrs[name] = _plain(value)
    return tuple(inputs), nodes, attrs


def _tensor(node: fx.Node, name: str, const: bool) -> TensorArgument:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        raise CannotMap("an argument that is no dense tensor")
    if value.is_conj() or value.is_neg():
        raise CannotMap("a conjugated or negated view")
    strides = None if value.is_contiguous() else tuple(value.stride())
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorArgument(dtype, tuple(value.shape), strides, const, name)


def _plain(value: Any) -> Any:
    """As an operator list has it, and hashable."""
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value if isinstance(value, bool | int | float | str) else str(value)


@functools.lru_cache(maxsize=4096)
def _read(
    op: str, inputs: tuple[TensorArgument, ...], attrs: tuple[tuple[str, Any], ...], _said: str
) -> _ReadCall | str:
    """``_said``: the attributes as text, in which 1, 1.0 and True differ."""
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in attrs}
    try:
        mapped = map_aten(CallRecord(op, inputs, listed))
        canonical = canonicalise(mapped.model, mapped.constants, mapped.strides)
        check_measurable(canonical.operator)
    except (CannotMap, InvalidOperator) as error:
        return str(error)
    position = {id(one): at for at, one in enumerate(inputs)}
    known = {one.name: one for one in mapped.model.graph.initializer}
    positions, numbers = {}, {}
    for number in canonical.operator.tensor_inputs:
        name = canonical.inputs[number] or ""
        if name in mapped.feeds:
            positions[number] = position[id(mapped.feeds[name])]
        elif name in known:
            numbers[number] = numpy_helper.to_array(known[name])
        else:
            return f"{op}: an input that is none of the call's"
    names = [one.name for one in mapped.model.graph.output]
    outputs = tuple(canonical.outputs.index(name) for name in names)
    return _ReadCall(canonical.operator, positions, numbers, outputs)


def _fits(read: _ReadCall, made: Sequence[torch.Tensor], node: fx.Node) -> bool:
    """Whether all that somebody reads of the node is what the operator makes."""
    values = [read.operator.output_values[number] for number in read.outputs]
    used = range(len(made)) if not isinstance(node.meta["val"], tuple | list) else _used(node)
    return all(
        at < len(values)
        and values[at].dtype == str(made[at].dtype).removeprefix("torch.")
        and values[at].shape == tuple(made[at].shape)
        and values[at].strides is None
        for at in used
    )


def _used(node: fx.Node) -> list[int]:
    """Numbers of its results that are read; all, where they are read together."""
    if all(user.op == "call_function" and user.target.__name__ == "getitem" for user in node.users):  # type: ignore[union-attr]
        return [int(user.args[1]) for user in node.users]  # type: ignore[arg-type]
    return list(range(len(node.meta["val"])))


def in_place_of(node: fx.Node, tensors: Mapping[fx.Node, Any]) -> Any:
    """What PyTorch's own call makes of these tensors."""
    args = fx.node.map_arg(node.args, lambda one: tensors[one])
    kwargs = fx.node.map_arg(node.kwargs, lambda one: tensors[one])
    return node.target(*args, **kwargs)  # type: ignore[operator]
