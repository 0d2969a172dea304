"""One record of an operator list, read and checked.

The form is that of the open operator lists: ``{"op", "attrs", "inputs": [{"shape", "dtype", "stride",
"const", "value", "name"}], "count"}``. A tensor's ``name`` is its parameter's (``self``, ``arg0``,
``tensors[1]``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opatlas.errors import InvalidModel
from opatlas.identity.strides import dense_strides

MAX_RANK = 16
MAX_COUNT = 2**31 - 1
DTYPES = frozenset((
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "bfloat16", "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn",
    "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"
))  # fmt: skip
_SHORT = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument. ``shape`` and ``strides`` are in elements; no ``strides``: dense and row-major.

    ``value`` holds a constant's values where the record has them.
    """

    dtype: str
    shape: tuple[int | str, ...]
    strides: tuple[int, ...] | None = None
    const: bool = False
    name: str = ""
    value: Any = None


@dataclass(frozen=True)
class CallRecord:
    """One operator call with its arguments and how often it is made."""

    op: str
    inputs: tuple[TensorArgument | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    count: int = 1
    opset: int | None = None  # of "onnx." records
    backward: bool = False

    @property
    def symbols(self) -> list[str]:
        """Names of dimensions that are not numbers."""
        names = [dim for tensor in self.inputs if tensor for dim in tensor.shape if isinstance(dim, str)]
        return list(dict.fromkeys(names))


def read_record(document: Any, where: str, dims: Mapping[str, int] | None = None) -> CallRecord:
    """Check one record's form. Raises :class:`InvalidModel`, its sentence starting with ``where``."""
    if not isinstance(document, Mapping) or not isinstance(document.get("op"), str):
        raise InvalidModel(f'{where} must be an object with "op", "inputs" and "attrs".')
    attrs, inputs = document.get("attrs", {}), document.get("inputs", [])
    if not isinstance(attrs, Mapping) or not isinstance(inputs, list):
        raise InvalidModel(f'{where}: "attrs" must be an object and "inputs" a list.')
    count = document.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise InvalidModel(f'{where}: "count" must be a whole number of at least 1.')
    opset = document.get("opset")
    if opset is not None and (isinstance(opset, bool) or not isinstance(opset, int)):
        raise InvalidModel(f'{where}: "opset" must be a whole number.')
    tensors = tuple(_read_tensor(item, f"{where}.inputs[{i}]", dims or {}) for i, item in enumerate(inputs))
    return CallRecord(
        document["op"], tensors, attrs, count, opset, backward=document.get("phase") == "backward"
    )


def _read_tensor(item: Any, where: str, dims: Mapping[str, int]) -> TensorArgument | None:
    if item is None:
        return None
    if not isinstance(item, Mapping):
        raise InvalidModel(f'{where} must be an object with "shape" and "dtype", or null.')
    name = item.get("name", "")
    if not isinstance(name, str):
        raise InvalidModel(f'{where}: "name" must be a string.')
    if "shape" not in item:
        if isinstance(item.get("value"), int | float | bool):
            return TensorArgument(_scalar_dtype(item["value"]), (), None, True, name, item["value"])
        raise InvalidModel(f'{where} must have a "shape", or a number as its "value".')
    shape = _read_shape(item["shape"], where, dims)
    stride = item.get("stride", item.get("strides"))
    const = bool(item.get("const", False)) or item.get("role") == "const"
    return TensorArgument(
        read_dtype(item.get("dtype"), where),
        shape,
        _read_strides(stride, shape, where),
        const,
        name,
        item.get("value", item.get("data")),
    )


def _scalar_dtype(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _read_shape(shape: Any, where: str, dims: Mapping[str, int]) -> tuple[int | str, ...]:
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise InvalidModel(f'{where}: "shape" must be a list of at most {MAX_RANK} dimensions.')
    read: list[int | str] = []
    for dim in shape:
        if isinstance(dim, str):
            read.append(dims.get(dim, dim))
        elif isinstance(dim, int) and not isinstance(dim, bool) and 0 <= dim < 2**31:
            read.append(dim)
        else:
            raise InvalidModel(f"{where}.shape: {dim!r} is no dimension (a whole number from 0, or a name).")
    return tuple(read)


def _read_strides(stride: Any, shape: tuple[int | str, ...], where: str) -> tuple[int, ...] | None:
    if stride is None:
        return None
    whole = isinstance(stride, list) and all(
        isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**40 for step in stride
    )
    if not whole or len(stride) != len(shape):
        raise InvalidModel(f'{where}: "stride" must be a list of {len(shape)} whole numbers from 0.')
    known = [dim if isinstance(dim, int) else 1 for dim in shape]
    return None if tuple(stride) == dense_strides(known) else tuple(stride)


def read_dtype(dtype: Any, where: str) -> str:
    """NumPy's name of a dtype (``bfloat16`` included), from ``float16``, ``torch.float16`` or ``half``."""
    name = str(dtype).removeprefix("torch.")
    name = _SHORT.get(name, name)
    if name not in DTYPES:
        raise InvalidModel(f'{where}: "dtype" {str(dtype)[:40]!r} is not known (float32, int64, bool, …).')
    return name
