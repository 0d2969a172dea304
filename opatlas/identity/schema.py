"""What ONNX says about each operator type: attributes, inputs, outputs; read once, kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import AttributeProto, defs, helper, numpy_helper

from opatlas.identity.bounds import (
    MAX_ATTRIBUTE_ITEMS,
    MAX_TEXT,
    quoted,
    refusal,
    refuse,
    refuse_unmapped,
    shown,
)
from opatlas.identity.dtypes import CODES, FLOATS, NAMES, long_float, plain, short_float

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
DATA_DEPENDENT = frozenset({"NonZero", "NonMaxSuppression", "Compress", "Unique"})
NOT_TENSORS = frozenset(
    {
        "ConcatFromSequence",
        "ImageDecoder",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "RegexFullMatch",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    }
)
REPLACED = {"Upsample": "Resize", "Scatter": "ScatterElements"}


@dataclass(frozen=True)
class Attribute:
    """One attribute of a schema; ``default`` is None where ONNX gives none."""

    name: str
    kind: str  # FLOAT, INT, STRING, TENSOR, FLOATS, INTS, STRINGS, or something refused
    required: bool
    default: Any


@dataclass(frozen=True)
class Schema:
    """One operator type at one opset."""

    op: str
    since: int
    attributes: dict[str, Attribute]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    raw: defs.OpSchema


@cache
def _op_types() -> frozenset[str]:
    return frozenset(schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == "")


def find(op: str, opset: int) -> Schema | None:
    """The schema of ``op`` as of ``opset``, None where there is none."""
    return _find(op, opset) if op in _op_types() else None


@cache
def _find(op: str, opset: int) -> Schema | None:
    try:
        raw = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    attributes = {
        name: Attribute(
            name=name,
            kind=str(attribute.type).rsplit(".", 1)[-1],
            required=attribute.required,
            default=from_proto(attribute.default_value) if attribute.default_value.name else None,
        )
        for name, attribute in raw.attributes.items()
    }
    return Schema(
        op=op,
        since=raw.since_version,
        attributes=attributes,
        min_inputs=raw.min_input,
        max_inputs=raw.max_input,
        min_outputs=raw.min_output,
        max_outputs=raw.max_output,
        raw=raw,
    )


def get(op: str, opset: int, domain: str = "", where: str = "") -> Schema:
    """The schema, or :class:`InvalidOperator` saying why this type cannot be an operator here."""
    if domain not in ("", "ai.onnx"):
        refuse_unmapped(
            f"The domain '{shown(domain)}' is not known here; use ONNX's own operators (domain '').", where
        )
    if op in CONTROL_FLOW:
        refuse_unmapped(f"{op} holds whole graphs; send the operators inside it one by one.", where)
    if op in RANDOM:
        refuse_unmapped(f"{op} draws random numbers, so that no implementation can be checked.", where)
    if op in DATA_DEPENDENT:
        refuse_unmapped(
            f"The shape of {op}'s output depends on its input's values; shapes must be known.", where
        )
    if op in NOT_TENSORS:
        refuse_unmapped(
            f"{op} works on sequences, optionals or strings; operators here work on tensors.", where
        )
    schema = find(op, opset)
    if schema is None:
        refuse(f"ONNX opset {opset} has no operator type '{shown(op)}'.", where)
    if schema.raw.deprecated and op in REPLACED:
        refuse(f"{op} was dropped from ONNX at opset {schema.since}; use {REPLACED[op]}.", where)
    return schema


def from_proto(attribute: AttributeProto) -> Any:
    """An attribute's value as plain data: numbers, text, tuples; a tensor as (dtype, shape, data)."""
    kind = attribute.type
    if kind == AttributeProto.FLOAT:
        return short_float(attribute.f)
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.STRING:
        return _text(attribute.s, attribute.name)
    if kind == AttributeProto.FLOATS:
        return tuple(short_float(value) for value in attribute.floats)
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.STRINGS:
        return tuple(_text(value, attribute.name) for value in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return tensor_attribute(attribute)
    raise refusal(f"Attribute '{shown(attribute.name)}' holds a graph, a type or a sparse tensor.")


def tensor_attribute(attribute: AttributeProto) -> tuple[str, tuple[int, ...], tuple[Any, ...]]:
    """A small tensor attribute as (dtype, shape, data)."""
    tensor = attribute.t
    name = shown(attribute.name)
    if tensor.data_location == tensor.EXTERNAL:
        refuse(f"Attribute '{name}' points to external data; put the values into the model.")
    if tensor.data_type not in NAMES:
        refuse(f"Attribute '{name}' has an element type that is not known here.")
    if np.prod([float(dim) for dim in tensor.dims]) > MAX_ATTRIBUTE_ITEMS:
        refuse(f"Attribute '{name}' has more than {MAX_ATTRIBUTE_ITEMS} values.")
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        refuse(f"Attribute '{name}' cannot be read as a tensor: {shown(error)}.")
    dtype = NAMES[tensor.data_type]
    return dtype, tuple(values.shape), plain(values, dtype)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        refuse(f"Attribute '{shown(name)}' is not UTF-8 text.")


def to_proto(name: str, value: Any, kind: str) -> AttributeProto:
    """What :func:`from_proto` read (or :func:`coerce` made), as ONNX's message again."""
    if kind == "FLOAT":
        return helper.make_attribute(name, long_float(value), attr_type=AttributeProto.FLOAT)
    if kind == "FLOATS":
        return helper.make_attribute(
            name, [long_float(item) for item in value], attr_type=AttributeProto.FLOATS
        )
    if kind == "TENSOR":
        dtype, shape, data = value
        return helper.make_attribute(name, make_tensor("", dtype, shape, data))
    return helper.make_attribute(name, value, attr_type=getattr(AttributeProto, kind))


def make_tensor(name: str, dtype: str, shape: Any, data: Any) -> Any:
    """A ``TensorProto`` of plain values."""
    values = [long_float(item) for item in data] if dtype in FLOATS else list(data)
    return helper.make_tensor(name, CODES[dtype], list(shape), values)


def coerce(value: Any, attribute: Attribute, op: str) -> Any:
    """A caller's attribute value as plain data of the schema's kind, or :class:`InvalidOperator`."""
    kind = attribute.kind
    if kind in ("FLOATS", "INTS", "STRINGS"):
        if not isinstance(value, list | tuple):
            refuse(f"Attribute '{attribute.name}' of {op} must be a list of {_WORDS[kind]}.")
        if len(value) > MAX_ATTRIBUTE_ITEMS:
            refuse(f"Attribute '{attribute.name}' of {op} has more than {MAX_ATTRIBUTE_ITEMS} items.")
        singular = kind[:-1]
        return tuple(_scalar(item, singular, attribute.name, op) for item in value)
    if kind == "TENSOR":
        return _tensor(value, attribute.name, op)
    if kind not in ("FLOAT", "INT", "STRING"):
        refuse(f"Attribute '{attribute.name}' of {op} cannot be given here.")
    return _scalar(value, kind, attribute.name, op)


_WORDS = {
    "FLOAT": "a number",
    "INT": "an integer",
    "STRING": "text",
    "FLOATS": "numbers",
    "INTS": "integers",
    "STRINGS": "texts",
}


def _scalar(value: Any, kind: str, name: str, op: str) -> Any:
    if kind == "INT" and isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            refuse(f"Attribute '{name}' of {op} does not fit 64 bits.")
        return value
    if kind == "STRING" and isinstance(value, str):
        if len(value) > MAX_TEXT:
            refuse(f"Attribute '{name}' of {op} is longer than {MAX_TEXT} characters.")
        if not value.isascii():
            refuse(f"Attribute '{name}' of {op} must be plain ASCII text.")
        return value
    if kind == "FLOAT":
        if isinstance(value, str) and value in ("inf", "-inf", "nan"):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return checked_float(value, f"Attribute '{name}' of {op}")
    raise refusal(f"Attribute '{name}' of {op} must be {_WORDS[kind]}.")


def checked_float(value: float, what: str, where: str = "", dtype: str = "float32") -> float | str:
    """A number as :func:`short_float` keeps it; refused where ``dtype`` cannot hold it."""
    limit = 3.4028235677973362e38 if dtype != "float64" else 1.7976931348623157e308
    if value == value and abs(value) > limit and abs(value) != float("inf"):
        refuse(f"{what} is too large for {dtype}.", where)
    return short_float(float(value), dtype)


def _tensor(value: Any, name: str, op: str) -> tuple[str, tuple[int, ...], tuple[Any, ...]]:
    if isinstance(value, dict):
        value = [value.get("dtype"), value.get("shape"), value.get("data")]
    if not (isinstance(value, list | tuple) and len(value) == 3):
        refuse(f"Attribute '{name}' of {op} must be [dtype, shape, values].")
    dtype, shape, data = value
    if not isinstance(dtype, str) or dtype not in CODES:
        refuse(f"Attribute '{name}' of {op} has an unknown dtype.")
    shape = tuple(read_ints(shape, f"The shape of attribute '{name}' of {op}"))
    return dtype, shape, read_data(data, dtype, shape, f"Attribute '{name}' of {op}")


def read_ints(values: Any, what: str, where: str = "") -> list[int]:
    """A list of integers from a caller's JSON (no booleans, no floats, 64 bits)."""
    if not isinstance(values, list | tuple) or len(values) > MAX_ATTRIBUTE_ITEMS:
        refuse(f"{what} must be a list of integers.", where)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
            refuse(f"{what} must be a list of integers; found {quoted(value)}.", where)
    return list(values)


def read_data(
    data: Any,
    dtype: str,
    shape: tuple[int, ...],
    what: str,
    where: str = "",
    limit: int = MAX_ATTRIBUTE_ITEMS,
) -> tuple[int | float | bool | str, ...]:
    """Flat values of a caller's JSON checked against ``dtype`` and ``shape``."""
    elements = 1
    for dim in shape:
        if dim < 0:
            refuse(f"{what} has a negative dimension.", where)
        elements *= dim
    if not isinstance(data, list | tuple):
        refuse(f"{what} must have its values as a flat list.", where)
    if elements > limit or len(data) != elements:
        refuse(
            f"{what} has {len(data)} values where its shape {list(shape)} asks for {elements}"
            f" (at most {limit}).",
            where,
        )
    return tuple(_element(value, dtype, what, where) for value in data)


def _element(value: Any, dtype: str, what: str, where: str) -> int | float | bool | str:
    if dtype == "bool":
        if isinstance(value, bool):
            return value
    elif dtype in FLOATS:
        if isinstance(value, str) and value in ("inf", "-inf", "nan"):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return checked_float(value, what, where, dtype)
    elif dtype in CODES and isinstance(value, int) and not isinstance(value, bool) and "int" in dtype:
        width = int(dtype.lstrip("uint"))
        low, high = (0, 2**width) if dtype.startswith("u") else (-(2 ** (width - 1)), 2 ** (width - 1))
        if low <= value < high:
            return value
    raise refusal(f"{what} holds {quoted(value)}, which is no {dtype}.", where)
