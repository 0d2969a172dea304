"""What nothing is written down for: runs on inputs moved at random by their rounding tell how far results go.

What TRIES runs move an element by is a sample of what its own rounding errors can do (the root of the mean
square); SAFETY covers how few runs there are, and the root of the terms what errors add up to on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np
import torch

from tuning.measure.judging.definitions.loss import RUNS
from tuning.measure.judging.rounding.step import Errors, Step, difference, finite, is_floating, rounded
from tuning.measure.judging.tolerance import FUNCTION

TRIES, SAFETY = 6, 6.0
_FEW = 1.5
"""How much further honest results were seen to go than so few drawn runs (a GRU on magnitudes: 1.05)."""
_LEAST = 2.0**-30
"""Inputs are moved by at least this share, and what comes of it is taken down in proportion: less would be
lost in the reference's own rounding."""


def probed(step: Step) -> Errors:
    """Errors of a node that no rule knows."""
    relative = max(step.epsilon, step.sum_epsilon if step.epsilon else 0.0, 2.0**-52)
    times = max(1.0, _LEAST / relative)
    squares: list[torch.Tensor] = [torch.zeros(made.shape, dtype=torch.float64) for made in step.made]
    generator = torch.Generator("cpu").manual_seed(1)
    for _ in range(TRIES):
        values = [
            _moved(value, error, relative * times, times, generator)
            for value, error in zip(step.values, step.errors, strict=True)
        ]
        for total, made, other in zip(squares, step.made, step.call(values), strict=True):
            total += difference(made, other) ** 2
    root = SAFETY * sqrt(step.terms) / times
    errors: Errors = [(total / TRIES).sqrt_().mul_(root) for total in squares]
    return rounded(step, errors, FUNCTION)


def _moved(
    value: torch.Tensor, error: torch.Tensor | None, relative: float, times: float, random: torch.Generator
):
    if not is_floating(value):
        return value
    sizes = finite(value) * relative
    if error is not None:
        sizes = sizes + times * error
    # Drawn on the host wherever the value lies: everywhere it is moved the same way.
    signs = torch.randint(0, 2, value.shape, generator=random, device="cpu").mul_(2).sub_(1)
    return value + signs.to(value.device) * sizes


Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def probed_graph(
    run: Run, inputs: Sequence[np.ndarray], made: Sequence[np.ndarray], relative: float, terms: int
) -> list[np.ndarray]:
    """The same for a whole operator that is run by another library: errors of its outputs, as float64, from
    the furthest that any run goes.

    ``relative`` is the rounding that inputs are moved by; the library rounds too, in the operator's own
    types, so what comes of moving includes that. Each floating input is moved as a whole both ways first
    (scales that decide on which side of a step everything lies), then all of them at random.
    """
    random = np.random.default_rng(1)
    furthest = [np.zeros(one.shape) for one in made]
    floats = [index for index, array in enumerate(inputs) if holds_floats(array)]
    shifts: list[list[np.ndarray]] = []
    for index in floats:
        for sign in (1.0, -1.0):
            changed = list(inputs)
            changed[index] = _scaled(inputs[index], np.full(inputs[index].shape, 1 + sign * relative))
            shifts.append(changed)
    if any(one.dtype.kind in "iu" for one in made):
        shifts += [
            [_scaled(one, factors) if at == index else one for at, one in enumerate(inputs)]
            for index in floats
            for factors in _parts_moved(np.asarray(inputs[index]), relative)
        ]
    for _ in range(TRIES if floats else 0):
        shifts.append([_at_random(array, relative, random) for array in inputs])
    for values in shifts:
        _go_further(furthest, made, run(values))
    return [
        most if one.dtype.kind in "biu" else most * SAFETY * sqrt(terms)
        for most, one in zip(furthest, made, strict=True)
    ]


def _parts_moved(array: np.ndarray, relative: float) -> list[np.ndarray]:
    """Factors that move the least elements, the largest or all others, both ways: what an operator derives
    from its extremes (a step, DynamicQuantizeLinear's) does not move along with the rest."""
    with np.errstate(invalid="ignore"):
        least, largest = array == array.min(initial=np.inf), array == array.max(initial=-np.inf)
    parts = (least, largest, ~(least | largest))
    return [np.where(part, 1 + sign * relative, 1.0) for part in parts for sign in (1.0, -1.0)]


def drawn(run: Run, inputs: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same for an operator whose every rounding a definition speaks of: each run draws them, and the
    inputs stay as they are.

    A sum of large terms that is nearly nothing moves by what its terms are rounded by.
    """
    furthest = [np.zeros(one.shape) for one in made]
    for _ in range(RUNS):
        _go_further(furthest, made, run(inputs))
    return [
        most if one.dtype.kind in "biu" else most * SAFETY * _FEW
        for most, one in zip(furthest, made, strict=True)
    ]


def _go_further(
    furthest: Sequence[np.ndarray], made: Sequence[np.ndarray], others: Sequence[np.ndarray]
) -> None:
    """Keep the largest differences, in place."""
    for most, one, other in zip(furthest, made, others, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        np.maximum(most, np.where(np.isnan(apart), 0.0, apart), out=most)


def _at_random(array: np.ndarray, relative: float, random: np.random.Generator) -> np.ndarray:
    if not holds_floats(array):
        return array
    return _scaled(array, 1 + relative * random.choice([-1.0, 1.0], array.shape))


def _scaled(array: np.ndarray, factor: np.ndarray) -> np.ndarray:
    moved: np.ndarray = (array.astype(np.float64) * factor).astype(array.dtype)
    return moved


def holds_floats(array: np.ndarray) -> bool:
    """Whether the elements are real floating numbers, of NumPy's types or of ml_dtypes'."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))
