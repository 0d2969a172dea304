"""What couples the elements of a row: softmaxes, normalisations and norms, by their definitions.

Where a definition can be computed in several honest ways, the one that loses most is written down: variances
from mean squares (one pass), scales folded into one product and one sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from tuning.measure.judging.rounding.bounded import Bounded
from tuning.measure.judging.rounding.step import Errors, Step, is_floating, rounded
from tuning.measure.judging.tolerance import STEP

_IN_ORDER = 8.0
"""PyTorch's channels-last batch normalisation adds tens of thousands of elements one by one: what they lose
has a sign, and came to four times what sums may lose otherwise."""


def _softmax(step: Step) -> Bounded:
    powers, sums, _ = _powers(Bounded.input(step, 0), [step.attribute("axis")])
    return powers / sums


def _log_softmax(step: Step) -> Bounded:
    return log_softmax(Bounded.input(step, 0), step.attribute("axis"))


def log_softmax(x: Bounded, axis: int) -> Bounded:
    """x − maximum − log of the sum of the powers."""
    _, sums, largest = _powers(x, [axis])
    return (x - largest) - sums.log()


def _powers(x: Bounded, axes: list[int]) -> tuple[Bounded, Bounded, Bounded]:
    largest = x.amax(axes)
    powers = (x - largest).exp()
    # Subtracting the maximum or the sum's logarithm: both lose what the maximum is rounded by.
    largest = replace(largest, error=largest.error + largest.value.abs() * (2 * x.epsilon))
    return powers, powers.sum(axes), largest


def _log_sum_exp(step: Step) -> Bounded:
    _, sums, largest = _powers(*_folded(step))
    return (sums.log() + largest).reshape(*step.made[0].shape)


def _log_sum(step: Step) -> Bounded:
    x, axes = _folded(step)
    return x.sum(axes).log().reshape(*step.made[0].shape)


def _euclidean(step: Step) -> Bounded:
    x, axes = _folded(step)
    return (x * x).sum(axes).sqrt().reshape(*step.made[0].shape)


def _folded(step: Step) -> tuple[Bounded, list[int]]:
    """What a reduction folds, and the axes, as the canonical form has them in its second input. None folds
    nothing: then every element is a row."""
    node, x = step.node, Bounded.input(step, 0)
    data = step.operator.value(node.inputs[1]).data if len(node.inputs) > 1 and node.inputs[1] >= 0 else None
    return (x, [int(axis) for axis in data]) if data else (x.reshape(1, *x.value.shape), [0])


def _batch(step: Step) -> Bounded | list[Bounded]:
    x, scale, bias, mean, variance = (Bounded.input(step, position) for position in range(5))
    shape = (1, -1, *(1 for _ in x.value.shape[2:]))
    if step.attribute("training_mode"):
        return _training(step, x, scale.reshape(*shape), bias.reshape(*shape), mean, variance)
    factor = scale / (variance + step.attribute("epsilon")).sqrt()
    offset = bias - mean * factor
    return x * factor.reshape(*shape) + offset.reshape(*shape)


def _training(step: Step, x: Bounded, scale: Bounded, bias: Bounded, *running: Bounded) -> list[Bounded]:
    """The batch's own statistics, which the running ones take in."""
    axes = [axis for axis in range(x.value.ndim) if axis != 1]
    x = replace(x, sum_epsilon=_IN_ORDER * x.sum_epsilon)
    made = _standard(x, axes, step.attribute("epsilon")) * scale + bias
    momentum, batch = step.attribute("momentum"), (one.reshape(-1) for one in _moments(x, axes))
    kept = [old * momentum + new * (1 - momentum) for old, new in zip(running, batch, strict=True)]
    return [made, *kept][: len(step.made)]


def _layer(step: Step) -> Bounded:
    axes = list(range(step.attribute("axis"), step.values[0].ndim))
    return _affine(step, _standard(Bounded.input(step, 0), axes, step.attribute("epsilon")))


def _root_mean_square(step: Step) -> Bounded:
    x = Bounded.input(step, 0)
    axes = list(range(step.attribute("axis"), x.value.ndim))
    return (x / ((x * x).mean(axes) + step.attribute("epsilon")).sqrt()) * Bounded.input(step, 1)


def _group(step: Step) -> Bounded:
    x = Bounded.input(step, 0)
    shape = x.value.shape
    groups = step.node.attributes.get("num_groups", shape[1])
    parts = x.reshape(shape[0], groups, -1)
    made = _standard(parts, [2], step.attribute("epsilon")).reshape(*shape)
    channels = (1, -1, *(1 for _ in shape[2:]))
    return _affine(step, made, channels)


def _affine(step: Step, made: Bounded, shape: tuple[int, ...] = ()) -> Bounded:
    for position, how in ((1, Bounded.__mul__), (2, Bounded.__add__)):
        if position < len(step.values) and step.values[position] is not None:
            other = Bounded.input(step, position)
            made = how(made, other.reshape(*shape) if shape else other)
    return made


def _moments(x: Bounded, axes: list[int]) -> tuple[Bounded, Bounded]:
    """Mean and variance, the latter from the mean square: what one pass loses."""
    mean = x.mean(axes)
    return mean, (x * x).mean(axes) - mean * mean


def _standard(x: Bounded, axes: list[int], epsilon: float) -> Bounded:
    """(x − mean) ÷ √(variance + epsilon)."""
    mean, variance = _moments(x, axes)
    exact = x.value.var(list(axes), correction=0, keepdim=True)
    variance = replace(variance, value=exact)
    return (x - mean) / (variance + epsilon).sqrt()


def _mean_variance(step: Step) -> Bounded:
    return _standard(Bounded.input(step, 0), step.attribute("axes"), 0.0)


def _local_response(step: Step) -> Bounded:
    x = Bounded.input(step, 0)
    squares = x * x
    window = torch.zeros_like(x.value)
    error = torch.zeros_like(x.value)
    before, after = (step.attribute("size") - 1) // 2, step.attribute("size") // 2
    channels = x.value.shape[1]
    for shift in range(-before, after + 1):
        low, high = max(0, -shift), min(channels, channels - shift)
        window[:, low:high] += squares.value[:, low + shift : high + shift]
        error[:, low:high] += squares.error[:, low + shift : high + shift]
    # ONNX Runtime adds the next channel to a running sum and takes the last one off: it rounds like all.
    error += squares.value.sum(1, keepdim=True) * (STEP * x.epsilon)
    sums = replace(x, value=window, error=error)
    base = sums * (step.attribute("alpha") / step.attribute("size")) + step.attribute("bias")
    beta = step.attribute("beta")
    return x / (base.log() * beta).exp()


RULES: dict[str, Callable[[Step], Bounded | list[Bounded]]] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _group,
    "LRN": _local_response,
    "LayerNormalization": _layer,
    "LogSoftmax": _log_softmax,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _root_mean_square,
    "ReduceL2": _euclidean,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "Softmax": _softmax,
}


def by_definition(step: Step) -> Errors | None:
    """The errors of a type that is written down here; None for one (or a form of one) that is not."""
    rule = RULES.get(step.node.op)
    if rule is None or not is_floating(step.made[0]):
        return None
    made = rule(step)
    results = made if isinstance(made, list) else [made]
    if len(results) != len(step.made):
        return None  # statistics as further outputs
    errors = [torch.nan_to_num(one.error, nan=torch.inf, posinf=torch.inf).contiguous() for one in results]
    return rounded(step, list(errors))
