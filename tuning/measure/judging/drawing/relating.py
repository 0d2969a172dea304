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
_WHOLE_BELOW = 2.0**20
_MOST_STEPS = 2.0**30
"""Of a quantisation: ONNX's evaluator counts them in 32 bits, and gives 0 where there are more."""
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
        _bound_steps(node, made)
    elif node.op in _PAIRED:
        _pair(operator, node, made, rng)


def _pair(operator: Operator, node: Node, made: Mapping[int, np.ndarray], rng: np.random.Generator) -> None:
    numbers = node.inputs[1:3] if node.op == "Where" else node.inputs[:2]
    if len(numbers) < 2 or numbers[0] == numbers[1] or not all(number in made for number in numbers):
        return
    one, other = (operator.inputs[number] for number in numbers)
    if (one.dtype, one.shape, one.strides) != (other.dtype, other.shape, other.strides):
        return
    first, second = (made[number] for number in numbers)
    lot = rng.random(first.size, np.float32)
    alike = lot < ALIKE
    first[alike] = second[alike]  # what may divide may be divided
    if node.op in _OPPOSED and first.dtype.kind not in "biu":
        opposite = lot > 1 - OPPOSITE
        first[opposite] = -second[opposite]


def _bound_steps(node: Node, made: Mapping[int, np.ndarray]) -> None:
    values, steps = made.get(node.inputs[0]), made.get(node.inputs[1])
    if values is None or values.dtype.kind != "f":
        return
    least = _LEAST_STEP if steps is None else np.abs(steps.astype(np.float64)).min(initial=np.inf)
    limit = min(_MOST_STEPS * least, float(np.finfo(values.dtype).max))
    values[...] = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)


def _sign_bases(
    operator: Operator, node: Node, made: Mapping[int, np.ndarray], rng: np.random.Generator
) -> None:
    """Powers of negative numbers, where the exponent is whole: of a third of the elements it becomes so."""
    base, exponent = node.inputs[:2]
    if base not in made or exponent not in made:
        return
    below, above = operator.inputs[base], operator.inputs[exponent]
    if below.strides or above.strides or made[base].dtype.kind in "iu":
        return
    powers = made[exponent]
    if powers.dtype.kind not in "iu":
        rounded = rng.random(powers.size, np.float32) < 1 / 3
        powers[rounded] = np.round(powers[rounded])
    shape = operator.output_values[0].shape
    wide = np.broadcast_to(powers.reshape(above.shape), shape).astype(np.float64)
    whole = (wide == np.round(wide)) & (np.abs(wide) < _WHOLE_BELOW)
    if below.shape != shape:
        if not whole.all():
            return
        whole = np.ones(below.shape, bool)
    turned = whole.reshape(-1) & (rng.random(made[base].size, np.float32) < 0.5)
    made[base][turned] = -made[base][turned]
    if below.shape == above.shape == shape:
        nothing = (powers > 0) & (rng.random(powers.size, np.float32) < NOTHING)
        made[base][nothing] = 0
