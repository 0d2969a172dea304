"""Numbers that carry how far off they may be: arithmetic with a running error analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt

import torch

from tuning.measure.judging.rounding.step import Step, difference, finite
from tuning.measure.judging.tolerance import FUNCTION, STEP, SUM

_SMALL = 1.5
"""Up to it e^x − 1 is at most x (1 + x)."""


@dataclass(frozen=True)
class Bounded:
    """``value`` and its largest ``error`` per element. ``epsilon`` is the rounding of one step,
    ``sum_epsilon`` that of what sums are kept in."""

    value: torch.Tensor
    error: torch.Tensor
    epsilon: float
    sum_epsilon: float

    @classmethod
    def input(cls, step: Step, position: int) -> Bounded:
        value, error = step.values[position], step.errors[position]
        value = value.double()
        known = torch.zeros((), dtype=value.dtype) if error is None else error
        return cls(value, known.expand(value.shape), step.epsilon, step.sum_epsilon)

    def __add__(self, other: Bounded | float) -> Bounded:
        if not isinstance(other, Bounded):
            return self._step(self.value + other, self.error)
        return self._step(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Bounded) -> Bounded:
        return self._step(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Bounded | float) -> Bounded:
        if not isinstance(other, Bounded):
            return self._step(self.value * other, self.error * abs(other))
        a, b = self, other
        error = a.value.abs() * b.error + a.error * b.value.abs() + a.error * b.error
        return self._step(a.value * b.value, error)

    def __truediv__(self, other: Bounded) -> Bounded:
        quotient = self.value / other.value
        least = (other.value.abs() - other.error).clamp(min=0)
        error = (self.error + quotient.abs() * other.error) / least
        exact = (self.error == 0) & (other.error == 0)
        return self._step(quotient, torch.where(exact, 0.0, error))

    def function(self, made: Callable[[torch.Tensor], torch.Tensor]) -> Bounded:
        """A function of each element."""
        value = made(self.value)
        ways = [difference(value, made(self.value + sign * self.error)) for sign in (1, -1)]
        return self._step(value, torch.maximum(*ways), FUNCTION)

    def sqrt(self) -> Bounded:
        return self.function(lambda x: x.clamp(min=0).sqrt())

    def exp(self) -> Bounded:
        value = self.value.exp()
        # The larger way is up; a power of two of the argument times a rounded constant loses a unit of it.
        shift = finite(self.value).mul_(self.epsilon).add_(self.error)
        grown = shift * (1 + shift)
        if float(shift.max()) > _SMALL:
            grown = torch.where(shift > _SMALL, torch.expm1(shift), grown)
        grown *= value
        return self._step(value, torch.nan_to_num_(grown, nan=0.0), FUNCTION)

    def log(self) -> Bounded:
        return self.function(torch.log)

    def sum(self, axes: list[int]) -> Bounded:
        count = prod(self.value.shape[axis] for axis in axes)
        total = self.value.sum(axes, keepdim=True)
        spread = (self.value * self.value).sum(axes, keepdim=True).sqrt() + total.abs()
        error = self.error.expand(self.value.shape).sum(axes, keepdim=True)
        return self._step(total, error + spread * (SUM * self.sum_epsilon * sqrt(count)))

    def mean(self, axes: list[int]) -> Bounded:
        return self.sum(axes) * (1 / max(1, prod(self.value.shape[axis] for axis in axes)))

    def amax(self, axes: list[int]) -> Bounded:
        largest = self.value.amax(axes, keepdim=True)
        return replace(
            self, value=largest, error=self.error.expand(self.value.shape).amax(axes, keepdim=True)
        )

    def reshape(self, *shape: int) -> Bounded:
        error = self.error.expand(self.value.shape).reshape(shape)
        return replace(self, value=self.value.reshape(shape), error=error)

    def _step(self, value: torch.Tensor, error: torch.Tensor, units: float = STEP) -> Bounded:
        own = finite(value).mul_(units * self.epsilon).add_(error)
        return replace(self, value=value, error=own)
