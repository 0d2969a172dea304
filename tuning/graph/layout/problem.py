"""The problem to solve: in which of its layouts each operator of a model runs. PURE.

A value is made in one layout and read in others. If they differ, a reorder stands between: once for each
layout that is needed, not once for each reader, in the body on the way to its readers that runs least often.

Nodes that may run as one operator have an option for each such operator, in each of its layouts. Values
between them are then *inside* (``names.inside``), which no reorder can make. So a unit takes all of its nodes
or none, and units that share nodes exclude each other, without special rules in the solvers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opatlas.errors import CallerError
from opatlas.graph.linked import BodyPath
from opatlas.graph.types import TensorType

ReorderOf = tuple[TensorType, str, str]
"""A tensor's type, its layout, and the layout that is needed."""


class InvalidLayouts(CallerError):
    """Layouts, costs or counts that are impossible or do not fit together."""


@dataclass(frozen=True)
class MarkedCost:
    """Microseconds of one run; ``is_estimate``: not measured yet."""

    us: float
    is_estimate: bool = False


@dataclass(frozen=True)
class LayoutOption:
    """One layout of each of a node's reads and outputs, and its time."""

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
    """One operator, or a node with the same layout on all sides; of options with equal cost the first is
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
    """``counts``: how often each body runs in one run of the model. Raises :class:`InvalidLayouts` unless
    everything fits together."""

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
    """The bodies from one to another inside it, both included."""
    return [inner[:depth] for depth in range(len(outer), len(inner) + 1, 2)]


def _check_numbers(numbers: Iterable[float], what: str) -> None:
    for number in numbers:
        if not (math.isfinite(number) and number >= 0):
            raise InvalidLayouts(f"{what} is {number}; it must be finite and not below 0.")
