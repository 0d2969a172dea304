"""Random operators as a caller might describe them: every ONNX type, with element types, shapes and
attributes that its schema allows, and values that nobody expects. The same seed gives the same operators."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from onnx import defs

from opatlas.errors import InvalidOperator
from opatlas.identity import OPSET, parse_operator
from opatlas.identity.admission.words import FLAGS, WORDS
from opatlas.identity.dtypes import CODES
from opatlas.identity.statics import STATIC

DIMS = (1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 16, 64)
ODD_DIMS = (0, 1000, 4096, 2**31 - 1)
_SPELT = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
}  # fmt: skip
_TYPES = sorted(
    {one.name for one in defs.get_all_schemas_with_history() if not one.domain and one.since_version <= OPSET}
)


def admissible(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """So many operators that identity admits, as JSON of the form ``op``; each type comes as often."""
    draw = random.Random(seed)
    given = 0
    while given < count:
        op = draw.choice(_TYPES)
        for _ in range(40):
            document = described(draw, op)
            if document is not None and _is_admitted(document):
                given += 1
                yield document
                break


def described(draw: random.Random, op: str) -> dict[str, Any] | None:
    """One operator of this type as somebody might describe it; None where it takes no tensors."""
    schema = defs.get_schema(op, OPSET, "")
    dtypes: dict[str, str] = {}
    for formal in (*schema.inputs, *schema.outputs):
        allowed = sorted(filter(None, map(_dtype, formal.types)))
        if not allowed:
            return None
        dtypes.setdefault(formal.type_str, draw.choice(allowed))
    base = _shape(draw, draw.choice((0, 1, 2, 2, 3, 4, 4, 5)))
    way = draw.choice((_same, _same, _channels, _broadcast, _other))
    inputs: list[Any] = []
    for number, formal in enumerate(schema.inputs):
        if formal.option == formal.option.__class__.Optional and draw.random() < 0.6:
            inputs.append(None)
            continue
        repeats = draw.choice((1, 2, 3)) if formal.option == formal.option.__class__.Variadic else 1
        for _ in range(repeats):
            shape = base if number == 0 else way(draw, base)
            inputs.append(_tensor(draw, op, number, dtypes[formal.type_str], shape))
    attrs = {
        name: _attribute(draw, op, name, one, len(base))
        for name, one in schema.attributes.items()
        if one.required or draw.random() < 0.3
    }
    attrs = {name: value for name, value in attrs.items() if value is not None}
    return {"op": op, "inputs": inputs, **({"attrs": attrs} if attrs else {})}


def _is_admitted(document: dict[str, Any]) -> bool:
    try:
        parse_operator(document)
    except InvalidOperator:
        return False
    return True


def _dtype(spelt: str) -> str:
    """``tensor(float)`` as NumPy's name; empty for what is no tensor of numbers."""
    name = spelt.removeprefix("tensor(").removesuffix(")")
    name = _SPELT.get(name, name)
    return name if spelt.startswith("tensor(") and name in CODES else ""


def _shape(draw: random.Random, rank: int) -> list[int]:
    dims = [draw.choice(DIMS) for _ in range(rank)]
    if dims and draw.random() < 0.1:
        dims[draw.randrange(rank)] = draw.choice(ODD_DIMS)
    return dims


def _same(draw: random.Random, base: list[int]) -> list[int]:
    return list(base)


def _channels(draw: random.Random, base: list[int]) -> list[int]:
    return base[1:2]


def _broadcast(draw: random.Random, base: list[int]) -> list[int]:
    return [draw.choice((1, size)) for size in base[draw.randint(0, len(base)) :]]


def _other(draw: random.Random, base: list[int]) -> list[int]:
    return _shape(draw, draw.randint(0, 5))


def _tensor(draw: random.Random, op: str, number: int, dtype: str, shape: list[int]) -> dict[str, Any]:
    if number in STATIC.get(op, {}):
        count = draw.randint(1, 4)
        return {
            "dtype": dtype,
            "shape": [count],
            "data": [draw.choice((-1, 0, 1, 2, 3)) for _ in range(count)],
        }
    tensor: dict[str, Any] = {"dtype": dtype, "shape": shape}
    if draw.random() < 0.3:
        tensor["const"] = True
    return tensor


def _attribute(draw: random.Random, op: str, name: str, schema: Any, rank: int) -> Any:
    kind = str(schema.type).rsplit(".", 1)[-1]
    if (op, name) in WORDS:
        word = draw.choice(WORDS[op, name])
        return [word] if kind == "STRINGS" else word
    if name in FLAGS:
        return draw.choice((0, 1))
    if kind == "INT":
        return (
            draw.choice(sorted(CODES.values())) if name in ("to", "dtype") else draw.choice((-1, 0, 1, 2, 3))
        )
    if kind == "INTS":
        return [draw.choice((0, 1, 1, 2)) for _ in range(draw.choice((1, 2, max(rank - 2, 1), rank or 1)))]
    if kind == "FLOAT":
        return draw.choice((0.0, 0.5, 1.0, -1.0, 1e30, "inf", "nan"))
    if kind == "FLOATS":
        return [draw.choice((0.0, 0.5, 1.0)) for _ in range(draw.randint(1, 4))]
    return None
