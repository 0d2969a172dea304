"""Functions of one element at a time: their slope at the very place, and their own rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from opatlas.identity import Node, Operator
from tuning.measure.judging.rounding.step import Errors, Step, is_floating, moved, rounded
from tuning.measure.judging.tolerance import EPSILON, FUNCTION, STEP, is_float

ARGUMENT: dict[str, float] = {"Exp": 1, "Pow": 1, "Sigmoid": 1, "Tanh": 1, "Softplus": 1, "Mish": 1, "Erf": 1,
                              "Sinh": 1, "Cosh": 1, "Elu": 1, "Celu": 1, "Selu": 1, "Gelu": 1, "Sin": 0.25,
                              "Cos": 0.25, "Tan": 0.25}  # fmt: skip
"""Units of the *argument* that a function may lose before it begins: most are computed as a power of two of
the argument times a rounded constant."""

Inner = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the argument and the result, the largest number on the way by the type's own definition."""

INNER: dict[str, Inner] = {
    "Acosh": lambda x, y: torch.ones_like(x),
    "Asinh": lambda x, y: torch.ones_like(x),
    "Atanh": lambda x, y: torch.ones_like(x),
    "Celu": lambda x, y: torch.ones_like(x),
    "Elu": lambda x, y: torch.ones_like(x),
    "Erf": lambda x, y: torch.full_like(x, 2.0),  # Inductor takes Abramowitz and Stegun's 7.1.26
    "Gelu": lambda x, y: 3.0 * x.abs(),
    "HardSigmoid": lambda x, y: torch.ones_like(x),
    "HardSwish": lambda x, y: x.abs(),
    "Mish": lambda x, y: x.abs(),
    "Selu": lambda x, y: torch.full_like(x, 3.0),
    "Shrink": lambda x, y: x.abs() + y.abs(),  # the bias is as large as their difference
    "Sigmoid": lambda x, y: torch.ones_like(x),
    "Sinh": lambda x, y: torch.ones_like(x),
    "Softplus": lambda x, y: torch.ones_like(x),
}

EXACT = frozenset({
    "Abs", "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil",
    "CenterCropPad", "Clip", "Concat", "ConstantOfShape", "DepthToSpace", "Equal", "Expand", "EyeLike",
    "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Greater",
    "GreaterOrEqual", "Hardmax", "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "MaxPool",
    "Min", "Neg", "Not", "OneHot", "Or", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape",
    "ReverseSequence", "Round", "Shape", "Sign", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze",
    "ThresholdedRelu", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor", "ArgMax", "ArgMin",
})  # fmt: skip
"""They move, choose or compare values and make none: exact, but for what their inputs were already off by."""

_ARITHMETIC = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu", "Shrink", "Cast",
    "Range",
})  # fmt: skip


def exact(step: Step) -> Errors:
    """Whatever moves or compares. A scatter that adds is no such thing (see ``sums``)."""
    if step.node.op in _COMPARISONS and any(error is not None for error in step.errors):
        return _compared(step)
    return moved(step)


_COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def _compared(step: Step) -> Errors:
    """Either answer is right where two values are as near as both may be off."""
    one, other = (value.double() for value in step.values)
    room = sum(torch.zeros(()) if error is None else error for error in step.errors)
    doubtful = (one - other).abs() <= room
    return [torch.where(doubtful, 1.0, 0.0).double()]


def cast(step: Step) -> Errors:
    """Exact into a type that holds every value of the old one, else rounded."""
    before = step.operator.value(step.node.inputs[0]).dtype
    wide = before in EPSILON and EPSILON[before] >= EPSILON.get(step.dtype(), 0.0)
    return moved(step) if wide or not is_float(step.dtype()) else rounded(step, moved(step))


def pointwise(step: Step) -> Errors:
    """A function of each element: by its slope there, with the rounding that its kind has."""
    op = step.node.op
    if op == "Pow" and is_floating(step.made[0]):
        # Of sizes: a negative base has a power only where the exponent is whole, and so has none beside it.
        sizes = [step.values[0].abs(), *step.values[1:]]
        step = replace(step, values=sizes, made=step.call(sizes))
    units = STEP if op in _ARITHMETIC else FUNCTION
    errors = rounded(step, moved(step, _arguments(step, ARGUMENT.get(op, 0.0))), units)
    if op in INNER and errors[0] is not None and is_floating(step.values[0]):
        inner = INNER[op](step.values[0], step.made[0])
        errors[0] = errors[0] + torch.nan_to_num(inner, posinf=0.0).mul_(STEP * step.epsilon)
    return errors


def _arguments(step: Step, units: float) -> Errors:
    """The inputs' errors, and so many units of each where the function may lose them itself."""
    if not units:
        return list(step.errors)
    own: Errors = list(step.errors)
    for index in step.floating():
        unit = step.values[index].abs().mul_(units * step.epsilon).nan_to_num_(posinf=0.0)
        error = own[index]
        own[index] = unit if error is None else unit + error
    return own


def is_exact(operator: Operator, node: Node) -> bool:
    """Whether the node makes no value of its own."""
    if node.op in EXACT:
        return True
    if node.op in ("ScatterElements", "ScatterND"):
        return node.attributes.get("reduction", "none") in ("none", "max", "min")
    return node.op == "Resize" and node.attributes.get("mode") == "nearest"
