"""Products and sums: from the terms of each element, by how many there are.

A sum of n terms is off by about ε·√n times the larger of its own magnitude and the root of the sum of its
terms' squares, in whatever order it is taken: that is what partial sums of random terms come to. The squares
are had by running the node once more on the squares of its inputs, since it is linear in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import torch
import torch.nn.functional as F

from tuning.measure.judging.rounding.probing import probed
from tuning.measure.judging.rounding.step import Errors, Step, finite, is_floating, moved, rounded
from tuning.measure.judging.tolerance import FLOAT32, STEP, SUM, WINOGRAD

AVERAGES = frozenset({"ReduceMean", "AveragePool", "GlobalAveragePool"})
_PARTWISE = frozenset({"ConvTranspose", "Col2Im", "Sum", "Mean", "NegativeLogLikelihoodLoss"})
"""Their parts meet in the output's own type, and may be rounded there one by one."""
_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_TILE = 5
"""Elements of one Winograd tile (4 wide, windows of 3) are at most this far from each other."""
_TRANSFORMED, _OF_TILE = 16, 1 / 64
"""Elements of one tile of a Fourier transform, along each axis; what of the largest square in it an element
far below may be off by."""
_HEAVY, _MODEST, _VANISHING = 1 << 24, 1e15, 1e-36
"""Products of so many terms' squares are taken in float32, where these stay finite and are not nothing."""
_IN_FLOAT32 = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})


def sums(step: Step) -> Errors:
    """Whatever is linear in each of its inputs."""
    if not is_floating(step.made[0]):
        return moved(step)
    if not any(is_floating(value) for value in step.values):
        return rounded(step, [None] * len(step.made))
    count = step.terms
    spread = _spread(step)
    if step.node.op not in AVERAGES:
        spread *= sqrt(count)
    operands = 0.0
    if step.precision.rounding(step.dtype()) > FLOAT32 and step.dtype() == "float32":
        operands = step.epsilon * STEP / sqrt(count)  # factors that are rounded before they are multiplied
    if step.node.op in _PARTWISE:
        operands += STEP * step.epsilon / sqrt(count) * sqrt(_parts(step))
    error = spread.mul_(SUM * step.sum_epsilon + operands)
    error += finite(step.made[0]).mul_(SUM * step.sum_epsilon * sqrt(count))
    if (carried := _carried(step)) is not None:
        error += carried
    if step.node.op == "Gemm" and len(step.values) > 2 and step.values[2] is not None:
        # The product may be rounded before the rest is added.
        error = error + finite(step.values[2]) * abs(step.attribute("beta") * STEP * step.epsilon)
    return rounded(step, [error])


def determinant(step: Step) -> Errors:
    """Beside what rounding the matrix does: elimination rounds by the rows' lengths, singular or not."""
    [error] = probed(step)
    x = step.values[0]
    hadamard = x.norm(dim=-1).prod(-1) * (SUM * step.epsilon * step.terms)
    return [hadamard if error is None else error + hadamard]


def _parts(step: Step) -> int:
    """How many partial results are rounded to the operator's own type before they are added."""
    if step.node.op in ("Sum", "Mean"):
        return len(step.values)
    if step.node.op == "ConvTranspose":
        return prod(step.values[1].shape[2:])
    if step.node.op == "Col2Im":
        return prod(int(extent) for extent in step.operator.value(step.node.inputs[2]).data or ())
    return step.terms


def positive_sums(step: Step) -> Errors:
    """Sums of squares and of magnitudes: no two terms cancel."""
    units = STEP * step.epsilon + SUM * step.sum_epsilon * sqrt(step.terms)
    moved_by = moved(step)
    if not is_floating(step.made[0]):
        return moved_by
    error = finite(step.made[0]).mul_(units)
    return rounded(step, [error if moved_by[0] is None else error + moved_by[0]])


def product(step: Step) -> Errors:
    """A product of n factors: relative errors add."""
    errors = step.errors[0]
    made = step.made[0]
    if not is_floating(made):
        return moved(step)
    error = finite(made).mul_(SUM * step.epsilon * sqrt(step.terms))
    if errors is not None:
        relative = (errors / step.values[0].abs()).nan_to_num_(nan=0.0, posinf=torch.inf)
        axes = [a for a in range(relative.ndim) if made.ndim != relative.ndim or made.shape[a] == 1]
        error += finite(made) * torch.expm1(relative.sum(axes, keepdim=True)).reshape(made.shape)
    return rounded(step, [error])


def rotary(step: Step) -> Errors:
    """Two products each: with one table's sign turned, one of the two halves is the sum of magnitudes."""
    x, cos, sin, *rest = step.values
    ways = [step.call([x.abs(), cos.abs(), sign * sin.abs(), *rest])[0].abs() for sign in (1, -1)]
    error = torch.maximum(*ways).mul_(SUM * step.epsilon)
    moved_by = moved(step)[0]
    return rounded(step, [error if moved_by is None else error + moved_by])


def interpolation(step: Step) -> Errors:
    """Weights come from coordinates, whose rounding grows with the axis: of the neighbours' magnitudes."""
    if not is_floating(step.values[0]):
        return [_cut_off(step)]
    error = _of_neighbours(step, step.values[0], step.epsilon, step.sum_epsilon)
    moved_by = moved(step, _with_coordinates(step))[0]
    return rounded(step, [error if moved_by is None else error + moved_by])


def _of_neighbours(step: Step, x: torch.Tensor, epsilon: float, sum_epsilon: float) -> torch.Tensor:
    around = finite(x)
    spatial = x.ndim - 2
    if spatial in _POOL:
        around = _POOL[spatial](around, 5, 1, 2)
    magnitude = finite(step.call([around, *step.values[1:]])[0])
    longest = max(step.made[0].shape[2:] + x.shape[2:], default=1)
    return magnitude.mul_(epsilon * STEP + sum_epsilon * STEP * longest)


def _cut_off(step: Step) -> torch.Tensor:
    """Whole numbers are mixed in float32 and lose their fraction: near a whole one either is right."""
    x = step.values[0].double()
    exact = step.call([x, *step.values[1:]])[0]
    room = _of_neighbours(step, x, FLOAT32, FLOAT32) + step.precision.smallest("float32")
    either = torch.trunc(exact + room) - torch.trunc(exact - room)
    carried = moved(step)[0]
    return either if carried is None else either + carried


def _with_coordinates(step: Step) -> Errors:
    """A GridSample's coordinates are scaled to its image, and reflected beyond it: which rounds them."""
    errors: Errors = list(step.errors)
    if step.node.op == "GridSample":
        unit = (1 + step.values[1].abs()) * (16 * STEP * step.epsilon)
        errors[1] = unit if errors[1] is None else unit + errors[1]
    return errors


def _spread(step: Step) -> torch.Tensor:
    """The root of the sum of each element's terms' squares (for an average: of their mean)."""
    squares = _squares(step)[0].real.double().abs()
    if step.node.op in ("Conv", "ConvTranspose") and _by_tiles(step):
        squares = torch.maximum(squares, _around(squares).mul_(1 / 16)).mul_(WINOGRAD * WINOGRAD)
    elif step.node.op == "Conv" and _by_transform(step):
        squares = torch.maximum(squares, _within_tiles(squares).mul_(_OF_TILE))
    return squares.sqrt_()


def _around(squares: torch.Tensor) -> torch.Tensor:
    """The largest within a tile, axis by axis."""
    wide = squares.float()
    for axis in range(2, squares.ndim):
        lines = wide.movedim(axis, -1)
        wide = F.max_pool1d(lines.flatten(0, -2), 2 * _TILE + 1, 1, _TILE).reshape(lines.shape)
        wide = wide.movedim(-1, axis)
    return wide.double()


def _by_tiles(step: Step) -> bool:
    """Whether somebody may compute this convolution in tiles, by a fast algorithm."""
    window = step.values[1].shape[2:]
    once = all(stride == 1 for stride in step.attribute("strides"))
    return once and len(window) in _POOL and all(extent in (3, 5) for extent in window)


def _by_transform(step: Step) -> bool:
    """Whether PyTorch may hand it to NNPACK, which computes by Fourier's transform in tiles of 16 by 16."""
    batch, window = step.values[0].shape[0], step.values[1].shape[2:]
    alone = step.attribute("group") == 1 and all(one == 1 for one in step.attribute("dilations"))
    return alone and batch >= 16 and len(window) == 2 and max(window) < 17 and step.dtype() == "float32"


def _within_tiles(squares: torch.Tensor) -> torch.Tensor:
    """The largest of all that may lie in one tile with an element, or in the next."""
    height, width = squares.shape[2:]
    tiles = F.max_pool2d(squares.float(), _TRANSFORMED, ceil_mode=True)
    tiles = F.max_pool2d(tiles, 3, 1, 1)
    wide = tiles.repeat_interleave(_TRANSFORMED, 2).repeat_interleave(_TRANSFORMED, 3)
    return wide[:, :, :height, :width].double()


def _squares(step: Step) -> tuple[torch.Tensor, ...]:
    squared = [_square(value) if is_floating(value) else value for value in step.values]
    if step.node.op == "Gemm":
        return _gemm_squares(step, squared)
    if step.node.op in _IN_FLOAT32 and step.made[0].numel() * step.terms > _HEAVY:
        tensors = [value for value in squared if is_floating(value)]
        if all(float(value.max()) < _MODEST for value in tensors if value.numel()) and not _vanishes(tensors):
            squared = [value.float() if is_floating(value) else value for value in squared]
    return step.call(squared)


def _vanishes(squares: Sequence[torch.Tensor]) -> bool:
    """Whether a product of the smallest may be nothing in float32."""
    least = (torch.where(value > 0, value, torch.inf).min() for value in squares if value.numel())
    return prod(float(one) for one in least) < _VANISHING


def _square(value: torch.Tensor) -> torch.Tensor:
    return (value.abs() ** 2).to(value.dtype)


def _gemm_squares(step: Step, squared: list[Any]) -> tuple[torch.Tensor, ...]:
    """alpha and beta are no inputs: they are squared here."""
    alpha, beta = float(step.attribute("alpha")), float(step.attribute("beta"))
    if (alpha, beta) == (1.0, 1.0) or len(squared) < 3 or squared[2] is None:
        return (step.call(squared)[0] * abs(alpha),)
    a, b, c = squared
    return (alpha * step.call([a, b, 0 * c])[0] + beta * step.call([0 * a, 0 * b, c])[0],)


def _carried(step: Step) -> torch.Tensor | None:
    """The inputs' errors in the outputs: the node on magnitudes with them, less the node without."""
    if all(error is None for error in step.errors):
        return None
    plain = [finite(value) if is_floating(value) else value for value in step.values]
    erring = [
        value if error is None or not is_floating(value) else value + error
        for value, error in zip(plain, step.errors, strict=True)
    ]
    less, more = step.call(plain)[0], step.call(erring)[0]
    return torch.nan_to_num((more - less).abs(), nan=torch.inf, posinf=torch.inf)


Rule = Callable[[Step], Errors]
_LINEAR = frozenset({
    "AveragePool", "Col2Im", "Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "GlobalAveragePool",
    "MatMul", "Mean", "ReduceMean", "ReduceSum", "Sum", "ScatterElements", "ScatterND",
    "NegativeLogLikelihoodLoss",
})  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(_LINEAR, sums),
    **dict.fromkeys(["ReduceSumSquare", "ReduceL1"], positive_sums),
    "Det": determinant,
    "ReduceProd": product,
    "RotaryEmbedding": rotary,
    "Resize": interpolation,
    "GridSample": interpolation,
}
