"""What is to be decided: which of its layouts each operator of a model runs in. PURE.

A value is made in one layout and read in others; where they differ a reorder stands between, once for each
layout that it is wanted in and not once for each reader, in whichever body on the way to its readers runs
least often.

Nodes that may run as one operator have an option for each such operator that they could be part of, in each
of its layouts: what they hand to one another lies *inside* it then (``names.inside``), which no reorder makes
of anything else. So who is part of one takes all of it with it, and operators that share nodes exclude each
other, without a word of that in the solvers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opatlas.errors import CallerError
from opatlas.graph.linked import BodyPath
from opatlas.graph.types import TensorType

ReorderOf = tuple[TensorType, str, str]
"""A tensor's type, the layout that it is in, and the one that it is wanted in."""


class InvalidLayouts(CallerError):
    """Layouts, costs or counts that cannot be, or that do not fit together."""


@dataclass(frozen=True)
class MarkedCost:
    """Microseconds of one run; ``is_estimate``: nobody has measured it yet."""

    us: float
    is_estimate: bool = False


@dataclass(frozen=True)
class LayoutOption:
    """One layout of each of a node's reads and of each value that it makes, and what it takes so."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cost: MarkedCost


@dataclass(frozen=True)
class LayoutRead:
    """``body``: where it is read, which is where the value is made or a body in it."""

    value: str
    body: BodyPath


@dataclass(frozen=True)
class LayoutNode:
    """One operator, or what has the same layout on all sides; of options that cost the same the first is
    taken."""

    name: str
    body: BodyPath
    reads: tuple[LayoutRead, ...]
    makes: tuple[str, ...]
    options: tuple[LayoutOption, ...]


@dataclass(frozen=True)
class LayoutValue:
    """``body``: where it is made; ``reorders``: of the whole value, by the layouts from and to."""

    body: BodyPath
    reorders: Mapping[tuple[str, str], MarkedCost]


@dataclass(frozen=True)
class LayoutProblem:
    """``counts``: how often each body runs in one run of the model. Raises :class:`InvalidLayouts` unless it
    all fits together."""

    nodes: tuple[LayoutNode, ...]
    values: Mapping[str, LayoutValue]
    counts: Mapping[BodyPath, float]

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names):
            raise InvalidLayouts("Two nodes have the same name.")
        made = [value for node in self.nodes for value in node.makes]
        if sorted(made) != sorted(self.values):
            raise InvalidLayouts("Each value must be made by one node.")
        for node in self.nodes:
            self._check_node(node)
        _check_numbers(self.counts.values(), "A count")
        costs = (cost.us for value in self.values.values() for cost in value.reorders.values())
        _check_numbers(costs, "A reorder's cost")

    def _check_node(self, node: LayoutNode) -> None:
        if not node.options:
            raise InvalidLayouts(f"Node {node.name} has no layout that it could run in.")
        for option in node.options:
            if (len(option.inputs), len(option.outputs)) != (len(node.reads), len(node.makes)):
                raise InvalidLayouts(
                    f"Node {node.name} reads {len(node.reads)} values and makes {len(node.makes)}; its "
                    f"layouts are of {len(option.inputs)} and {len(option.outputs)}."
                )
        _check_numbers((option.cost.us for option in node.options), f"A cost of node {node.name}")
        for read in node.reads:
            if read.value not in self.values:
                raise InvalidLayouts(f"Node {node.name} reads '{read.value}', which nothing makes.")
            made_in = self.values[read.value].body
            if read.body[: len(made_in)] != made_in or (len(read.body) - len(made_in)) % 2:
                raise InvalidLayouts(f"Node {node.name} reads '{read.value}' outside the body that makes it.")
        made_in_bodies = (self.values[one].body for one in node.makes)
        bodies = [node.body, *(read.body for read in node.reads), *made_in_bodies]
        for body in bodies:
            if any(one not in self.counts for one in (*on_the_way((), body), body)):
                raise InvalidLayouts(f"Nothing says how often the body of node {node.name} runs.")

    def least_on_the_way(self, read: LayoutRead) -> float:
        """Runs of that body, from where a value is made to where it is read, that runs least often."""
        return min(self.counts[one] for one in on_the_way(self.values[read.value].body, read.body))

    def layouts_made(self, node: LayoutNode, value: str) -> list[str]:
        """By option."""
        at = node.makes.index(value)
        return [option.outputs[at] for option in node.options]


def on_the_way(outer: BodyPath, inner: BodyPath) -> list[BodyPath]:
    """Bodies from one to another in it, both with them."""
    return [inner[:depth] for depth in range(len(outer), len(inner) + 1, 2)]


def _check_numbers(numbers: Iterable[float], what: str) -> None:
    for number in numbers:
        if not (math.isfinite(number) and number >= 0):
            raise InvalidLayouts(f"{what} is {number}; it must be finite and not below 0.")
