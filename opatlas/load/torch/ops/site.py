"""One node where it stands, with all that is known before the first run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity.dtypes import array
from opatlas.identity.operator import Node, Operator, Value
from opatlas.load.dtypes import EXTENSION_TYPES


class Unsupported(OpatlasError):
    """A node that PyTorch cannot express, and why."""


class TorchSite:
    """What a node's builder reads: attributes, values, and those inputs whose content is already known.

    ``known`` holds constant inputs (torch tensors) by value number.
    ``widen`` is the torch dtype in which the graph's floating values are computed where that is not the
    operator's own (a float64 reference of a float32 operator), else None.
    """

    def __init__(self, operator: Operator, node: Node, known: Mapping[int, Any], widen: Any = None) -> None:
        self.operator, self.node, self.widen = operator, node, widen
        self.attrs = node.attributes
        self._known = known

    def has(self, position: int) -> bool:
        """Whether the node's input at ``position`` is there."""
        return position < len(self.node.inputs) and self.node.inputs[position] >= 0

    def wants(self, position: int) -> bool:
        """Whether anybody asked for the node's output at ``position``."""
        return position < len(self.node.outputs) and self.node.outputs[position] >= 0

    def input(self, position: int) -> Value:
        return self.operator.value(self.node.inputs[position])

    def output(self, position: int = 0) -> Value:
        return self.operator.value(self.node.outputs[position])

    def shape(self, position: int) -> tuple[int, ...]:
        return self.input(position).shape

    def rank(self, position: int = 0) -> int:
        return len(self.input(position).shape)

    def axis(self, name: str = "axis", default: int = 0, position: int = 0) -> int:
        """An axis attribute, counted from the front."""
        axis = int(self.attrs.get(name, default))
        return axis + self.rank(position) if axis < 0 else axis

    def content(self, position: int) -> np.ndarray | None:
        """The values of an input that are known now; None for one that is absent or comes with every run."""
        if not self.has(position):
            return None
        number = self.node.inputs[position]
        value = self.operator.value(number)
        if value.data is not None:
            return array(value.data, value.dtype, value.shape)
        if number in self._known:
            known = self._known[number]
            return np.asarray(known.float() if value.dtype in EXTENSION_TYPES else known)
        return None

    def numbers(self, position: int, name: str) -> list[int]:
        """The integers of an input that shapes the computation; raises where they come only at run time."""
        content = self.content(position)
        if content is None:
            raise Unsupported(f"{self.node.op} with its {name} known only at run time")
        return [int(number) for number in content.reshape(-1)]

    def axes(self, position: int = 1) -> list[int] | None:
        """Axes given as an input (or, before opset 13, as an attribute), counted from the front."""
        if self.has(position):
            axes = self.numbers(position, "axes")
        elif "axes" in self.attrs:
            axes = [int(axis) for axis in self.attrs["axes"]]
        else:
            return None
        return [axis + self.rank() if axis < 0 else axis for axis in axes]

    def scalar(self, position: int) -> float | int | bool | None:
        """A one-element input as a Python number; None where it is absent or not known yet."""
        content = self.content(position)
        return None if content is None or content.size != 1 else content.reshape(-1)[0].item()

    def flag(self, name: str, default: int = 0) -> bool:
        return bool(self.attrs.get(name, default))
