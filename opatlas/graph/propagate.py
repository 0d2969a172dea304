"""One walk over a graph: types of all values, constants folded, and what cannot be expressed with its reason.

Shape arithmetic (Shape → Gather → Concat → Reshape, as exporters write it) ends up constant once dimensions
are concrete, so it is folded on the way and is no compute. Weights are constant too, but their values are not
looked at: only small values, the kind that shapes are made of, are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opatlas.errors import InvalidModel
from opatlas.graph.bodies import Opened, opened
from opatlas.graph.read import (
    graphs_of,
    label,
    made_in,
    nodes_inside,
    opset_of,
    reads_of,
    renamed_graph,
)
from opatlas.graph.types import TensorType, concrete, input_types
from opatlas.graph.walk import CONTROL, ComputeStep, Walk
from opatlas.graph.weights import serialisable

MAX_FOLDED_ELEMENTS = 4096
"""Larger constants are weights or masks; no shape is made of them."""

FOLDABLE = frozenset(
    (
        "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape",
        "Div", "Equal", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater",
        "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero",
        "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
        "Round", "ScatterElements", "ScatterND", "Shape", "Sign", "Size", "Slice", "Split", "Sqrt",
        "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
    )
)  # fmt: skip
"""What shapes are computed with; evaluated by ONNX's reference implementation."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)

_OTHERS_RANDOM = frozenset(
    ("com.microsoft", name) for name in ("Sampling", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout")
)
"""ONNX Runtime's own, by domain and type."""

LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""ONNX infers these by way of their function bodies alone, which needs a whole model; both keep the type."""

REFUSALS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
)
"""How ONNX says that it cannot infer a model's types."""


def propagate(model: onnx.ModelProto, dims: Mapping[str, int]) -> Walk:
    """Walk a model that :func:`opatlas.graph.read.read_onnx` accepted; ``dims`` gives symbolic dimensions.

    Raises :class:`InvalidModel` for missing dimensions and contradictory shapes.
    """
    for name, size in dims.items():
        if not isinstance(size, int) or size < 1:
            raise InvalidModel(f"Dimension '{name}' is given as {size}; it must be at least 1.")
    graph = model.graph
    domains = {entry.domain: entry.version for entry in model.opset_import}
    walk = Walk(opset=opset_of(model), domains=domains, dims=dims)
    walk.names.update(name for inner, _ in graphs_of(graph) for name in made_in(inner))
    for name, known in input_types(graph, dims).items():
        if known is None:
            walk.blocked[name] = "a sequence, map or optional value"
        else:
            walk.types[name] = known
    _declare(walk, _inferred_behind_control(model))
    _walk_graph(walk, graph)
    return walk


def _walk_graph(walk: Walk, graph: onnx.GraphProto) -> None:
    """The model's graph, or a body, once the types of what it is given are known."""
    _add_initializers(walk, graph)
    _declare(walk, (*graph.value_info, *graph.output))
    used = {name for node in graph.node for name in reads_of(node)} | {value.name for value in graph.output}
    _visit(walk, graph.node, used)


def _declare(walk: Walk, values: Iterable[onnx.ValueInfoProto]) -> None:
    for value in values:
        if (declared := concrete(value.type, walk.dims)) is not None:
            walk.declared[value.name] = declared


def _inferred_behind_control(model: onnx.ModelProto) -> Iterable[onnx.ValueInfoProto]:
    """What ONNX infers of values that branches and loops make: from their bodies, which are not walked."""
    made = {name for node in model.graph.node if node.op_type in CONTROL for name in node.output}
    if not made:
        return ()
    try:
        whole = onnx.shape_inference.infer_shapes(serialisable(model))
    except REFUSALS:
        return ()
    return [value for value in (*whole.graph.value_info, *whole.graph.output) if value.name in made]


def _add_initializers(walk: Walk, graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        walk.initializers[tensor.name] = tensor
        walk.types[tensor.name] = TensorType.of_tensor(tensor)
        walk.constants.add(tensor.name)
        if walk.types[tensor.name].size <= MAX_FOLDED_ELEMENTS:
            walk.values[tensor.name] = _to_array(tensor)
    for sparse in graph.sparse_initializer:
        walk.blocked[sparse.values.name] = "a sparse tensor"


def _to_array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidModel(f"Tensor '{tensor.name}' cannot be read: {error}.") from None


def _visit(walk: Walk, nodes: Any, used: set[str]) -> None:
    for node in nodes:
        if node.op_type == "If" and (branch := _taken_branch(walk, node)) is not None:
            _inline_branch(walk, node, branch, used)
        else:
            _visit_node(walk, node, _trimmed(walk, node, used))


def _visit_node(walk: Walk, whole: onnx.NodeProto, node: onnx.NodeProto) -> None:
    reason, inside = _obstacle(walk, node), Opened()
    if reason is None and _fold(walk, node):
        walk.folded.append(node)
        return
    if reason is None:
        outputs = _infer(walk, node)
        walk.types.update(outputs)
        unknown = [name for name in node.output if name and name not in outputs]
        if unknown:
            reason = f"{node.op_type}: the shape of its output depends on data"
            _block(walk, unknown, f"its input's shape depends on data (from {node.op_type})")
        elif is_random(walk, node):
            reason = f"random numbers ({node.op_type})"
    else:
        if node.op_type in CONTROL:
            inside = opened(walk, node, _walk_graph)
        _use_declared(walk, node, reason, inside.types)
    walk.steps.append(ComputeStep(whole, node, reason or "", inside.bodies, inside.shut))


def _obstacle(walk: Walk, node: onnx.NodeProto) -> str | None:
    """Why a node's types cannot even be inferred."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.op_type} of domain {node.domain} is not one of ONNX's own operators"
    if node.op_type in CONTROL:
        return f"control flow ({node.op_type})"
    for name in node.input:
        if name in walk.blocked:
            return walk.blocked[name]
    if not onnx.defs.has(node.op_type, walk.opset, ""):
        return f"ONNX opset {walk.opset} has no operator {node.op_type}"
    return None


def _use_declared(walk: Walk, node: onnx.NodeProto, reason: str, known: Mapping[str, TensorType]) -> None:
    """Go on behind a node that cannot be expressed with what its bodies say of it, else with the types that
    the file itself states."""
    for name in node.output:
        if (kind := known.get(name) or walk.declared.get(name)) is not None:
            walk.types[name] = kind
        elif name:
            why = (
                reason
                if reason.startswith("its input")
                else f"its input's shape is not known (from {node.op_type})"
            )
            walk.blocked[name] = why


def _block(walk: Walk, names: list[str], reason: str) -> None:
    for name in names:
        walk.blocked[name] = reason


def has_random(walk: Walk) -> bool:
    """Whether two runs over the same inputs may differ: for what a node does, or one in its bodies."""
    return any(
        is_random(walk, step.node)
        or any(has_random(body.walk) for body in step.bodies)
        or (step.shut and any(one.op_type in (*RANDOM, "Dropout") for one in nodes_inside(step.node)))
        for step in walk.steps
    )


def is_random(walk: Walk, node: onnx.NodeProto) -> bool:
    """Whether two runs of one node over the same inputs may differ."""
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        training = walk.values.get(node.input[2])
        return training is None or bool(training.any())
    return node.op_type in RANDOM or (node.domain, node.op_type) in _OTHERS_RANDOM


def _trimmed(walk: Walk, node: onnx.NodeProto, used: set[str]) -> onnx.NodeProto:
    """The node without the optional outputs that nobody reads (Dropout's mask, MaxPool's indices)."""
    if node.op_type in ("Split", *CONTROL) or node.domain not in ("", "ai.onnx"):
        return node  # theirs are not optional, or nobody knows
    if not onnx.defs.has(node.op_type, walk.opset, "") or any(
        attribute.name == "training_mode" and attribute.i for attribute in node.attribute
    ):
        return node
    least = max(1, onnx.defs.get_schema(node.op_type, walk.opset, "").min_output)
    outputs = [name if at < least or name in used else "" for at, name in enumerate(node.output)]
    while len(outputs) > least and not outputs[-1]:
        outputs.pop()
    if outputs == list(node.output):
        return node
    trimmed = onnx.NodeProto()
    trimmed.CopyFrom(node)
    trimmed.output[:] = outputs
    return trimmed


def _infer(walk: Walk, node: onnx.NodeProto) -> dict[str, TensorType]:
    """Types of the node's outputs, those that can be told without running it."""
    schema = onnx.defs.get_schema(node.op_type, walk.opset, "")
    data = {
        name: numpy_helper.from_array(walk.values[name], name)
        for name in set(node.input)
        if name in walk.values
    }
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            {name: walk.types[name].to_proto() for name in node.input if name},
            data,
            opset_imports=[helper.make_opsetid("", walk.opset)],
        )
    except REFUSALS as error:
        raise InvalidModel(f"Node {label(node)} contradicts its inputs: {_last_sentence(error)}.") from None
    if node.op_type in LIKE_INPUT:
        return {node.output[0]: walk.types[node.input[0]]}
    known = {name: concrete(proto) for name, proto in inferred.items()}
    return {
        name: tensor
        for name, tensor in known.items()
        if tensor is not None and min(tensor.shape, default=0) >= 0
    }


def _last_sentence(error: Exception) -> str:
    """ONNX's own message without its source positions."""
    text = " ".join(str(error).split())
    return text.rsplit("] ", 1)[-1].removesuffix(".")[:200]


def _fold(walk: Walk, node: onnx.NodeProto) -> bool:
    """Make the node's outputs constants if its inputs are; False if it computes something at run time."""
    if node.op_type in ("Shape", "Size"):
        reads = [walk.types[node.input[0]]]
        array = _shape_value(node, reads[0])
        _set_constant(walk, node.output[0], TensorType.of_array(array), array)
        return True
    names = [name for name in node.input if name]
    if is_random(walk, node) or not all(name in walk.constants for name in names):
        return False
    outputs = {} if node.op_type == "Constant" else _infer(walk, node)
    values = _evaluate(walk, node, names, outputs)
    made = list(filter(None, node.output))
    if not all(name in values or name in outputs for name in made):
        return False  # its shape is only known when it runs: a constant that nobody could lay out
    for name in made:
        value = values.get(name)
        _set_constant(walk, name, outputs[name] if value is None else TensorType.of_array(value), value)
    return True


def _set_constant(walk: Walk, name: str, kind: TensorType, value: np.ndarray | None) -> None:
    walk.types[name] = kind
    walk.constants.add(name)
    if value is not None and value.size <= MAX_FOLDED_ELEMENTS:
        walk.values[name] = value


def _shape_value(node: onnx.NodeProto, kind: TensorType) -> np.ndarray:
    if node.op_type == "Size":
        return np.array(kind.size, dtype=np.int64)
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(kind.shape[ends.get("start", 0) : ends.get("end")], dtype=np.int64)


def _evaluate(
    walk: Walk, node: onnx.NodeProto, names: list[str], outputs: Mapping[str, TensorType]
) -> dict[str, np.ndarray]:
    """The outputs' values, where they are small enough to be a part of some shape."""
    small = all(tensor.size <= MAX_FOLDED_ELEMENTS for tensor in outputs.values())
    if node.op_type not in FOLDABLE or not small or not all(name in walk.values for name in names):
        return {}
    if len(outputs) < sum(map(bool, node.output)) and node.op_type not in ("Constant", "NonZero"):
        return {}  # an output of unknown size could be of any size
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(name, walk.types[name].to_proto()) for name in dict.fromkeys(names)],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", walk.opset)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, {name: walk.values[name] for name in names})
    except (
        Exception
    ):  # the reference operators raise whatever NumPy raises; what follows is counted as unknown
        return {}
    made = [name for name in node.output if name]
    return {name: np.asarray(value) for name, value in zip(made, results, strict=True)}


def _taken_branch(walk: Walk, node: onnx.NodeProto) -> onnx.GraphProto | None:
    """The branch of an If whose condition is a constant."""
    condition = walk.values.get(node.input[0]) if node.input else None
    if condition is None or condition.size != 1:
        return None
    wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return next((attribute.g for attribute in node.attribute if attribute.name == wanted), None)


def _inline_branch(walk: Walk, node: onnx.NodeProto, branch: onnx.GraphProto, used: set[str]) -> None:
    """Visit a branch's nodes in place of its If, under names that nothing else has: those of two branches may
    be the same."""
    branch = renamed_graph(branch, {name: _new_name(walk, name) for name in made_in(branch)})
    _add_initializers(walk, branch)
    inner = {name for each in branch.node for name in reads_of(each)} | {
        value.name for value in branch.output
    }
    _visit(walk, branch.node, used | inner)
    for outer, value in zip(node.output, branch.output, strict=False):
        walk.same[outer] = value.name
        tables: tuple[dict[str, Any], ...] = (walk.types, walk.values, walk.blocked, walk.declared)
        for table in tables:
            if value.name in table:
                table[outer] = table[value.name]
        if value.name in walk.constants:
            walk.constants.add(outer)


def _new_name(walk: Walk, name: str) -> str:
    number = len(walk.names)
    while (new := f"{name}/{number}") in walk.names:
        number += 1
    walk.names.add(new)
    return new
