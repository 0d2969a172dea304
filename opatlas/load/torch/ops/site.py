"""One node in its graph, with all that is known before the first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity.dtypes import array
from opatlas.identity.operator import Node, Operator, Value
from opatlas.load.dtypes import EXTENSION_TYPES


class Unsupported(OpatlasError):
    """A node that PyTorch cannot express, and why."""


class TorchSite:
    """What a node's builder reads: attributes, values, and inputs whose content is known. The operator is
    canonical: all defaults are written out, and inputs that shape the computation have values. ``known``:
    constant inputs (torch tensors) by value number. ``widen``: the torch dtype for the graph's floating
    values if it is not the operator's own (a float64 reference of a float32 operator), else None."""

    def __init__(self, operator: Operator, node: Node, known: Mapping[int, Any], widen: Any = None) -> None:
        self.operator, self.node, self.widen = operator, node, widen
        self.attrs = node.attributes
        self._known = known

    def has(self, position: int) -> bool:
        """Whether the node has an input at ``position``."""
        return position < len(self.node.inputs) and self.node.inputs[position] >= 0

    def wants(self, position: int) -> bool:
        """Whether the node's output at ``position`` is needed."""
        return position < len(self.node.outputs) and self.node.outputs[position] >= 0

    def input(self, position: int) -> Value:
        return self.operator.value(self.node.inputs[position])

    def output(self, position: int = 0) -> Value:
        return self.operator.value(self.node.outputs[position])

    def shape(self, position: int) -> tuple[int, ...]:
        return self.input(position).shape

    def rank(self, position: int = 0) -> int:
        return len(self.input(position).shape)

    def axis(self, name: str = "axis") -> int:
        """An axis attribute: the canonical form counts it from the front."""
        return int(self.attrs[name])

    def number(self, name: str) -> float:
        return float(self.attrs[name])

    def content(self, position: int) -> np.ndarray | None:
        """The known values of an input; None for an absent one, or one that comes with every run."""
        if not self.has(position):
            return None
        number = self.node.inputs[position]
        value = self.operator.value(number)
        if value.data is not None:
            return array(value.data, value.dtype, value.shape)
        if number in self._known:
            known = self._known[number]
            if not isinstance(known, np.ndarray):  # a tensor, which may lie on a device
                known = known.cpu()
            return np.asarray(known.float() if value.dtype in EXTENSION_TYPES else known)
        return None

    def numbers(self, position: int) -> list[int]:
        """The integers of an input that shapes the computation: the canonical form has them."""
        return [int(number) for number in self.input(position).data or ()]

    def pads(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The padding before and after each spatial dimension."""
        pads = self.attrs["pads"]
        return pads[: len(pads) // 2], pads[len(pads) // 2 :]

    def cuts(self) -> tuple[slice, ...]:
        """The part of each axis that a Slice takes."""
        index = [slice(None)] * self.rank()
        starts, ends, axes, steps = (self.numbers(position) for position in range(1, 5))
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            index[axis] = slice(start, end if end >= 0 else None, step)
        return tuple(index)

    def forward_cuts(self) -> tuple[tuple[slice, ...], list[int]]:
        """The same with every backward step as a forward one, and the axes to reverse afterwards."""
        index = list(self.cuts())
        turned = [axis for axis, cut in enumerate(index) if (cut.step or 1) < 0]
        for axis in turned:
            rows = range(self.shape(0)[axis])[index[axis]]
            index[axis] = slice(rows[-1], rows[0] + 1, -rows.step)
        return tuple(index), turned

    def axes(self) -> list[int]:
        """The axes that a reduction removes; empty if there are none."""
        return self.numbers(1) if self.has(1) else []

    def scalar(self, position: int) -> float | int | bool | None:
        """A one-element input as a Python number; None if it is absent or not known yet."""
        content = self.content(position)
        return None if content is None or content.size != 1 else content.reshape(-1)[0].item()

    def static(self, position: int) -> float | int | bool:
        """The one number of an input that shapes the computation."""
        number = self.scalar(position)
        assert number is not None, "the canonical form has it"
        return number

    def flag(self, name: str) -> bool:
        return bool(self.attrs.get(name))


Built = Callable[..., Any]
Builder = Callable[[TorchSite], Built]


def plain(function: Built) -> Builder:
    """The builder of a type that is one function, whatever the node's attributes."""
    return lambda site: function


def is_hard_sigmoid(site: TorchSite) -> bool:
    """Whether PyTorch and oneDNN have a call for a HardSigmoid with these numbers."""
    return abs(site.number("alpha") - 1 / 6) < 1e-7 and site.number("beta") == 0.5
