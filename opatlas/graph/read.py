"""ONNX bytes to a checked, flat model: what is hostile or broken is refused here, with one sentence.

Everything after this may trust that names are unique, that every value read is made somewhere, that nodes
stand in an order in which they can run, and that no tensor claims more than it carries.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from opatlas.errors import InvalidModel
from opatlas.graph.weights import MOST_SERIALISED, is_external, read_external, weight_bytes

MAX_MODEL_BYTES = (2 << 30) - 1
"""Protobuf's own limit. What comes over REST is limited far below it."""

MAX_NODES = 100_000
"""Of the whole model, subgraphs and inlined functions counted."""

MAX_SUBGRAPH_DEPTH = 8
MAX_RANK = 32

_ITEM_BITS: dict[int, int] = {
    onnx.TensorProto.FLOAT: 32, onnx.TensorProto.UINT8: 8, onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT16: 16, onnx.TensorProto.INT16: 16, onnx.TensorProto.INT32: 32,
    onnx.TensorProto.INT64: 64, onnx.TensorProto.BOOL: 8, onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.DOUBLE: 64, onnx.TensorProto.UINT32: 32, onnx.TensorProto.UINT64: 64,
    onnx.TensorProto.COMPLEX64: 64, onnx.TensorProto.COMPLEX128: 128, onnx.TensorProto.BFLOAT16: 16,
    onnx.TensorProto.FLOAT8E4M3FN: 8, onnx.TensorProto.FLOAT8E4M3FNUZ: 8, onnx.TensorProto.FLOAT8E5M2: 8,
    onnx.TensorProto.FLOAT8E5M2FNUZ: 8, onnx.TensorProto.UINT4: 4, onnx.TensorProto.INT4: 4,
}  # fmt: skip


def read_onnx(
    data: bytes,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
    max_nodes: int = MAX_NODES,
    folder: Path | None = None,
    links: Sequence[Path] = (),
) -> onnx.ModelProto:
    """Parse and check a model: functions inlined, nodes in an order that can run, all data in it.

    ``folder``: the model's own, where files with its weights may lie; without one it must be self-contained.
    ``links``: folders into which links there may lead.
    Raises :class:`InvalidModel` with one sentence for anything that cannot be read safely.
    """
    if len(data) > max_bytes:
        raise InvalidModel(f"The model has {len(data)} bytes; at most {max_bytes} are accepted.")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise InvalidModel(
            f"This is no complete ONNX file (truncated, or nested too deeply): {error}."
        ) from None
    if not model.HasField("graph") or not (model.graph.node and model.graph.output):
        raise InvalidModel("This is no complete ONNX file: it has no graph with nodes and outputs.")
    _check_text(model)
    _check_opset(model)
    tensors = list(_tensors(model))
    for tensor in tensors:
        _check_shape(tensor, folder)
    if folder is not None:
        read_external(tensors, folder, _stored_bytes, links)
    for tensor in tensors:
        _check_tensor(tensor)
    _check_subgraphs(model, max_nodes)
    model = _inlined(model, max_nodes)
    _check_names(model.graph)
    sort_nodes(model.graph)
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own opset that the model was written for."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)


def _check_text(model: onnx.ModelProto) -> None:
    """Protobuf hands out names that are not UTF-8 as bytes, which nothing behind this expects."""
    texts: list[object] = [entry.domain for entry in model.opset_import]
    nodes = [node for function in model.functions for node in function.node]
    texts += [
        text for function in model.functions for text in (function.name, function.domain, *function.input)
    ]
    texts += [text for function in model.functions for text in (*function.output, *function.attribute)]
    for graph, _ in _all_graphs(model):
        nodes += graph.node
        texts += [tensor.name for tensor in graph.initializer]
        for value in [*graph.input, *graph.output, *graph.value_info]:
            texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidModel("This is no sound ONNX file: it has a name that is not UTF-8.")


def _check_opset(model: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    version = opset_of(model)
    if not 1 <= version <= newest:
        raise InvalidModel(f"The model names ONNX opset {version}; 1 to {newest} are known.")
    domains = [entry.domain for entry in model.opset_import]
    if len(set(domains)) != len(domains):
        raise InvalidModel("The model imports the same opset domain twice.")


def graphs_of(graph: onnx.GraphProto, depth: int = 0) -> Iterator[tuple[onnx.GraphProto, int]]:
    """The graph and all graphs within its nodes, with their depth (itself 0)."""
    yield graph, depth
    yield from _graphs_of_nodes(graph.node, depth)


def _graphs_of_nodes(nodes: Iterable[onnx.NodeProto], depth: int) -> Iterator[tuple[onnx.GraphProto, int]]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g, depth + 1)
            for graph in attribute.graphs:
                yield from graphs_of(graph, depth + 1)


def nodes_inside(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """All nodes of a node's bodies, and of theirs."""
    return [one for graph, _ in _graphs_of_nodes([node], 0) for one in graph.node]


def _all_graphs(model: onnx.ModelProto) -> Iterator[tuple[onnx.GraphProto, int]]:
    yield from graphs_of(model.graph)
    for function in model.functions:
        yield from _graphs_of_nodes(function.node, 0)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor stored anywhere in the model."""
    nodes: list[onnx.NodeProto] = [node for function in model.functions for node in function.node]
    for graph, _ in _all_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        nodes.extend(graph.node)
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices


def _check_shape(tensor: onnx.TensorProto, folder: Path | None) -> None:
    name = tensor.name or "(unnamed)"
    if is_external(tensor) and folder is None:
        raise InvalidModel(
            f"Tensor '{name}' keeps its data in another file; send one file that holds all of its data."
        )
    if is_external(tensor) and tensor.data_type not in _ITEM_BITS:
        raise InvalidModel(f"Tensor '{name}' keeps data in another file that cannot lie there.")
    if len(tensor.dims) > MAX_RANK or any(dim < 0 for dim in tensor.dims):
        raise InvalidModel(f"Tensor '{name}' has the impossible shape {list(tensor.dims)[:MAX_RANK]}.")


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """What its shape needs."""
    return (math.prod(tensor.dims) * _ITEM_BITS[tensor.data_type] + 7) // 8


def _check_tensor(tensor: onnx.TensorProto) -> None:
    """Refuse claims that the stored bytes do not back."""
    name, count = tensor.name or "(unnamed)", math.prod(tensor.dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        stored, needed = len(tensor.string_data), count
    elif tensor.data_type not in _ITEM_BITS:
        if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
            raise InvalidModel(f"Tensor '{name}' has the unknown element type {tensor.data_type}.")
        return  # 2- and 4-bit floats and the like: nothing is ever read from them
    elif tensor.HasField("raw_data"):
        stored, needed = len(tensor.raw_data), _stored_bytes(tensor)
    else:
        stored, needed = _typed_items(tensor), _expected_items(tensor, count)
    if stored != needed:
        raise InvalidModel(
            f"Tensor '{name}' claims the shape {list(tensor.dims)}, which its stored data does not fill "
            f"(it holds {stored}, {needed} are needed)."
        )


def _typed_items(tensor: onnx.TensorProto) -> int:
    return max(
        len(field)
        for field in (
            tensor.float_data,
            tensor.int32_data,
            tensor.int64_data,
            tensor.double_data,
            tensor.uint64_data,
        )
    )


def _expected_items(tensor: onnx.TensorProto, count: int) -> int:
    if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
        return 2 * count
    if tensor.data_type in (onnx.TensorProto.UINT4, onnx.TensorProto.INT4):
        return (count + 1) // 2
    return count


def _check_subgraphs(model: onnx.ModelProto, max_nodes: int) -> None:
    total = sum(len(function.node) for function in model.functions)
    for graph, depth in _all_graphs(model):
        if depth > MAX_SUBGRAPH_DEPTH:
            raise InvalidModel(f"Its subgraphs are nested deeper than {MAX_SUBGRAPH_DEPTH} levels.")
        total += len(graph.node)
    if total > max_nodes:
        raise InvalidModel(f"The model has {total} nodes; at most {max_nodes} are accepted.")


def _inlined(model: onnx.ModelProto, max_nodes: int) -> onnx.ModelProto:
    """Replace calls of the model's own functions by their bodies."""
    if not model.functions:
        return model
    sizes = _function_sizes(model)
    total = sum(
        sizes.get((node.domain, node.op_type), 1)
        for graph, _ in graphs_of(model.graph)
        for node in graph.node
    )
    if total > max_nodes:
        raise InvalidModel(f"With its functions inlined the model has more than {max_nodes} nodes.")
    if weight_bytes(model) >= MOST_SERIALISED:
        raise InvalidModel("The model has functions of its own, which cannot be inlined beyond 2 GB.")
    return onnx.inliner.inline_local_functions(model)


def _function_sizes(model: onnx.ModelProto) -> dict[tuple[str, str], int]:
    """Nodes that each function comes to when inlined. Refuses recursion: the inliner would not end."""
    bodies: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for function in model.functions:
        key = (function.domain, function.name)
        if key in bodies:
            raise InvalidModel(f"Function '{function.name}' is defined twice.")
        nodes = [*function.node, *(n for g, _ in _graphs_of_nodes(function.node, 0) for n in g.node)]
        bodies[key] = [(node.domain, node.op_type) for node in nodes]
    sizes: dict[tuple[str, str], int] = {}
    waiting = dict(bodies)
    while waiting:
        ready = [key for key, calls in waiting.items() if not any(call in waiting for call in calls)]
        if not ready:
            raise InvalidModel(f"Function '{next(iter(waiting))[1]}' calls itself.")
        for key in ready:
            sizes[key] = sum(sizes.get(call, 1) for call in waiting.pop(key))
    return sizes


def _check_names(graph: onnx.GraphProto) -> None:
    """Every value has one maker, and everything read is made."""
    inputs = [value.name for value in graph.input]
    constants = [tensor.name for tensor in graph.initializer]
    constants += [sparse.values.name for sparse in graph.sparse_initializer]
    _refuse_repeats(inputs, "graph input")
    _refuse_repeats(constants, "initializer")
    made = [output for node in graph.node for output in node.output if output]
    _refuse_repeats(made, "value")
    known = set(inputs) | set(constants)
    if both := known.intersection(made):
        raise InvalidModel(f"Value '{min(both)}' is made by a node and given from outside as well.")
    known.update(made)
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise InvalidModel(f"Node {label(node)} reads '{name}', which nothing makes.")
    for output in graph.output:
        if output.name not in known:
            raise InvalidModel(f"The graph's output '{output.name}' is made by nothing.")


def _refuse_repeats(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidModel(f"Two of the graph's {what}s are named '{name}'.")
        seen.add(name)


def label(node: onnx.NodeProto) -> str:
    """How messages name a node."""
    return f"'{node.name or next(iter(node.output), '')}' ({node.op_type})"


def reads_of(node: onnx.NodeProto) -> set[str]:
    """Names the node reads: its inputs, and what its subgraphs take from outside themselves."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            names |= captured(graph)
    return names


def captured(graph: onnx.GraphProto) -> set[str]:
    """Names that a subgraph reads and does not make itself."""
    made = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    made.update(name for node in graph.node for name in node.output)
    reads = {output.name for output in graph.output}
    for node in graph.node:
        reads |= reads_of(node)
    return reads - made


def made_in(graph: onnx.GraphProto) -> list[str]:
    """Names that a graph itself gives to values, its inputs included; not those of its nodes' bodies."""
    names = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    names += [sparse.values.name for sparse in graph.sparse_initializer]
    return names + [name for node in graph.node for name in node.output if name]


def renamed_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> onnx.GraphProto:
    """A copy in which values have other names, where bodies read them too."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    for value in [*copy.input, *copy.output, *copy.value_info, *copy.initializer]:
        value.name = names.get(value.name, value.name)
    for sparse in copy.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    nodes = [renamed(node, names) for node in copy.node]
    del copy.node[:]
    copy.node.extend(nodes)
    return copy


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of a node whose values have other names, where its bodies read them too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    for attribute in copy.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = set(made_in(body))
            outer = {old: new for old, new in names.items() if old not in own}
            body.CopyFrom(renamed_graph(body, outer))
    return copy


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put nodes in an order in which each comes after those it reads; keeps the given order where it can."""
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in reads_of(node) if name in maker} for node in graph.node]
    users: list[list[int]] = [[] for _ in graph.node]
    for index, makers in enumerate(needs):
        for other in makers:
            users[other].append(index)
    missing = [len(makers) for makers in needs]
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(graph.node):
        stuck = next(node for index, node in enumerate(graph.node) if missing[index] > 0)
        raise InvalidModel(f"The graph runs in a circle through node {label(stuck)}.")
    if order != sorted(order):
        nodes = [graph.node[index] for index in order]
        del graph.node[:]
        graph.node.extend(nodes)
