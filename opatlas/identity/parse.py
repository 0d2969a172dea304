"""A caller's JSON as an operator, with every bound; whatever is wrong is one :class:`InvalidOperator`.

Three forms: one node (``op``), a graph with numbered values (``nodes``: the canonical form, though any
numbering and any known opset will do), and an ONNX model in base64 (``onnx``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import (
    MAX_INPUTS,
    MAX_JSON_DEPTH,
    MAX_NODES,
    MAX_ONNX_BYTES,
    MAX_PORTS,
    MAX_STATIC,
    MAX_TEXT,
    OLDEST_OPSET,
    check_opset,
    check_shape,
    quoted,
    refuse,
    shown,
)
from opatlas.identity.canonical import Canonical, settle
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import OPSET, Operator, Value
from opatlas.identity.read_model import read_model
from opatlas.identity.strides import canonical_strides
from opatlas.identity.workbench import NodeStep, SourceGraph

_FORMS = {
    "op": frozenset({"op", "domain", "attrs", "inputs", "outputs", "opset"}),
    "nodes": frozenset({"opset", "inputs", "nodes", "outputs", "produced"}),
    "onnx": frozenset({"onnx", "const", "strides"}),
}
_INPUT_FIELDS = frozenset({"dtype", "shape", "role", "const", "strides", "data", "value", "same_as"})
_NODE_FIELDS = frozenset({"op", "domain", "inputs", "outputs", "attrs"})


def parse_operator(document: Mapping[str, Any]) -> Operator:
    """The canonical operator that a caller's JSON describes.

    Raises :class:`opatlas.errors.InvalidOperator`, and nothing else, for any JSON value.
    """
    return parse_canonical(document).operator


def parse_canonical(document: Mapping[str, Any]) -> Canonical:
    """The same with the caller's names: ``inputs[2]`` for the third input of a node or a graph.

    Raises :class:`opatlas.errors.InvalidOperator`, and nothing else, for any JSON value.
    """
    if not isinstance(document, Mapping):
        refuse("An operator must be a JSON object with 'op', 'nodes' or 'onnx'.")
    _check_depth(document)
    forms = [form for form in _FORMS if form in document]
    if len(forms) != 1:
        refuse("An operator must have exactly one of 'op' (one node), 'nodes' (a graph) and 'onnx' (base64).")
    _known_fields(document, _FORMS[forms[0]], "")
    reader = {"op": _read_simple, "nodes": _read_graph, "onnx": _read_onnx}[forms[0]]
    return settle(reader(document))


def _check_depth(document: Any) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            child
            for parent in level
            if isinstance(parent, Mapping | list | tuple)
            for child in (parent.values() if isinstance(parent, Mapping) else parent)
            if isinstance(child, Mapping | list | tuple)
        ]
        if not level:
            return
    refuse(f"The operator is nested more than {MAX_JSON_DEPTH} levels deep.")


def _known_fields(document: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name in document:
        if name not in known:
            refuse(
                f"The field {quoted(name)} is not known here; known are: {', '.join(sorted(known))}.", where
            )


def _list(document: Mapping[str, Any], name: str, limit: int, where: str) -> list[Any]:
    value = document.get(name, [])
    if not isinstance(value, list | tuple):
        refuse(f"'{name}' must be a list, not {quoted(value)}.", where)
    if len(value) > limit:
        refuse(f"'{name}' has {len(value)} items; at most {limit} are allowed.", where)
    return list(value)


def _op_type(document: Mapping[str, Any], where: str) -> tuple[str, str]:
    op, domain = document.get("op"), document.get("domain", "")
    if not isinstance(op, str) or not op or len(op) > MAX_TEXT:
        refuse(f"'op' must name an ONNX operator type such as 'Conv', not {quoted(op)}.", where)
    if not isinstance(domain, str):
        refuse(f"'domain' must be text, not {quoted(domain)}.", where)
    return op.removeprefix("onnx."), "" if domain == "ai.onnx" else domain


def _attributes(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    attrs = document.get("attrs", {})
    if not isinstance(attrs, Mapping):
        refuse(f"'attrs' must be an object of name and value, not {quoted(attrs)}.", where)
    if len(attrs) > MAX_PORTS:
        refuse(f"'attrs' has {len(attrs)} items; at most {MAX_PORTS} are allowed.", where)
    return dict(attrs)


def _opset(document: Mapping[str, Any]) -> int | None:
    opset = document.get("opset")
    if opset is None:
        return None
    if isinstance(opset, bool) or not isinstance(opset, int):
        refuse(f"'opset' must be an integer, not {quoted(opset)}.", "opset")
    check_opset(opset)
    return opset


# ---- one node ---------------------------------------------------------------------------------------


def _read_simple(document: Mapping[str, Any]) -> SourceGraph:
    op, domain = _op_type(document, "op")
    attrs = _attributes(document, "attrs")
    source = SourceGraph(opset=OPSET, values={}, steps=[], outputs=[])
    names: list[str] = []
    for index, item in enumerate(_list(document, "inputs", MAX_PORTS, "inputs")):
        names.append(_simple_input(item, index, names, source))
    given = _opset(document)
    source.opset = _fitting_opset(op, attrs, len(names)) if given is None else given
    while names and not names[-1]:
        names.pop()
    schema = schemas.get(op, source.opset, domain, "op")
    step = NodeStep(op, names, [], attrs, domain)
    step.outputs = [f"outputs[{i}]" for i in range(_output_count(document, step, schema, source))]
    source.steps, source.outputs = [step], list(step.outputs)
    return source


def _simple_input(item: Any, index: int, names: list[str], source: SourceGraph) -> str:
    """The name of one input: '' where it is left out (null), an earlier one's where it is the same value."""
    where = f"inputs[{index}]"
    if item is None:
        return ""
    if isinstance(item, Mapping) and "same_as" in item:
        same = item["same_as"]
        if len(item) != 1 or isinstance(same, bool) or not isinstance(same, int) or not 0 <= same < index:
            refuse(f"{where}: 'same_as' must stand alone and be the number of an earlier input.", where)
        return names[same]
    source.values[where] = _value(item, where, source)
    return where


def _fitting_opset(op: str, attrs: Mapping[str, Any], inputs: int) -> int:
    """The canonical opset, or the newest older one whose schema knows these attributes and inputs.

    A ``ReduceMean`` with an ``axes`` attribute can only be meant as it was before opset 18.
    """
    for opset in range(OPSET, OLDEST_OPSET - 1, -1):
        schema = schemas.find(op, opset)
        if schema is None or (op in schemas.REPLACED and schema.raw.deprecated):
            continue
        if not schema.min_inputs <= inputs <= schema.max_inputs:
            continue
        if all(name in schema.attributes for name in attrs):
            return opset
    return OPSET


def _output_count(
    document: Mapping[str, Any], step: NodeStep, schema: schemas.Schema, source: SourceGraph
) -> int:
    count = document.get("outputs")
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PORTS:
            refuse(f"'outputs' must be how many outputs are wanted, 1 to {MAX_PORTS}.", "outputs")
        return count
    if step.op == "Split":
        return _split_count(step, source)
    return max(1, schema.min_outputs)


def _split_count(step: NodeStep, source: SourceGraph) -> int:
    parts = step.attrs.get("split")
    content = source.contents.get(step.input(1))
    if isinstance(content, Value) and content.data is not None:
        parts = content.data
    number = step.attrs.get("num_outputs")
    count = len(parts) if isinstance(parts, list | tuple) else number
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PORTS:
        refuse(
            f"Split must say how many parts it makes, 1 to {MAX_PORTS}: by 'split' or 'num_outputs'.", "attrs"
        )
    return count


# ---- values -----------------------------------------------------------------------------------------


def _value(item: Any, where: str, source: SourceGraph) -> Value:
    """A tensor from JSON; known values go to ``source.contents`` under ``where``, which is its name."""
    if not isinstance(item, Mapping):
        refuse(f"{where} must be an object with 'shape' and 'dtype', not {quoted(item)}.", where)
    _known_fields(item, _INPUT_FIELDS, where)
    dtype, shape, data = item.get("dtype"), item.get("shape"), item.get("data")
    if "value" in item:
        if data is not None:
            refuse(f"{where} has both 'data' and 'value'; give one.", where)
        data, shape = _scalar_or_list(item["value"], shape)
    if data is not None and shape is None and isinstance(data, list | tuple):
        shape = [len(data)]
    if dtype is None and data is not None and isinstance(data, list | tuple):
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in data)
        dtype = "int64" if whole else "float32"
    if not isinstance(dtype, str) or dtype not in CODES:
        refuse(f"{where} has the dtype {quoted(dtype)}; known are: {', '.join(CODES)}.", f"{where}.dtype")
    dims = tuple(schemas.read_ints(shape, f"The shape of {where}", f"{where}.shape"))
    role = "const" if data is not None else _role(item, where)
    if data is not None:
        values = schemas.read_data(data, dtype, dims, where, f"{where}.data", MAX_STATIC)
        source.contents[where] = Value(dtype=dtype, shape=dims, role="const", data=values)
    else:
        check_shape(dims, where, f"{where}.shape")
    strides = item.get("strides")
    if strides is not None:
        strides = schemas.read_ints(strides, f"The strides of {where}", f"{where}.strides")
        strides = canonical_strides(dims, strides, where, f"{where}.strides") if data is None else None
    return Value(dtype=dtype, shape=dims, role="const" if role == "const" else "runtime", strides=strides)


def _scalar_or_list(value: Any, shape: Any) -> tuple[Any, Any]:
    if isinstance(value, list | tuple):
        return value, shape
    return [value], [] if shape is None else shape


def _role(item: Mapping[str, Any], where: str) -> str:
    role, const = item.get("role"), item.get("const")
    if const is not None and not isinstance(const, bool):
        refuse(f"'const' of {where} must be true or false, not {quoted(const)}.", f"{where}.const")
    if role is not None and role not in ("runtime", "const"):
        refuse(f"'role' of {where} must be 'runtime' or 'const', not {quoted(role)}.", f"{where}.role")
    if role is not None and const is not None and (role == "const") != const:
        refuse(f"'role' and 'const' of {where} contradict each other; give one.", f"{where}.role")
    return "const" if const or role == "const" else "runtime"


# ---- a graph of numbered values ---------------------------------------------------------------------


def _read_graph(document: Mapping[str, Any]) -> SourceGraph:
    source = SourceGraph(opset=_opset(document) or OPSET, values={}, steps=[], outputs=[])
    items = _list(document, "inputs", MAX_INPUTS, "inputs")
    names = {i: f"inputs[{i}]" for i in range(len(items))}
    for index, item in enumerate(items):
        source.values[names[index]] = _value(item, names[index], source)
    nodes = _list(document, "nodes", MAX_NODES, "nodes")
    for index, node in enumerate(nodes):
        where = f"nodes[{index}]"
        if not isinstance(node, Mapping):
            refuse(f"{where} must be an object with 'op', 'inputs' and 'outputs', not {quoted(node)}.", where)
        _known_fields(node, _NODE_FIELDS, where)
        op, domain = _op_type(node, f"{where}.op")
        reads = [_name(number, names, f"{where}.inputs") for number in _numbers(node, "inputs", where)]
        writes = _numbers(node, "outputs", where)
        if not writes:
            refuse(f"{where} has no outputs; every node makes at least one value.", where)
        for number in writes:
            if not 0 <= number <= MAX_NODES * MAX_PORTS + MAX_INPUTS:
                refuse(f"{where} makes the value {number}, which is no value number.", f"{where}.outputs")
        while reads and not reads[-1]:
            reads.pop()
        written = [_name(number, names, where) for number in writes]
        source.steps.append(NodeStep(op, reads, written, _attributes(node, f"{where}.attrs"), domain, where))
    source.outputs = [_name(number, names, "outputs") for number in _numbers(document, "outputs", "")]
    if len(set(source.outputs)) < len(source.outputs) or "" in source.outputs:
        refuse("'outputs' must name different values by their numbers.", "outputs")
    _read_produced(document, names, len(items), source)
    return source


def _numbers(document: Mapping[str, Any], name: str, where: str) -> list[int]:
    place = f"{where}.{name}".lstrip(".")
    return schemas.read_ints(_list(document, name, MAX_PORTS, place), place, place)


def _name(number: int, names: dict[int, str], where: str) -> str:
    if number == -1:
        return ""
    if number < 0:
        refuse(
            f"{where} has the value number {number}; numbers start at 0, and -1 leaves an input out.", where
        )
    return names.setdefault(number, f"value {number}")


def _read_produced(
    document: Mapping[str, Any], names: dict[int, str], first: int, source: SourceGraph
) -> None:
    """What the caller says that nodes make is checked once it is inferred."""
    if document.get("produced") is None:
        return
    for index, item in enumerate(_list(document, "produced", MAX_NODES * MAX_PORTS, "produced")):
        where = f"produced[{index}]"
        if not isinstance(item, Mapping):
            refuse(f"{where} must be an object with 'shape' and 'dtype', not {quoted(item)}.", where)
        dims = tuple(schemas.read_ints(item.get("shape"), f"The shape of {where}", f"{where}.shape"))
        dtype = item.get("dtype")
        if first + index in names:
            source.expected[names[first + index]] = (shown(dtype), dims)


# ---- ONNX -------------------------------------------------------------------------------------------


def _read_onnx(document: Mapping[str, Any]) -> SourceGraph:
    text, const, strides = document["onnx"], document.get("const", []), document.get("strides", {})
    if not isinstance(text, str):
        refuse("'onnx' must be a serialised ModelProto in base64.", "onnx")
    if len(text) > MAX_ONNX_BYTES * 4 // 3 + 4:
        refuse(
            f"The ONNX model is larger than {MAX_ONNX_BYTES} bytes; a constant's values are not needed, "
            "so declare it as an input with its shape and name it in 'const'.",
            "onnx",
        )
    if not isinstance(const, list | tuple) or not all(isinstance(name, str) for name in const):
        refuse("'const' must be a list of the names of inputs that are constants.", "const")
    if not isinstance(strides, Mapping):
        refuse("'strides' must be an object of input name and strides in elements.", "strides")
    steps = {
        name: schemas.read_ints(value, f"The strides of {quoted(name)}", "strides")
        for name, value in strides.items()
    }
    return read_model(read_bytes(text), const, steps)


def read_bytes(text: str) -> ModelProto:
    """A ``ModelProto`` from base64, or :class:`InvalidOperator`."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        refuse("'onnx' is not base64.", "onnx")
    try:
        return ModelProto.FromString(data)
    except DecodeError:
        refuse("'onnx' is no ONNX model: its bytes are truncated or something else.", "onnx")
