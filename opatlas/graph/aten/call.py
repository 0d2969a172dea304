"""Binds a record's arguments to a PyTorch operator's parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.graph.aten.builder import (
    Builder,
    CannotMap,
    Mapped,
    Ref,
    Scalar,
    normal_axis,
    number,
    numpy_dtype,
)
from opatlas.graph.aten.record import DTYPES, CallRecord, TensorArgument

REQUIRED = object()
PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"})
"""Arguments that say where a tensor lies, not what it holds."""

_INDEXED = re.compile(r"(\w+)\[(\d+)\]")


class Call(Builder):
    """One call being mapped: its arguments by parameter name, and the graph it is built into."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.arguments = dict(arguments)
        self._fed: dict[int, Ref] = {}

    def tensor(self, name: str) -> Ref:
        """A tensor argument that must be there."""
        value = self.arguments[name]
        if not isinstance(value, TensorArgument):
            raise CannotMap(f"the argument {name} is no tensor")
        return self._feed(value)

    def optional(self, name: str) -> Ref | None:
        return None if self.arguments[name] is None else self.tensor(name)

    def tensors(self, name: str) -> list[Ref | None]:
        """A list of tensors; None where the list has a hole."""
        value = self.arguments[name]
        values = value if isinstance(value, list) else [value]
        if not all(item is None or isinstance(item, TensorArgument) for item in values):
            raise CannotMap(f"the argument {name} is no list of tensors")
        return [None if item is None else self._feed(item) for item in values]

    def operand(self, name: str) -> Ref | Scalar:
        """A tensor or a number."""
        value = self.arguments[name]
        return self._feed(value) if isinstance(value, TensorArgument) else number(value)

    def number(self, name: str) -> Scalar:
        return number(self.arguments[name])

    def numbers(self, name: str, length: int | None = None) -> list[int]:
        """A list of whole numbers; one number stands for ``length`` of them."""
        value = self.arguments[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
            raise CannotMap(f"the argument {name} is no list of whole numbers")
        if length is not None and len(values) == 1:
            values *= length
        if length is not None and len(values) != length:
            raise CannotMap(f"the argument {name} has {len(values)} numbers, not {length}")
        return values

    def flag(self, name: str) -> bool:
        return bool(self.arguments[name])

    def axis(self, rank: int, name: str = "dim") -> int:
        """An axis argument counted from the front."""
        return normal_axis(self.arguments[name], rank)

    def get(self, name: str) -> Any:
        return self.arguments[name]

    def dtype(self, name: str) -> str | None:
        """A dtype argument's NumPy name."""
        value = self.arguments[name]
        if value is None:
            return None
        text = str(value).removeprefix("torch.")
        if text not in DTYPES:
            raise CannotMap(f"the dtype {text[:40]!r}")
        numpy_dtype(text)  # refuses complex and 8-bit floats
        return text

    def constant_of(self, operand: Ref | Scalar, dtype: str) -> Ref:
        """The operand in a given dtype: cast, or made a constant."""
        if isinstance(operand, Ref):
            return self.cast(operand, dtype)
        return self.constant(operand, dtype, ())

    def _feed(self, tensor: TensorArgument) -> Ref:
        if id(tensor) not in self._fed:
            self._fed[id(tensor)] = self.feed(tensor)
        return self._fed[id(tensor)]


Build = Callable[[Call], Ref | Sequence[Ref]]


@dataclass(frozen=True)
class AtenRule:
    """How one PyTorch operator is written in ONNX. ``parameters`` are PyTorch's, in order, with defaults."""

    parameters: Mapping[str, Any]
    build: Build

    def map(self, record: CallRecord) -> Mapped:
        """Raises :class:`CannotMap`."""
        call = Call(bind(self.parameters, record))
        outputs = self.build(call)
        return call.finish([outputs] if isinstance(outputs, Ref) else list(outputs))


def rule(signature: str, build: Build) -> AtenRule:
    """A rule with its signature as text: ``"self, other, alpha=1"``."""
    parameters: dict[str, Any] = {}
    for part in re.split(r",\s*(?![^\[(]*[\])])", signature):
        name, _, default = part.strip().partition("=")
        parameters[name] = ast.literal_eval(default) if default else REQUIRED
    return AtenRule(parameters, build)


def bind(parameters: Mapping[str, Any], record: CallRecord) -> dict[str, Any]:
    """Arguments by parameter name. Raises :class:`CannotMap` for missing and unknown ones."""
    names = list(parameters)
    bound: dict[str, Any] = {}
    for key, value in record.attrs.items():
        name = _parameter(key, names)
        if name is None and key not in PLACEMENT:
            raise CannotMap(f"the unknown argument {key}")
        if name is not None:
            bound[name] = value
    unnamed: list[TensorArgument] = []
    for tensor in record.inputs:
        if tensor is None:
            continue
        if not tensor.name:
            unnamed.append(tensor)
        elif (indexed := _INDEXED.fullmatch(tensor.name)) and (name := _parameter(indexed[1], names)):
            _put(bound, name, int(indexed[2]), tensor)
        elif name := _parameter(tensor.name, names):
            bound[name] = tensor
        else:
            unnamed.append(tensor)
    for name, tensor in zip([name for name in names if name not in bound], unnamed, strict=False):
        bound[name] = tensor
    arguments = {name: bound.get(name, default) for name, default in parameters.items()}
    if missing := [name for name, value in arguments.items() if value is REQUIRED]:
        raise CannotMap(f"the argument {missing[0]} is missing")
    return arguments


def _parameter(key: str, names: Sequence[str]) -> str | None:
    if key in names:
        return key
    position = int(key[3:]) if re.fullmatch(r"arg\d{1,2}", key) else len(names)
    return names[position] if position < len(names) else None


def _put(bound: dict[str, Any], name: str, index: int, tensor: TensorArgument) -> None:
    items = bound.setdefault(name, [])
    if not isinstance(items, list) or index > 1024:
        raise CannotMap(f"the argument {name} is given twice")
    items.extend([None] * (index + 1 - len(items)))
    items[index] = tensor
