"""What one walk over a graph finds: types, constants, steps, and the bodies of branches and loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from opatlas.graph.types import TensorType

CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(frozen=True)
class ComputeStep:
    """One compute node, its inputs' types known; ``reason`` says why it cannot be an operator, if so.
    ``lean`` is the node without the optional outputs that nobody reads. ``bodies``: a branch's or loop's,
    walked; where they could not be, ``shut`` says why."""

    node: onnx.NodeProto
    lean: onnx.NodeProto
    reason: str = ""
    bodies: tuple[Body, ...] = ()
    shut: str = ""


@dataclass(frozen=True)
class Body:
    """One body. ``graph``: with the names that outer values have by now; ``captured``: those that it reads of
    them, in order."""

    graph: onnx.GraphProto
    walk: Walk
    captured: tuple[str, ...]


@dataclass
class Walk:
    """The state of one walk. ``blocked`` tells, for a value whose type is unknown, why."""

    opset: int
    domains: Mapping[str, int] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    blocked: dict[str, str] = field(default_factory=dict)
    declared: dict[str, TensorType] = field(default_factory=dict)
    steps: list[ComputeStep] = field(default_factory=list)
    folded: list[onnx.NodeProto] = field(default_factory=list)  # what computes constants, in order
    same: dict[str, str] = field(default_factory=dict)  # an inlined If's output → the branch's value
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # all that the model has, bodies' too
    dims: Mapping[str, int] = field(default_factory=dict)  # sizes that were given
    effort: list[int] = field(
        default_factory=lambda: [0]
    )  # nodes of bodies walked so far, all walks together

    def settled(self, name: str) -> str:
        """The name that a value has after branches were put in their place."""
        while name in self.same:
            name = self.same[name]
        return name
