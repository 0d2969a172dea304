"""What inputs have to do with each other: equal and opposite operands, signs of bases under whole powers,
values of which a quantisation's steps can be counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opatlas.identity import Node, Operator

ALIKE, OPPOSITE, NOTHING = 1 / 8, 1 / 16, 1 / 32
"""Shares of elements whose operands are equal, or add up to nothing; of powers of nothing."""
_OPPOSED = frozenset({"Add", "Sub", "Max", "Min", "Sum", "Mean"})
_PAIRED = _OPPOSED | {
    "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "BitwiseAnd", "BitwiseOr",
    "BitwiseXor", "And", "Or", "Xor", "Where",
}  # fmt: skip
_DIVIDING = frozenset({"Div", "Mod"})
"""What may divide may be divided, and not the other way round."""
_WHOLE_BELOW = 2.0**20
_MOST_STEPS = 2.0**30
"""Of a quantisation: ONNX's evaluator counts them in 32 bits, and gives 0 where there are more."""
_USUAL_STEP = 2.0**-5
"""By which values around one have codes of all sizes."""
_LEAST_STEP = 2.0**-20
"""That is drawn (:mod:`tuning.measure.judging.drawing.kinds`), of steps that are constants."""


def relate(operator: Operator, made: Mapping[int, np.ndarray], rng: np.random.Generator) -> None:
    """Change drawn runtime inputs of a single node, in place, so that they meet as jobs' do."""
    if len(operator.nodes) != 1:
        return
    [node] = operator.nodes
    if node.op == "Pow":
        _sign_bases(operator, node, made, rng)
    elif node.op == "QuantizeLinear":
        _bound_steps(node, made, rng)
    elif node.op == "DynamicQuantizeLinear":
        _not_all_zero(made)
    elif node.op in _PAIRED:
        _pair(operator, node, made, rng)


def _not_all_zero(made: Mapping[int, np.ndarray]) -> None:
    """Of zeros alone ONNX leaves open what the step is: libraries give different ones."""
    for values in made.values():
        if values.size and not values.any():
            values[0] = 1


def _pair(operator: Operator, node: Node, made: Mapping[int, np.ndarray], rng: np.random.Generator) -> None:
    numbers = node.inputs[1:3] if node.op == "Where" else node.inputs[:2]
    if len(numbers) < 2 or numbers[0] == numbers[1] or not all(number in made for number in numbers):
        return
    # What is as large as both is changed: it may take what the other is.
    large, small = sorted(numbers, key=lambda number: -made[number].size)
    if node.op in _DIVIDING and large != numbers[0]:
        return
    one, other = operator.inputs[large], operator.inputs[small]
    if one.dtype != other.dtype:
        return
    first, second = made[large], made[small]
    if (one.shape, one.strides) != (other.shape, other.strides):
        if one.strides or other.strides or np.broadcast_shapes(one.shape, other.shape) != one.shape:
            return
        second = np.broadcast_to(second.reshape(other.shape), one.shape).reshape(-1)
    lot = rng.random(first.size, np.float32)
    alike = lot < ALIKE
    first[alike] = second[alike]
    if node.op in _OPPOSED and first.dtype.kind not in "biu":
        opposite = lot > 1 - OPPOSITE
        first[opposite] = -second[opposite]


def _bound_steps(node: Node, made: Mapping[int, np.ndarray], rng: np.random.Generator) -> None:
    """Of half of the values most are within the codes, where the steps are known; none has more steps than
    can be counted."""
    values, steps = made.get(node.inputs[0]), made.get(node.inputs[1])
    if values is None or values.dtype.kind != "f":
        return
    least = _LEAST_STEP
    if steps is not None and steps.size:
        sizes = np.abs(steps.astype(np.float64))
        least = sizes.min()
        values[rng.random(values.size, np.float32) < 0.5] *= values.dtype.type(np.median(sizes) / _USUAL_STEP)
    limit = min(_MOST_STEPS * least, float(np.finfo(values.dtype).max))
    values[...] = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)


def _sign_bases(
    operator: Operator, node: Node, made: Mapping[int, np.ndarray], rng: np.random.Generator
) -> None:
    """Powers of negative numbers, where the exponent is whole: of a third of the elements it becomes so."""
    base, exponent = node.inputs[:2]
    below, above = operator.inputs[base], operator.inputs[exponent]
    known = np.array(above.data) if above.data is not None else made.get(exponent)
    if base not in made or known is None or below.strides or above.strides or made[base].dtype.kind in "iu":
        return
    if exponent in made and known.dtype.kind not in "iu":
        rounded = rng.random(known.size, np.float32) < 1 / 3
        known[rounded] = np.round(known[rounded])
    shape = operator.output_values[0].shape
    powers = np.broadcast_to(known.reshape(above.shape), shape).astype(np.float64)
    whole = (powers == np.round(powers)) & (np.abs(powers) < _WHOLE_BELOW)
    if below.shape != shape:
        if not whole.all():
            return
        whole = np.ones(below.shape, bool)
    turned = whole.reshape(-1) & (rng.random(made[base].size, np.float32) < 0.5)
    made[base][turned] = -made[base][turned]
    if below.shape == shape:
        nothing = (powers.reshape(-1) > 0) & (rng.random(powers.size, np.float32) < NOTHING)
        made[base][nothing] = 0
