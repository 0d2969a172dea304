"""The graph while it is being made canonical: named values, and nodes one by one.

Everything in here is private to :mod:`opatlas.identity`; names are the caller's or made up, numbers come
last (:mod:`opatlas.identity.order`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from opatlas.identity.bounds import MAX_STATIC, refuse, shown
from opatlas.identity.dtypes import FLOATS, NAMES, array, long_float, numpy_dtype, plain, short_float
from opatlas.identity.operator import Value


@dataclass(slots=True)
class NodeStep:
    """One node by names; an empty input name is an optional input left out."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    where: str = ""  # the place in the caller's document

    def input(self, position: int) -> str:
        """The name at ``position``, "" where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else ""

    def need(self, truth: bool, sentence: str) -> None:
        """Refuse the node with the sentence where what it needs is not so."""
        if not truth:
            refuse(f"{self.op}: {sentence}.")

    def set_input(self, position: int, name: str) -> None:
        """Put ``name`` at ``position``, trailing left-out inputs trimmed."""
        self.inputs.extend([""] * (position + 1 - len(self.inputs)))
        self.inputs[position] = name
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()


@dataclass
class SourceGraph:
    """A caller's graph as it was read: any opset, nothing settled yet."""

    opset: int
    values: dict[str, Value]  # graph inputs and constants, without data
    steps: list[NodeStep]
    outputs: list[str]
    contents: dict[str, TensorProto | Value] = field(default_factory=dict)  # constants', read only if needed
    expected: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # dtype and shape, as told


class Workbench:
    """Values known so far, with the means to read constants and to make new ones."""

    def __init__(self, source: SourceGraph) -> None:
        self.source = source
        self.values: dict[str, Value] = dict(source.values)
        self.statics: dict[tuple[Value, str], str] = {}
        self.origin: dict[str, str] = {}  # a static value's name → the caller's name of it
        self.count = 0

    def fresh(self) -> str:
        """A name that no value has."""
        while True:
            self.count += 1
            name = f"~{self.count}"
            if name not in self.values:
                return name

    def value(self, name: str) -> Value:
        return self.values[name]

    def shape(self, step: NodeStep, position: int = 0) -> tuple[int, ...]:
        return self.values[step.inputs[position]].shape

    def make_static(
        self, data: Iterable[Any], dtype: str = "int64", shape: Sequence[int] | None = None
    ) -> str:
        """The name of a constant with these values (1-D where no shape is given); equal ones share it."""
        items = tuple(data)
        if dtype in FLOATS:  # as this very type holds them
            items = tuple(short_float(long_float(item), dtype) for item in items)
        shape = (len(items),) if shape is None else tuple(shape)
        value = Value(dtype=dtype, shape=shape, role="const", data=items)
        key = (value, repr(items))  # 0.0 and -0.0 are equal to Python, and not to a computation
        if key not in self.statics:
            name = self.statics[key] = self.fresh()
            self.values[name] = value
        return self.statics[key]

    def static(self, step: NodeStep, position: int, word: str) -> Value | None:
        """The values of an input that shapes the computation; None where it is left out."""
        name = step.input(position)
        if not name:
            return None
        value = self.values[name]
        if value.data is not None:
            return value
        content = self.source.contents.get(name)
        if content is None:
            refuse(
                f"{step.op}'s input {position} ({word}) shapes the computation, so that its values must be "
                f"known: give them as 'data', or as an initializer or Constant in ONNX."
            )
        if isinstance(content, Value):
            return content
        return read_tensor(content, f"{step.op}'s input {position} ({word})")

    def ints(self, step: NodeStep, position: int, word: str) -> list[int] | None:
        """The integers of a static input as a list; None where it is left out."""
        value = self.static(step, position, word)
        if value is None:
            return None
        if not value.dtype.startswith(("int", "uint")) or value.data is None:
            refuse(f"{step.op}'s input {position} ({word}) is {value.dtype}; it must be int64.")
        return [int(item) for item in value.data]


def read_tensor(tensor: TensorProto, what: str) -> Value:
    """A small constant as a value with its data."""
    if tensor.data_type not in NAMES:
        refuse(f"{what} has an element type that is not known here.")
    elements = 1
    for dim in tensor.dims:
        elements *= max(int(dim), 0)
    if elements > MAX_STATIC:
        refuse(f"{what} has {elements} values; at most {MAX_STATIC} may shape a computation.")
    try:
        values = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, IndexError) as error:
        refuse(f"{what} cannot be read as a tensor: {shown(error)}.")
    dtype = NAMES[tensor.data_type]
    return Value(dtype=dtype, shape=tuple(values.shape), role="const", data=plain(values, dtype))


def as_array(value: Value) -> np.ndarray:
    """A static value as an array."""
    return array(value.data or (), value.dtype, value.shape)


def cast_static(value: Value, dtype: str) -> Value:
    """A static value in another element type."""
    values = as_array(value).astype(numpy_dtype(dtype))
    return Value(dtype=dtype, shape=value.shape, role="const", data=plain(values, dtype))
