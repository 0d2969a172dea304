"""How far a result may be from the reference: by element type and by how many terms a sum has."""

from __future__ import annotations

from math import prod

from opatlas.identity import Node, Operator, Setting
from opatlas.load.dtypes import numpy_dtype

SLACK = 16.0
"""Room for other orders of summation and for fast algorithms (Winograd loses a few bits)."""
NARROW_SLACK = 8.0
"""Results in 16 bits or fewer are mostly the rounding of a better one."""

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
TF32_EPSILON = 2.0**-10
FLOAT32 = EPSILON["float32"]


def tolerance(operator: Operator, setting: Setting) -> float:
    """Largest accepted |error| ÷ scale of the output (see ``check``); 0 where all outputs are whole numbers.

    Rounding errors of a sum of n terms grow like the square root of n while its value stays near one.
    """
    floats = [value.dtype for value in (*operator.inputs, *operator.produced) if value.dtype in EPSILON]
    if not any(_is_float(value.dtype) for value in operator.output_values) or not floats:
        return 0.0
    rounding = max(EPSILON[dtype] for dtype in floats)
    # Sums of narrow types are kept in float32 (of wide ones in their own) unless the setting allows less.
    allowed = EPSILON.get(setting.accumulate, FLOAT32)
    summing = allowed if allowed > FLOAT32 else min(FLOAT32, rounding)
    if setting.tf32 or setting.fast_math:
        rounding, summing = max(rounding, TF32_EPSILON), max(summing, TF32_EPSILON)
    slack = SLACK if rounding <= FLOAT32 else NARROW_SLACK
    nodes, terms = max(1, len(operator.nodes)), reduction_length(operator)
    return slack * rounding * nodes**0.5 + SLACK * summing * terms**0.5


def reduction_length(operator: Operator) -> int:
    """Terms of the longest sum, added over the nodes of a fused operator."""
    return max(1, sum(_terms(operator, node) for node in operator.nodes))


def _terms(operator: Operator, node: Node) -> int:
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
    if node.op.startswith(("Reduce", "Softmax", "LogSoftmax", "CumSum", "Global", "AveragePool")) or (
        node.op.endswith("Normalization")
    ):
        made = operator.value(node.outputs[0]).shape
        return (
            max(1, prod(inputs[0]) // max(1, prod(made)))
            if prod(made) < prod(inputs[0])
            else max(inputs[0], default=1)
        )
    return 1


def _is_float(dtype: str) -> bool:
    return dtype in EPSILON or numpy_dtype(dtype).kind in "fc"
