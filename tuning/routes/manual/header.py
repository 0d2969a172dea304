"""``opatlas_operator.h``: one operator's shapes, strides and attributes as C macros.

One generic source serves many shapes: it is compiled for each operator with these numbers as constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opatlas.identity import Operator, Setting
from opatlas.identity.operator import Value
from opatlas.load.buffers import element_strides
from opatlas.load.dtypes import ONNX_NUMBER

NAME = "opatlas_operator.h"
ALIGNMENT = 64  # bytes, of every tensor that a kernel is given
_MOST_VALUES = 64  # of a list attribute or of an input's data

_COMMON_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class Dialect:
    """What differs between the languages that the header is for."""

    preamble: tuple[str, ...]
    types: Mapping[str, str]


C = Dialect(
    ('#include "opatlas_abi.h"',),
    {**_COMMON_TYPES, "float16": "uint16_t", "bfloat16": "uint16_t"},  # their bits
)
_SIZED = {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
CUDA = Dialect(
    (  # NVRTC has no <stdint.h>
        *(f"typedef {written} {name}_t;" for name, written in _SIZED.items()),
        *(
            f"typedef unsigned {written.removeprefix('signed ')} u{name}_t;"
            for name, written in _SIZED.items()
        ),
    ),
    {**_COMMON_TYPES, "float16": "__half", "bfloat16": "__nv_bfloat16"},
)


def whole_numbers(header: str) -> dict[str, int]:
    """The macros of a header that are whole numbers."""
    return {name: int(text) for name, text in _WHOLE.findall(header)}


_WHOLE = re.compile(r"^#define (\w+) \(?(-?\d+)\)?$", re.MULTILINE)


def header(operator: Operator, setting: Setting, dialect: Dialect = C) -> str:
    """The header's text; docs/kernels.md describes its macros."""
    inputs = [operator.inputs[number] for number in operator.tensor_inputs]
    constants = sum(value.role == "const" for value in inputs)
    lines = [
        "/* Written by Opatlas for one operator. */",
        "#ifndef OPATLAS_OPERATOR_H",
        "#define OPATLAS_OPERATOR_H",
        *dialect.preamble,
        f"#define OPATLAS_OP {_text('+'.join(operator.op_types))}",
        f"#define OPATLAS_THREADS {setting.threads}",
        f"#define OPATLAS_ALIGNMENT {ALIGNMENT}",
        f"#define OPATLAS_INPUTS {len(inputs)}",
        f"#define OPATLAS_CONSTANTS {constants}",
        f"#define OPATLAS_OUTPUTS {len(operator.outputs)}",
    ]
    for number, value in enumerate(inputs):
        lines += _tensor(f"IN{number}", value, dialect)
        lines.append(f"#define IN{number}_CONST {int(value.role == 'const')}")
    for number, value in enumerate(operator.output_values):
        lines += _tensor(f"OUT{number}", value, dialect)
    shaping = [value for value in operator.inputs if value.data is not None]
    for number, value in enumerate(shaping):
        lines += _attribute(f"DATA{number}", list(value.data or ()))
    seen: set[str] = set()
    for number, node in enumerate(operator.nodes):
        lines.append(f"#define NODE{number}_OP {_text(node.op)}")
        for name, attribute in node.attrs:
            macro = _macro(name)
            lines += _attribute(f"NODE{number}_{macro}", attribute)
            if macro not in seen:
                seen.add(macro)
                lines += _attribute(f"ATTR_{macro}", attribute)
    return "\n".join([*lines, "#endif", ""])


def _tensor(prefix: str, value: Value, dialect: Dialect) -> Iterator[str]:
    rank, strides, size = len(value.shape), element_strides(value), 1
    for axis, (dim, stride) in enumerate(zip(value.shape, strides, strict=True)):
        size *= dim
        yield f"#define {prefix}_DIM{axis} {dim}"
        yield f"#define {prefix}_STRIDE{axis} {stride}"
        yield f"#define {prefix}_LAST{rank - axis} {dim}"  # LAST1 is the last dimension
    yield f"#define {prefix}_RANK {rank}"
    yield f"#define {prefix}_SIZE {size}"
    yield f"#define {prefix}_DENSE {int(value.strides is None)}"
    yield f"#define {prefix}_DTYPE {ONNX_NUMBER.get(value.dtype, 0)}"
    if value.dtype in dialect.types:
        yield f"#define {prefix}_TYPE {dialect.types[value.dtype]}"


def _attribute(macro: str, value: Any) -> Iterator[str]:
    """Numbers and texts as they are, lists by ``_COUNT`` and ``_0`` …; tensors are left out."""
    if isinstance(value, list | tuple):
        if len(value) <= _MOST_VALUES and all(isinstance(item, int | float | str) for item in value):
            yield f"#define {macro}_COUNT {len(value)}"
            for number, item in enumerate(value):
                yield from _attribute(f"{macro}_{number}", item)
    elif isinstance(value, bool):
        yield f"#define {macro} {int(value)}"
    elif isinstance(value, int):
        yield f"#define {macro} ({value if abs(value) < 2**63 else 0})"
    elif isinstance(value, float):
        yield f"#define {macro} ({_float(value)})"
    elif isinstance(value, str):
        yield f"#define {macro} {_text(value)}"


def _float(value: float) -> str:
    if value != value:
        return '__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return repr(value)


def _macro(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())[:100]


def _text(value: str) -> str:
    """A C string literal; everything that is not a plain letter or sign is written in octal."""
    plain = re.compile(rb"[A-Za-z0-9 +_.,:;()-]")
    octets = (bytes([byte]) for byte in value[:200].encode("utf-8", "replace"))
    return '"' + "".join(o.decode() if plain.fullmatch(o) else f"\\{o[0]:03o}" for o in octets) + '"'
