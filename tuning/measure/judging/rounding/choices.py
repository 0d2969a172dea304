"""Sorted choices and losses: what picks elements, and what is made of the picked ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tuning.measure.judging.rounding.bounded import Bounded
from tuning.measure.judging.rounding.rows import log_softmax
from tuning.measure.judging.rounding.step import Errors, Step, moved, rounded
from tuning.measure.judging.tolerance import SUM


def top(step: Step) -> Errors:
    """The values must be exact; the index of one that has an equal (or as good as equal) beside it may be any
    of theirs."""
    x, axis, largest = step.values[0], step.attribute("axis"), bool(step.attribute("largest"))
    values = moved(step)[0]
    if len(step.made) < 2:
        return [values]
    count = step.made[0].shape[axis]
    ordered = torch.sort(x, axis, descending=largest).values
    room = 0.0 if step.errors[0] is None else 2 * step.errors[0].amax(axis, keepdim=True)
    near = (ordered.diff(dim=axis).abs() <= room).double()
    wall = torch.zeros_like(ordered.narrow(axis, 0, 1)).double()
    tied = torch.cat([wall, near], axis) + torch.cat([near, wall], axis)
    tied = tied.narrow(axis, 0, count) > 0
    return [values, torch.where(tied, torch.inf, 0.0) if bool(tied.any()) else None]


def cross_entropy(step: Step) -> Errors:
    """−log softmax at the targets, weighted, and added or averaged: so are its errors."""
    logarithms = log_softmax(Bounded.input(step, 0), 1)
    target, *rest = step.values[1:]
    ignored = step.node.attributes.get("ignore_index", -(1 << 62))
    how = step.attribute("reduction")

    # Class weights are positive (``domains``): a mean over weights that cancel has no error to speak of.
    def chosen(x: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(
            x, target.long(), rest[0].abs() if rest else None, ignore_index=ignored, reduction=how
        )

    summed = chosen(-logarithms.value.abs()) * (SUM * step.epsilon * step.terms**0.5)
    errors: Errors = [chosen(-logarithms.error) + summed, logarithms.error]
    return rounded(step, errors[: len(step.made)])


RULES = {"SoftmaxCrossEntropyLoss": cross_entropy, "TopK": top}
