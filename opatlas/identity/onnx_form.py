"""A canonical operator as an ONNX model."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from opatlas.identity import schema as schemas
from opatlas.identity.dtypes import CODES
from opatlas.identity.infer import IR_VERSION
from opatlas.identity.operator import OPSET, Operator, Value
from opatlas.identity.read_model import ROLE, STRIDES


def to_onnx(operator: Operator, constants: Mapping[int, np.ndarray] | None = None) -> ModelProto:
    """The operator as a model at the canonical opset, with values named ``in0`` …, ``t0`` …, ``out0`` ….

    Inputs with ``data`` become initializers, and so do the constants whose values are given (by input
    number); all other inputs are graph inputs, whose role and strides go into their ``metadata_props``.
    """
    given = constants or {}
    names = _names(operator)
    inputs, initializers = [], []
    for index, value in enumerate(operator.inputs):
        if value.data is not None:
            initializers.append(schemas.make_tensor(names[index], value.dtype, value.shape, value.data))
        elif index in given:
            initializers.append(_initializer(names[index], value, given[index]))
        else:
            info = helper.make_tensor_value_info(names[index], CODES[value.dtype], value.shape)
            notes = {ROLE: "const"} if value.role == "const" else {}
            if value.strides is not None:
                notes[STRIDES] = json.dumps(list(value.strides))
            if notes:
                helper.set_metadata_props(info, notes)
            inputs.append(info)
    nodes = []
    for node in operator.nodes:
        proto = helper.make_node(
            node.op, [names[i] for i in node.inputs], [names[i] for i in node.outputs], domain=node.domain
        )
        known = schemas.get(node.op, OPSET, node.domain).attributes
        proto.attribute.extend(schemas.to_proto(name, value, known[name].kind) for name, value in node.attrs)
        nodes.append(proto)
    outputs = [
        helper.make_tensor_value_info(names[i], CODES[operator.value(i).dtype], operator.value(i).shape)
        for i in operator.outputs
    ]
    graph = helper.make_graph(nodes, "operator", inputs, outputs, initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="opatlas"
    )


def _names(operator: Operator) -> dict[int, str]:
    names = {-1: ""} | {i: f"in{i}" for i in range(len(operator.inputs))}
    for i in range(len(operator.produced)):
        names[len(operator.inputs) + i] = f"t{i}"
    return names | {number: f"out{i}" for i, number in enumerate(operator.outputs)}


def _initializer(name: str, value: Value, values: np.ndarray) -> object:
    array = np.ascontiguousarray(values).reshape(np.shape(values))  # which makes 1-D of 0-D
    if array.shape != value.shape:
        raise ValueError(f"Constant {name} has shape {array.shape}; the operator says {value.shape}.")
    return numpy_helper.from_array(array, name)
