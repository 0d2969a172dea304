"""An ONNX model as a ``SourceGraph``: names, shapes, constants; nothing settled yet."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import (
    MAX_INPUTS,
    MAX_NODES,
    MAX_PORTS,
    check_opset,
    check_shape,
    quoted,
    refuse,
    shown,
)
from opatlas.identity.dtypes import NAMES
from opatlas.identity.operator import OPSET, Role, Value
from opatlas.identity.strides import canonical_strides
from opatlas.identity.workbench import NodeStep, SourceGraph

ROLE = "opatlas.role"
STRIDES = "opatlas.strides"
"""Keys of a graph input's ``metadata_props``: how an ONNX file carries what ONNX has no word for."""


def read_model(
    model: ModelProto,
    const: Collection[str] = (),
    strides: Mapping[str, Sequence[int]] | None = None,
) -> SourceGraph:
    """The model's graph. ``const`` names inputs that are constants; initializers always are."""
    graph = model.graph
    opset = _opset(model)
    if len(graph.node) > MAX_NODES:
        refuse(f"The graph has {len(graph.node)} nodes; at most {MAX_NODES} make one operator.")
    if len(graph.input) + len(graph.initializer) > MAX_INPUTS:
        refuse(f"The graph has more than {MAX_INPUTS} inputs and initializers.")
    if model.functions or model.training_info or graph.sparse_initializer:
        refuse(
            "Local functions, training information and sparse initializers are not allowed in an operator."
        )
    _check_names(model)
    source = SourceGraph(opset=opset, values={}, steps=[], outputs=[])
    for tensor in graph.initializer:
        _constant(source, tensor.name, tensor)
    for info in graph.input:
        if info.name not in source.values:
            source.values[info.name] = _input(info, const, strides or {})
        elif info.name not in source.contents:
            refuse(f"Two inputs are called '{shown(info.name)}'.")
    unknown = sorted(set(const) - set(source.values))
    if unknown:
        refuse(f"'{shown(unknown[0])}' is said to be a constant, but no input has that name.", "const")
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            _constant_node(source, node)
        else:
            source.steps.append(_step(node))
    source.outputs = list(dict.fromkeys(info.name for info in graph.output))
    source.expected = {info.name: told for info in graph.output if (told := _told(info)) is not None}
    return source


def _told(info: ValueInfoProto) -> tuple[str, tuple[int, ...]] | None:
    """What the model says of an output, where it says all of it."""
    tensor = info.type.tensor_type
    if tensor.elem_type not in NAMES or not tensor.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return NAMES[tensor.elem_type], tuple(dim.dim_value for dim in tensor.shape.dim)


def _check_names(model: ModelProto) -> None:
    """protobuf hands out what is no UTF-8 as bytes."""
    graph = model.graph
    names = [item.name for group in (graph.input, graph.initializer, graph.output) for item in group]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            refuse(f"The name {quoted(name)} in the model is not UTF-8 text.")


def _opset(model: ModelProto) -> int:
    versions = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    if len(versions) != 1:
        refuse("The model must import ONNX's own operators (domain '') at exactly one opset.")
    check_opset(versions[0])
    return versions[0]


def _input(info: ValueInfoProto, const: Collection[str], strides: Mapping[str, Sequence[int]]) -> Value:
    name = shown(info.name)
    if not info.type.HasField("tensor_type"):
        refuse(f"Input '{name}' is not a tensor; only tensors are allowed.")
    tensor = info.type.tensor_type
    if tensor.elem_type not in NAMES:
        refuse(f"Input '{name}' has an element type that is not known here.")
    if not tensor.HasField("shape"):
        refuse(f"Input '{name}' has no shape; give every dimension a number.")
    shape = []
    for axis, dim in enumerate(tensor.shape.dim):
        if not dim.HasField("dim_value"):
            word = f"symbolic dimension '{shown(dim.dim_param)}'" if dim.dim_param else "unknown dimension"
            refuse(f"Input '{name}' has the {word} at axis {axis}; give it a number.")
        shape.append(dim.dim_value)
    check_shape(shape, f"Input '{name}'")
    notes = {prop.key: prop.value for prop in info.metadata_props if prop.key in (ROLE, STRIDES)}
    role: Role = "const" if info.name in const or notes.get(ROLE) == "const" else "runtime"
    steps = strides.get(info.name)
    if steps is None and STRIDES in notes:
        steps = _noted_strides(notes[STRIDES], name)
    return Value(
        dtype=NAMES[tensor.elem_type],
        shape=tuple(shape),
        role=role,
        strides=canonical_strides(shape, steps, f"Input '{name}'"),
    )


def _noted_strides(text: str, name: str) -> list[int]:
    try:
        strides = json.loads(text)
    except (ValueError, RecursionError):
        strides = None
    return schemas.read_ints(strides, f"The strides of input '{name}'")


def _constant(source: SourceGraph, name: str, tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        refuse(
            f"Initializer '{shown(name)}' points to external data; declare it as a constant input instead."
        )
    if not name or name in source.values:
        refuse(f"Two values are called '{shown(name)}'.")
    if tensor.data_type not in NAMES:
        refuse(f"Constant '{shown(name)}' has an element type that is not known here.")
    shape = tuple(tensor.dims)
    if any(shape) or not shape:
        _check_constant_shape(shape, name)
    source.values[name] = Value(dtype=NAMES[tensor.data_type], shape=shape, role="const")
    source.contents[name] = tensor


def _check_constant_shape(shape: tuple[int, ...], name: str) -> None:
    # An empty constant says something only where it shapes the computation; as a tensor it is refused later.
    if all(dim > 0 for dim in shape):
        check_shape(shape, f"Constant '{shown(name)}'")
    elif any(dim < 0 for dim in shape):
        refuse(f"Constant '{shown(name)}' has a negative dimension.")


def _constant_node(source: SourceGraph, node: NodeProto) -> None:
    if len(node.attribute) != 1 or len(node.output) != 1 or node.input:
        refuse("A Constant must have one attribute with its value, no input and one output.")
    attribute = node.attribute[0]
    word = attribute.name
    if word == "value" and attribute.type == AttributeProto.TENSOR:
        _constant(source, node.output[0], attribute.t)
    elif word in ("value_float", "value_int", "value_floats", "value_ints"):
        plural = word.endswith("s")
        code = TensorProto.FLOAT if "float" in word else TensorProto.INT64
        value = schemas.from_proto(attribute)
        items = list(value) if isinstance(value, tuple) else [value]
        if isinstance(value, tuple) != plural or any(isinstance(item, str) and code == 7 for item in items):
            refuse(f"A Constant's {word} has the wrong type.")
        tensor = schemas.make_tensor(node.output[0], NAMES[code], [len(items)] if plural else [], items)
        _constant(source, node.output[0], tensor)
    else:
        refuse(f"A Constant's '{shown(word)}' is not allowed; give a tensor of numbers as 'value'.")


def _step(node: NodeProto) -> NodeStep:
    if len(node.input) > MAX_PORTS or len(node.output) > MAX_PORTS:
        refuse(f"A {shown(node.op_type)} has more than {MAX_PORTS} inputs or outputs.")
    op, domain = node.op_type, "" if node.domain == "ai.onnx" else node.domain
    if op in schemas.CONTROL_FLOW:
        schemas.get(op, OPSET, domain)  # by its own name, before its graphs are met
    attrs = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name or attribute.name in attrs:
            refuse(f"Attribute '{shown(attribute.name)}' of {shown(op)} is given twice or is a function's.")
        attrs[attribute.name] = schemas.from_proto(attribute)
    inputs = list(node.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    return NodeStep(op, inputs, list(node.output), attrs, domain)
