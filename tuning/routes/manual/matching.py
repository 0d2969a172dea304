"""Which operators a hand-written kernel serves: a small declarative pattern, parsed and matched.

A pattern is JSON::

    {"op": "Softmax",                                   # or ["Softmax", "LogSoftmax"], "Conv+Relu"
     "attributes": {"axis": -1},                        # every named one must hold
     "inputs": [{"rank": {"min": 1}, "dtype": "float32", "contiguous": true, "role": "runtime",
                 "dims": {"-1": {"multiple_of": 8, "max": 4096}}}],
     "outputs": []}

``op`` is the operator's type as the catalogue shows it: node types in order with ``+`` between. A number may
be given as itself, or as bounds: ``min``, ``max``, ``multiple_of``, ``one_of``. ``inputs`` are the tensors
that the kernel is given, in order (shape-giving inputs, which have their data in the graph, are not counted);
a kernel serves operators with exactly as many, null standing for any tensor. What a pattern does not name is
free: a pattern without ``contiguous`` says that the kernel reads strides. A negative ``axis`` counts from the
end, as dimensions do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.errors import CallerError
from opatlas.identity import Operator
from opatlas.identity.operator import Value
from opatlas.load.dtypes import ONNX_NUMBER

MOST_TENSORS = 16
MOST_OPS = 16
MOST_DIMS = 16
MOST_CHOICES = 64
MOST_ATTRIBUTES = 32

_BOUNDS = ("min", "max", "multiple_of", "one_of")
_LARGEST = 2**53


class InvalidPattern(CallerError):
    """A pattern that says nothing clear; ``where`` points into it."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


@dataclass(frozen=True)
class Condition:
    """What one value must be: one of some, within bounds, a multiple."""

    one_of: tuple[Any, ...] | None = None
    low: float | None = None
    high: float | None = None
    multiple_of: int | None = None

    def refuses(self, value: Any) -> str:
        """Empty where the value is right, else what it would have to be."""
        if self.one_of is not None and not any(same(value, choice) for choice in self.one_of):
            return " or ".join(str(choice) for choice in self.one_of)
        if self.low is None and self.high is None and self.multiple_of is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "a number"
        if self.low is not None and value < self.low:
            return f"at least {self.low}"
        if self.high is not None and value > self.high:
            return f"at most {self.high}"
        if self.multiple_of is not None and value % self.multiple_of:
            return f"a multiple of {self.multiple_of}"
        return ""


@dataclass(frozen=True)
class TensorPattern:
    """What one input or output must be."""

    rank: Condition = Condition()
    dtypes: tuple[str, ...] = ()  # empty: any
    role: str = ""
    contiguous: bool = False
    dims: tuple[tuple[int, Condition], ...] = ()  # (axis, negative from the end; what its size must be)

    def refuses(self, value: Value) -> str:
        if self.dtypes and value.dtype not in self.dtypes:
            return f"is {value.dtype}, not {' or '.join(self.dtypes)}"
        if self.role and value.role != self.role:
            return f"is {value.role}, not {self.role}"
        if self.contiguous and value.strides is not None:
            return "is strided, not row-major and dense"
        if wrong := self.rank.refuses(len(value.shape)):
            return f"has rank {len(value.shape)}, not {wrong}"
        for axis, condition in self.dims:
            if not -len(value.shape) <= axis < len(value.shape):
                return f"has no dimension {axis}"
            if wrong := condition.refuses(value.shape[axis]):
                return f"has {value.shape[axis]} in dimension {axis}, not {wrong}"
        return ""


@dataclass(frozen=True)
class Pattern:
    """Which operators a kernel serves."""

    ops: tuple[str, ...]
    attributes: tuple[tuple[str, Condition], ...] = ()
    inputs: tuple[TensorPattern | None, ...] | None = None  # None: any number of any
    outputs: tuple[TensorPattern | None, ...] | None = None

    def refuses(self, operator: Operator) -> str:
        """Empty where the operator matches, else the first reason why it does not."""
        op = "+".join(operator.op_types)
        if op not in self.ops:
            return f"it is {op}, not {' or '.join(self.ops)}"
        for name, condition in self.attributes:
            node = next((node for node in operator.nodes if name in node.attributes), None)
            if node is None:
                return f"it has no attribute {name}"
            if wrong := _refuses_attribute(name, condition, node.attributes[name], operator):
                return f"its {name} is {node.attributes[name]}, not {wrong}"
        given = [operator.inputs[number] for number in operator.tensor_inputs]
        return _refuses("input", self.inputs, given) or _refuses(
            "output", self.outputs, operator.output_values
        )


def _refuses_attribute(name: str, condition: Condition, value: Any, operator: Operator) -> str:
    wrong = condition.refuses(value)
    if wrong and name == "axis" and isinstance(value, int) and operator.tensor_inputs:
        # Operators are kept with axes counted from the front; a pattern may count from the end.
        return "" if not condition.refuses(value - len(operator.inputs[0].shape)) else wrong
    return wrong


def same(value: Any, wanted: Any) -> bool:
    """Equal as JSON: lists and tuples alike, but true is not 1."""
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _refuses(what: str, wanted: Sequence[TensorPattern | None] | None, values: Sequence[Value]) -> str:
    if wanted is None:
        return ""
    if len(wanted) != len(values):
        return f"it has {len(values)} {what}s, not {len(wanted)}"
    for number, (pattern, value) in enumerate(zip(wanted, values, strict=True)):
        if pattern is not None and (reason := pattern.refuses(value)):
            return f"{what} {number} {reason}"
    return ""


# ---- reading ----------------------------------------------------------------------------------------


def parse_pattern(document: Any) -> Pattern:
    """Read a pattern; raises :class:`InvalidPattern` with what would be right."""
    given = _object(document, "pattern", ("op", "attributes", "inputs", "outputs"))
    ops = _strings(given.get("op"), "pattern.op", MOST_OPS, 'an operator type such as "Softmax"')
    if not all(ops) or any(len(op) > 100 for op in ops):
        raise InvalidPattern("An operator type has 1 to 100 characters.", "pattern.op")
    attributes = _object(given.get("attributes", {}), "pattern.attributes")
    if len(attributes) > MOST_ATTRIBUTES:
        raise InvalidPattern(f"A pattern names at most {MOST_ATTRIBUTES} attributes.", "pattern.attributes")
    conditions = [
        (str(name), _condition(value, f"pattern.attributes.{str(name)[:40]}"))
        for name, value in sorted(attributes.items())
    ]
    return Pattern(ops, tuple(conditions), *(_tensors(given, name) for name in ("inputs", "outputs")))


def _tensors(given: Mapping[str, Any], name: str) -> tuple[TensorPattern | None, ...] | None:
    if name not in given:
        return None
    where, documents = f"pattern.{name}", given[name]
    if not isinstance(documents, list) or len(documents) > MOST_TENSORS:
        raise InvalidPattern(f"{name} must be a list of at most {MOST_TENSORS} tensor patterns.", where)
    return tuple(
        None if document is None else _tensor(document, f"{where}[{number}]")
        for number, document in enumerate(documents)
    )


def _tensor(document: Any, where: str) -> TensorPattern:
    given = _object(document, where, ("rank", "dtype", "role", "contiguous", "dims"))
    dtypes: tuple[str, ...] = ()
    if "dtype" in given:
        dtypes = _strings(given["dtype"], f"{where}.dtype", len(ONNX_NUMBER), 'a type such as "float32"')
        for dtype in dtypes:
            if dtype not in ONNX_NUMBER:
                raise InvalidPattern(
                    f"There is no element type {dtype[:40]!r}; there are {', '.join(ONNX_NUMBER)}.",
                    f"{where}.dtype",
                )
    role = given.get("role", "")
    if role not in ("", "runtime", "const"):
        raise InvalidPattern('A role is "runtime" or "const".', f"{where}.role")
    contiguous = given.get("contiguous", False)
    if not isinstance(contiguous, bool):
        raise InvalidPattern("contiguous is true or false.", f"{where}.contiguous")
    rank = _condition(given["rank"], f"{where}.rank", sizes=True) if "rank" in given else Condition()
    dims = _object(given.get("dims", {}), f"{where}.dims")
    if len(dims) > MOST_DIMS:
        raise InvalidPattern(f"A tensor pattern names at most {MOST_DIMS} dimensions.", f"{where}.dims")
    sizes = [
        (_axis(name, f"{where}.dims"), _condition(value, f"{where}.dims.{str(name)[:10]}", sizes=True))
        for name, value in dims.items()
    ]
    return TensorPattern(rank, dtypes, role, contiguous, tuple(sizes))


def _axis(name: Any, where: str) -> int:
    text = str(name)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 2):
        raise InvalidPattern('dims are named by their axis: "0" is the first, "-1" the last.', where)
    return int(text)


def _condition(document: Any, where: str, *, sizes: bool = False) -> Condition:
    """A value itself, or an object of bounds. ``sizes``: whole numbers from 0 only."""
    if not isinstance(document, Mapping):
        return Condition(one_of=(_value(document, where, sizes),))
    given = _object(document, where, _BOUNDS)
    if not given:
        raise InvalidPattern(f"Bounds are some of {', '.join(_BOUNDS)}.", where)
    one_of: tuple[Any, ...] | None = None
    if "one_of" in given:
        choices = given["one_of"]
        if not isinstance(choices, list) or not 1 <= len(choices) <= MOST_CHOICES:
            raise InvalidPattern(f"one_of is a list of 1 to {MOST_CHOICES} values.", f"{where}.one_of")
        one_of = tuple(_value(choice, f"{where}.one_of", sizes) for choice in choices)
    low, high = (_number(given, name, where, sizes) for name in ("min", "max"))
    if low is not None and high is not None and low > high:
        raise InvalidPattern(f"min {low} is above max {high}: nothing could match.", where)
    multiple = given.get("multiple_of")
    if multiple is not None and not (_whole(multiple) and multiple >= 1):
        raise InvalidPattern("multiple_of is a whole number from 1.", f"{where}.multiple_of")
    return Condition(one_of, low, high, multiple)


def _value(value: Any, where: str, sizes: bool) -> Any:
    if sizes and not (_whole(value) and value >= 0):
        raise InvalidPattern("A size is a whole number from 0, or bounds such as {'max': 64}.", where)
    if isinstance(value, list) and len(value) <= MOST_CHOICES and not any(isinstance(v, list) for v in value):
        return tuple(_value(item, where, sizes) for item in value)
    if not isinstance(value, str | int | float) or (
        not isinstance(value, str) and not abs(value) <= _LARGEST
    ):
        raise InvalidPattern("A value is a text, a number, true, false or a list of those.", where)
    if isinstance(value, str) and len(value) > 200:
        raise InvalidPattern("A text in a pattern has at most 200 characters.", where)
    return value


def _number(given: Mapping[str, Any], name: str, where: str, sizes: bool) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if not number or (sizes and not (_whole(value) and value >= 0)):
        kind = "whole number from 0" if sizes else "number"
        raise InvalidPattern(f"{name} is a {kind}.", f"{where}.{name}")
    return value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _strings(value: Any, where: str, most: int, what: str) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if (
        not isinstance(values, list)
        or not 1 <= len(values) <= most
        or not all(isinstance(item, str) for item in values)
    ):
        raise InvalidPattern(f"{where.rpartition('.')[2]} is {what}, or a list of such.", where)
    return tuple(values)


def _object(value: Any, where: str, known: Sequence[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidPattern(f"{where.rpartition('.')[2]} must be a JSON object.", where)
    for name in value:
        if known is not None and name not in known:
            raise InvalidPattern(f"There is no {str(name)[:40]!r} here; there are {', '.join(known)}.", where)
    return value
