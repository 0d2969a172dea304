"""One node of the graph on its way: what went in with which errors, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from opatlas.identity import Node, Operator
from tuning.measure.judging.tolerance import FLOAT32, STEP, Precision, terms

Errors = list[torch.Tensor | None]
"""Of each output, the largest error allowed in every element; None where it must be exact."""
_SINGLE = frozenset({"Attention", "GroupNormalization", "Shrink"})
"""ONNX Runtime computes them in float32 for float64 tensors, too."""
_FINE = 2.0**20
"""Differences of float64 numbers by a few of their last places are noise: such steps are made larger."""


@dataclass(frozen=True)
class Step:
    """``values`` and ``made`` are tensors (float64 for what is floating) or None; ``errors`` go with
    ``values``."""

    operator: Operator
    node: Node
    function: Callable[..., Any]
    values: Sequence[Any]
    errors: Sequence[torch.Tensor | None]
    made: tuple[torch.Tensor, ...]
    precision: Precision

    def attribute(self, name: str) -> Any:
        return self.node.attributes[name]

    def dtype(self, position: int = 0) -> str:
        """The operator's own type of an output (what came out here is wider)."""
        number = self.node.outputs[position]
        return self.operator.value(number if number >= 0 else self.node.outputs[0]).dtype

    @property
    def epsilon(self) -> float:
        own = self.precision.rounding(self.dtype())
        return max(own, FLOAT32) if own and (self.node.op in _SINGLE or self._rounded_attributes()) else own

    def _rounded_attributes(self) -> bool:
        """ONNX keeps numbers of a node as float32: libraries read them so, whatever the tensors are."""
        numbers = [value for _, value in self.node.attrs if isinstance(value, float)]
        return any(float(np.float32(number)) != number for number in numbers)

    @property
    def sum_epsilon(self) -> float:
        return self.precision.summing(self.dtype())

    @property
    def terms(self) -> int:
        return terms(self.operator, self.node)

    def call(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The node's outputs for other values."""
        made = self.function(*values)
        return tuple(made) if isinstance(made, tuple | list) else (made,)

    def floating(self) -> list[int]:
        """Positions of the inputs that are floating."""
        return [index for index, value in enumerate(self.values) if is_floating(value)]


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def moved(step: Step, own: Sequence[torch.Tensor | None] | None = None) -> Errors:
    """What errors of the inputs (``own``, else the step's) come to in the outputs: by how much these move
    when one input is moved both ways by its errors, added over the inputs."""
    errors = step.errors if own is None else own
    erring = [index for index, error in enumerate(errors) if error is not None]
    if not erring:
        return [None] * len(step.made)
    fine = _FINE if step.precision.rounding(step.dtype()) == 2.0**-52 else 1.0
    totals: Errors = [None] * len(step.made)
    for index in erring:
        both = [_outputs(step, index, errors[index], sign * fine * len(erring)) for sign in (1, -1)]
        for number, made in enumerate(step.made):
            ways = [difference(made, other[number]) for other in both]
            part = torch.maximum(*ways) / (fine * len(erring))
            total = totals[number]
            totals[number] = part if total is None else total + part
    # Of several inputs each is moved as far as all together: a jump that two small errors reach is reached.
    return [
        total if total is None or is_floating(made) else torch.where(total > 0, fine * len(erring) * total, 0)
        for total, made in zip(totals, step.made, strict=True)
    ]


def _outputs(step: Step, index: int, error: Any, times: float) -> tuple[torch.Tensor, ...]:
    values = list(step.values)
    values[index] = shifted(values[index], error, times)
    try:
        return step.call(values)
    except (IndexError, RuntimeError, ValueError):
        # An index that nobody can be sure of: then nothing is known of what it picks.
        return tuple(torch.full(made.shape, torch.nan, dtype=torch.float64) for made in step.made)


def shifted(value: torch.Tensor, error: torch.Tensor, times: float) -> torch.Tensor:
    """The value moved by so many times its error; a truth value that may be either is turned."""
    if value.dtype == torch.bool:
        return value ^ (error > 0)
    if not is_floating(value):
        return value + torch.copysign(torch.ceil(error), torch.tensor(times)).to(value.dtype)
    return value + times * error


def difference(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """|one − other|; 0 where both are the same infinity or no number, infinite where just one is."""
    if not is_floating(one):
        one, other = one.double(), other.double()
    apart = (one - other).abs()
    if not torch.isfinite(apart).all():
        same = (one == other) | (one.isnan() & other.isnan())
        apart = torch.where(same, 0.0, torch.nan_to_num(apart, nan=torch.inf, posinf=torch.inf))
    return apart


def rounded(step: Step, errors: Errors, units: float = STEP) -> Errors:
    """The errors with the rounding of the outputs themselves, in units of their own type."""
    together: Errors = []
    for position, (error, made) in enumerate(zip(errors, step.made, strict=True)):
        epsilon = step.precision.rounding(step.dtype(position)) if position else step.epsilon
        if not is_floating(made) or not epsilon:
            together.append(error)
            continue
        own = finite(made).mul_(units * epsilon).add_(step.precision.smallest(step.dtype(position)))
        together.append(own if error is None else own.add_(error))
    return together


def finite(made: torch.Tensor) -> torch.Tensor:
    """Magnitudes, 0 for what is no finite number (it is compared exactly): a new tensor."""
    magnitudes = made.abs()
    if not torch.isfinite(magnitudes.sum()):
        magnitudes = torch.where(torch.isfinite(magnitudes), magnitudes, 0.0)
    return magnitudes
