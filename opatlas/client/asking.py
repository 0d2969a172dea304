"""From a caller's name for an operator (arrays, tensors, shapes, JSON, ONNX, a key) to a key and a document.

Reading a description takes a millisecond and ONNX. So each is read once: it is known by its *signature* in
this process, and by its *alias* in the machine's cache.
"""

from __future__ import annotations

import base64
import hashlib
import json
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opatlas.errors import InvalidOperator, UnmappedOperator, first_line
from opatlas.identity.bounds import MAX_STATIC
from opatlas.identity.operator import KEY_VERSION, canonical_json

_USUAL = frozenset({"float32", "float64", "float16", "int64", "int32", "uint8", "int8", "bool"})


@dataclass(eq=False, slots=True)
class Asked:
    """One operator as asked for. ``document``: its description for the service (None: only the key is known).
    ``places``: which of the caller's inputs is each tensor of the canonical operator (None: the same).
    ``unmapped``: why it has no key although it may run. ``known``: the latest answer for this caller, with
    the entry that it came from."""

    key: str
    document: Mapping[str, Any] | None = None
    places: tuple[int, ...] | None = None
    unmapped: UnmappedOperator | None = None
    known: tuple[Any, Any] = field(default=(None, None))
    predicted_until: float = 0.0  # on the monotonic clock: what comes next was asked for
    _size: int = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes in a request."""
        if not self._size:
            self._size = 100 + (len(canonical_json(self.document)) if self.document is not None else 0)
        return self._size


def signature(op: Any, inputs: Sequence[Any], const: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    """Something hashable that is equal for equal operators, and quick to make. None if there is none."""
    parts: list[Any] = []
    for one in inputs:
        kind = type(one)
        if kind is np.ndarray or isinstance(one, np.ndarray):
            plain = (one.dtype, one.shape, one.strides)
            parts.append(plain if kind is np.ndarray else (kind, *plain))
        elif one is None or kind is tuple:
            parts.append((one,))
        elif hasattr(one, "dtype"):
            try:
                stride = one.stride() if hasattr(one, "stride") else getattr(one, "strides", ())
                parts.append((one.dtype, tuple(one.shape), stride, getattr(one, "layout", None)))
            except Exception:  # of the array's own library: describing it says why
                return None
        else:
            return None
    return op, tuple(parts), tuple(const), tuple(attrs.items())


def describe_call(
    op: Any, inputs: Sequence[Any], const: Sequence[int], attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON of one ONNX node (its type, or a NodeProto) over these inputs: arrays, tensors, shapes
    (float32), pairs of a shape and a dtype, lists of numbers (known values: the ``axes`` of a ReduceSum), or
    None (an optional one left out).

    ``const``: numbers of the inputs whose values stay (weights).
    """
    for number in const:
        if not 0 <= number < len(inputs):
            raise InvalidOperator(f"const names input {number}, but there are {len(inputs)} inputs.")
    described = [_describe_input(one, number in const) for number, one in enumerate(inputs)]
    document: dict[str, Any] = {"op": op, "inputs": described}
    if hasattr(op, "op_type"):
        document |= {"op": op.op_type, "domain": op.domain}
        attrs = {**_node_attributes(op), **attrs}
    if attrs:
        document["attrs"] = {name: _plain(value) for name, value in attrs.items()}
    return document


def _node_attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    values = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    for name, value in values.items():
        if hasattr(value, "SerializeToString"):
            raise InvalidOperator(
                f"Attribute {name!r} of the node is a {type(value).__name__}: give it as an ONNX model."
            )
    return {name: _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> Any:
    """An attribute's text: ONNX has it as bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_as_text(item) for item in value] if isinstance(value, list) else value


def _describe_input(one: Any, const: bool) -> dict[str, Any] | None:
    if one is None:
        return None
    if isinstance(one, list):
        return {"value": _known_values(one)}
    if isinstance(one, tuple):
        shape, dtype = one if len(one) == 2 and isinstance(one[1], str) else (one, "float32")
        document: dict[str, Any] = {"shape": list(shape), "dtype": dtype}
    elif hasattr(one, "dtype"):
        document = _described_array(one)
    elif isinstance(one, numbers.Number):
        raise UnmappedOperator(f"A number alone says no type: give an array of it, not {str(one)[:40]}.")
    else:
        raise InvalidOperator(
            f"An input is an array, a tensor, a shape such as (64, 256), or None, not {type(one).__name__}."
        )
    if const:
        document["const"] = True
    return document


def _known_values(values: list[Any]) -> list[Any]:
    if len(values) > MAX_STATIC:
        raise UnmappedOperator(f"A list has at most {MAX_STATIC} known values, not {len(values)}.")
    plain = [_plain(one) for one in values]
    for one in plain:
        if not isinstance(one, int | float):
            raise UnmappedOperator(
                f"A list has known values, which are numbers, not {type(one).__name__}: give an array."
            )
    return plain


def _described_array(one: Any) -> dict[str, Any]:
    """The array may be of any library, and runs where it came from. Entries exist for dense and strided
    arrays in this machine's byte order, of types that ONNX has."""
    try:
        shape, dtype = [int(size) for size in one.shape], _dtype_name(one.dtype)
        layout = str(getattr(one, "layout", "")).removeprefix("torch.")
        strides = _strides(one) if layout in ("", "strided") else None
    except UnmappedOperator:
        raise
    except Exception as error:  # of the array's own library: a size that is not known yet
        raise UnmappedOperator(f"An input cannot be described: {first_line(error)}") from error
    if isinstance(one, np.ma.MaskedArray):
        raise UnmappedOperator("An input is a masked array: no implementation looks at its mask.")
    if layout not in ("", "strided"):
        raise UnmappedOperator(f"An input's layout is {layout[:40]}: entries are of dense and strided ones.")
    if not _is_known(dtype):
        raise UnmappedOperator(f"An input has the dtype {dtype[:40]}, which no entry has.")
    document: dict[str, Any] = {"shape": shape, "dtype": dtype}
    if strides is not None:
        document["strides"] = strides
    return document


def _is_known(dtype: str) -> bool:
    if dtype in _USUAL:
        return True
    from opatlas.identity.dtypes import CODES  # with what it imports: not for every job

    return dtype in CODES


def _dtype_name(dtype: Any) -> str:
    if not getattr(dtype, "isnative", True):
        raise UnmappedOperator("An input's numbers are in the other byte order: no entry is of these.")
    return str(dtype.name if hasattr(dtype, "name") else dtype).removeprefix("torch.")


def _strides(one: Any) -> list[int] | None:
    """In elements; None if row-major and dense."""
    if hasattr(getattr(one, "flags", None), "c_contiguous"):  # NumPy's, CuPy's
        if one.flags.c_contiguous:
            return None
        if any(step % one.itemsize for step in one.strides):
            raise UnmappedOperator("An input's elements lie at no whole distances, as a record's field does.")
        return [step // one.itemsize for step in one.strides]
    if not hasattr(one, "stride") or one.is_contiguous():
        return None
    return [int(step) for step in one.stride()]


def _plain(value: Any) -> Any:
    """As plain JSON: NumPy's numbers become numbers, its arrays lists."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def document_of(asked: Any) -> Mapping[str, Any]:
    """The JSON that describes a whole operator, from JSON or an ONNX model."""
    if isinstance(asked, Mapping):
        return asked
    if hasattr(asked, "op_type"):
        raise InvalidOperator("An ONNX node says no shapes: its inputs stand beside it (lookup(node, x, w)).")
    model = asked.SerializeToString() if hasattr(asked, "SerializeToString") else asked
    if isinstance(model, bytes):
        return {"onnx": base64.b64encode(model).decode()}
    raise InvalidOperator(
        "An operator is named by its type and inputs (lookup('MatMul', x, w)), its o1: key, its JSON, "
        f"an ONNX model or an opatlas.identity.Operator, not by {type(asked).__name__}."
    )


def alias_of(document: Mapping[str, Any]) -> bytes:
    """16 bytes that are equal for equal descriptions in any process, as long as the format of keys is the
    same."""
    try:
        text = canonical_json(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOperator(f"The operator's description is no JSON: {error}.") from error
    return hashlib.blake2b(text, digest_size=16, person=KEY_VERSION.encode()).digest()


def read(document: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """The key of a description, and ``places``. Imports ONNX; raises
    :class:`opatlas.errors.InvalidOperator`."""
    from opatlas.identity.parse import parse_canonical

    canonical = parse_canonical(json.loads(canonical_json(document)))
    operator = canonical.operator
    called = [canonical.inputs[number] for number in operator.tensor_inputs]
    if "onnx" in document:
        names = _model_inputs(document["onnx"])
        return operator.key, tuple(names.index(str(name)) if name in names else -1 for name in called)
    return operator.key, tuple(int(str(name)[len("inputs[") : -1]) for name in called)


def canonical_graph(document: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical operator's JSON. Imports ONNX; raises like :func:`read`."""
    from opatlas.identity.parse import parse_canonical

    return parse_canonical(json.loads(canonical_json(document))).operator.to_json()


def _model_inputs(onnx_base64: str) -> list[str]:
    """Names of a model's inputs, then of its other initializers."""
    from onnx import ModelProto

    graph = ModelProto.FromString(base64.b64decode(onnx_base64)).graph
    names = [one.name for one in graph.input]
    return names + [one.name for one in graph.initializer if one.name not in names]
