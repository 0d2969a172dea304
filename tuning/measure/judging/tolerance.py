"""How exactly each element type is computed, and how many terms a sum has: what errors are allowed from.

What a result may differ by is worked out element by element (``tuning.measure.judging.rounding``); here are
the constants that it is made of, each with its reason. ``docs/accuracy.md`` holds what libraries and
compilers were seen to need of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from opatlas.identity import Node, Operator, Setting
from opatlas.load.dtypes import numpy_dtype

WHOLE = 1.0
"""Errors are told as shares of what is allowed: this much is all of it."""

STEP = 2.0
"""Units (epsilons of the result) for one arithmetic step: half for its own rounding, the rest for quotients
by reciprocals and for constants that were folded or rounded beforehand."""
FUNCTION = 6.0
"""Units for one transcendental function: vector libraries promise four units in the last place."""
SUM = 3.0
"""Units for a sum, times the root of its terms (see ``sums``): in order, with fused multiply-adds, in blocks
or in pairs, sums come to a third of it at most (``docs/accuracy.md``)."""
WINOGRAD = 8.0
"""How much more a convolution by Winograd's F(4×4, 3×3) may lose than a sum in order."""

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
}
_COMPONENTS = {"complex64": "float32", "complex128": "float64"}
TF32_EPSILON = 2.0**-10
FLOAT32 = EPSILON["float32"]
SMALLEST = {
    "float64": 2.0**-1022,
    "float32": 2.0**-124,
    "bfloat16": 2.0**-124,
    "float16": 2.0**-23,
    "float8_e4m3fn": 2.0**-8,
    "float8_e4m3fnuz": 2.0**-9,
    "float8_e5m2": 2.0**-15,
    "float8_e5m2fnuz": 2.0**-16,
}
"""What may be lost below: smaller numbers are flushed to zero by some (XLA, which also halves on the way);
narrow types keep theirs, and two of their smallest steps are allowed."""


@dataclass(frozen=True)
class Precision:
    """How exactly an operator has to be computed under a setting."""

    setting: Setting

    def rounding(self, dtype: str) -> float:
        """The spacing of a type's numbers around one; 0 for whole numbers."""
        own = EPSILON.get(_COMPONENTS.get(dtype, dtype), 0.0)
        return max(own, TF32_EPSILON) if own and self._loose else own

    def summing(self, dtype: str) -> float:
        """The same for what a sum is kept in: narrow types' in float32 (wide ones' in their own) unless the
        setting allows less."""
        allowed = EPSILON.get(self.setting.accumulate, FLOAT32)
        own = self.rounding(dtype)
        kept = allowed if allowed > FLOAT32 else min(FLOAT32, EPSILON.get(dtype, own))
        return max(kept, TF32_EPSILON) if own and self._loose else kept

    def smallest(self, dtype: str) -> float:
        """What may be lost of a number because it is so small."""
        return SMALLEST.get(_COMPONENTS.get(dtype, dtype), 0.0)

    @property
    def _loose(self) -> bool:
        return self.setting.tf32 or self.setting.fast_math


def reduction_length(operator: Operator) -> int:
    """Terms of the longest sum, added over the nodes of a fused operator."""
    return max(1, sum(terms(operator, node) for node in operator.nodes))


def terms(operator: Operator, node: Node) -> int:
    """How many terms the longest sum of a node has; 1 where there is none."""
    inputs = [operator.value(number).shape if number >= 0 else () for number in node.inputs]
    if node.op in ("Conv", "QLinearConv", "ConvInteger"):
        return prod(inputs[3 if node.op == "QLinearConv" else 1][1:])
    if node.op == "ConvTranspose":
        return inputs[1][0] * prod(inputs[1][2:])
    if node.op in ("MatMul", "MatMulInteger", "Gemm", "QLinearMatMul"):
        return inputs[0][0 if node.op == "Gemm" and node.attributes.get("transA") else -1]
    if node.op in ("LSTM", "GRU", "RNN"):
        # Errors are carried from step to step.
        return inputs[0][0] * (inputs[1][-1] + inputs[2][-1])
    if node.op in ("Attention", "Einsum"):
        return max((max(shape, default=1) for shape in inputs), default=1)
    if node.op == "Det":
        return inputs[0][-1] ** 2
    if node.op.endswith("Loss"):
        return prod(inputs[1])
    if node.op.startswith(
        ("Reduce", "Softmax", "LogSoftmax", "CumSum", "Global", "AveragePool", "LpPool")
    ) or (node.op.endswith("Normalization")):
        made = operator.value(node.outputs[0]).shape
        return (
            max(1, prod(inputs[0]) // max(1, prod(made)))
            if prod(made) < prod(inputs[0])
            else max(inputs[0], default=1)
        )
    return 1


def is_float(dtype: str) -> bool:
    """Whether results of this type may be rounded at all."""
    return dtype in EPSILON or numpy_dtype(dtype).kind in "fc"
