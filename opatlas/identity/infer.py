"""Shapes and element types of one node's outputs at the canonical opset, by ONNX's own inference."""

from __future__ import annotations

import re
from functools import lru_cache

from onnx import TensorProto, TypeProto, checker, defs, helper, shape_inference

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import check_shape, refuse, refuse_unmapped, shown
from opatlas.identity.dtypes import CODES, NAMES
from opatlas.identity.operator import OPSET, Value
from opatlas.identity.workbench import NodeStep, Workbench

IR_VERSION = 11
"""The ONNX file format that first carried the canonical opset: what every reader of it can read."""

_OPSETS = [helper.make_opsetid("", OPSET)]
# What its C++ exceptions become in Python.
_FAILURES = (
    shape_inference.InferenceError,
    checker.ValidationError,
    RuntimeError,
    ValueError,
    IndexError,
    OverflowError,
    MemoryError,
)
# ONNX infers these through their function bodies only when a whole model is given; both keep the shape.
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})


@lru_cache(maxsize=4096)
def _type(dtype: str, shape: tuple[int, ...]) -> TypeProto:
    return helper.make_tensor_type_proto(CODES[dtype], shape)


def infer(step: NodeStep, work: Workbench) -> list[Value]:
    """One value per output of ``step``; refuses what ONNX finds contradictory, in one sentence."""
    schema = schemas.get(step.op, OPSET)
    node = helper.make_node(step.op, step.inputs, step.outputs)
    node.attribute.extend(
        schemas.to_proto(name, value, schema.attributes[name].kind) for name, value in step.attrs.items()
    )
    types: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for name in step.inputs:
        if name and name not in types:
            value = work.value(name)
            types[name] = _type(value.dtype, value.shape)
            if value.data is not None:
                data[name] = schemas.make_tensor(name, value.dtype, value.shape, value.data)
    try:
        inferred = shape_inference.infer_node_outputs(
            schema.raw, node, types, data, opset_imports=_OPSETS, ir_version=IR_VERSION
        )
    except _FAILURES as error:
        say = refuse if _takes_types(schema.raw, step, work) else refuse_unmapped
        say(f"{step.op} cannot take {signature(step, work)}: {reason(error)}.")
    return [_value(step, work, inferred.get(name), position) for position, name in enumerate(step.outputs)]


def _takes_types(schema: defs.OpSchema, step: NodeStep, work: Workbench) -> bool:
    """Whether each input has a type that the operator takes there."""
    formal = schema.inputs  # the last may stand for many
    return all(
        not name
        or f"tensor({TensorProto.DataType.Name(CODES[work.value(name).dtype]).lower()})"
        in formal[min(number, len(formal) - 1)].types
        for number, name in enumerate(step.inputs)
    )


def _value(step: NodeStep, work: Workbench, inferred: TypeProto | None, position: int) -> Value:
    what = f"Output {position} of {step.op}"
    if inferred is None or not inferred.HasField("tensor_type"):
        refuse_unmapped(f"{what} is not a tensor whose type is known from {signature(step, work)}.")
    tensor = inferred.tensor_type
    if tensor.elem_type not in NAMES:
        refuse_unmapped(f"{what} has an element type that is not known here.")
    if step.op in _LIKE_INPUT:
        return Value(dtype=NAMES[tensor.elem_type], shape=work.shape(step))
    if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        refuse_unmapped(f"{what} has no shape that follows from {signature(step, work)} and the attributes.")
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    check_shape(shape, f"{what} on {signature(step, work)}")
    return Value(dtype=NAMES[tensor.elem_type], shape=shape)


def signature(step: NodeStep, work: Workbench) -> str:
    """The inputs as people write them: ``float32[1,3,8,8], int64[2]``."""
    words = []
    for name in step.inputs[:8]:
        value = work.values.get(name)
        words.append("nothing" if value is None else f"{value.dtype}[{','.join(map(str, value.shape))}]")
    return ", ".join(words) + (", …" if len(step.inputs) > 8 else "") if words else "no inputs"


def reason(error: Exception) -> str:
    """ONNX's message as the end of a sentence."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    text = re.sub(r"\[(Shape|Type)InferenceError\]\s*", "", text)
    text = re.sub(r"\(op_type:[^)]*\):?\s*", "", text)
    return shown(text.rstrip(". "), 240)
