"""What an operator costs: a one-line summary, arithmetic, bytes moved and memory needed.

Estimates for ordering and for roofline floors, never for ranking implementations: a multiply and an add are
two operations, every tensor is read or written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from opatlas.errors import InvalidOperator
from opatlas.identity.dtypes import PACKED, bits
from opatlas.identity.operator import Node, Operator, Value
from opatlas.identity.operator_types import TYPES
from opatlas.identity.strides import storage_elements


@dataclass(frozen=True)
class Description:
    """An operator for people and for planning."""

    op_type: str  # "Conv", or "Conv+Relu" for a graph
    summary: str  # "Conv float32 1×64×56×56, 64×64×3×3 → 1×64×56×56"
    dtype: str  # of the first tensor that is read
    flops: float
    bytes_moved: float  # inputs and outputs, once each
    peak_bytes: float  # memory that one copy of everything takes, values between nodes too


def describe(operator: Operator) -> Description:
    """Summary and estimates of an operator."""
    ops = [node.op for node in operator.nodes]
    op_type = "+".join(ops) if len(ops) <= 4 else "+".join(ops[:3]) + f"+{len(ops) - 3} more"
    tensors = [operator.inputs[i] for i in operator.tensor_inputs]
    dtype = tensors[0].dtype if tensors else operator.output_values[0].dtype
    reads = sum(_storage_bytes(value) for value in tensors)
    writes = sum(_storage_bytes(value) for value in operator.output_values)
    inside = sum(_storage_bytes(value) for value in operator.produced)
    return Description(
        op_type=op_type,
        summary=_summary(op_type, tensors, operator.output_values),
        dtype=dtype,
        flops=float(sum(node_flops(operator, node) for node in operator.nodes)),
        bytes_moved=float(reads + writes),
        peak_bytes=float(reads + inside),
    )


def check_fits(operator: Operator, memory_bytes: int) -> None:
    """Refuse an operator that does not fit: checking needs its tensors about four times (inputs and their
    copies, the reference in double precision, the outputs). Raises :class:`InvalidOperator`."""
    need = 4 * describe(operator).peak_bytes
    if need > memory_bytes:
        raise InvalidOperator(
            f"The operator needs {_gigabytes(need)} to be checked; "
            f"the machine has {_gigabytes(memory_bytes)}."
        )


def check_measurable(operator: Operator) -> None:
    """Refuse an operator with tensors that no kernel can be given. Raises :class:`InvalidOperator`."""
    for value in (*(operator.inputs[i] for i in operator.tensor_inputs), *operator.output_values):
        if value.dtype in PACKED:
            raise InvalidOperator(
                f"ONNX packs two {value.dtype} elements into a byte, and no implementation of an operator "
                "with such a tensor can be measured here: leave it to the framework that runs the model, or "
                "ask for it in another element type."
            )


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def _storage_bytes(value: Value) -> int:
    return -(-storage_elements(value.shape, value.strides) * bits(value.dtype) // 8)


def _summary(op_type: str, tensors: list[Value], outputs: tuple[Value, ...]) -> str:
    dtype = tensors[0].dtype if tensors else outputs[0].dtype
    shown = [_shape(value, dtype) for value in tensors[:3]] + (["…"] if len(tensors) > 3 else [])
    made = ", ".join(_shape(value, dtype) for value in outputs[:2]) + (", …" if len(outputs) > 2 else "")
    return f"{op_type} {dtype} {', '.join(shown)} → {made}"


def _shape(value: Value, usual: str) -> str:
    text = "×".join(map(str, value.shape)) or "scalar"
    strided = " strided" if value.strides is not None else ""
    return text + strided + ("" if value.dtype == usual else f" {value.dtype}")


# ---- arithmetic by operator type --------------------------------------------------------------------

Shapes = list[tuple[int, ...]]


def node_flops(operator: Operator, node: Node) -> float:
    """Arithmetic operations of one node."""
    ins = [operator.value(i).shape if i >= 0 else () for i in node.inputs]
    outs = [operator.value(i).shape for i in node.outputs]
    if node.op in _FLOPS:
        return _FLOPS[node.op](node, ins, outs)
    if node.op.startswith("Reduce") or node.op in ("ArgMax", "ArgMin", "CumSum"):
        return float(math.prod(ins[0]))
    return float(sum(math.prod(shape) for shape in outs)) * _per_element(node.op)


def _per_element(op: str) -> float:
    """Operations for one element of the output; a type that the table does not have does one."""
    return TYPES[op].operations if op in TYPES else 1.0


def _conv(node: Node, ins: Shapes, outs: Shapes) -> float:
    weight = ins[3] if node.op == "QLinearConv" else ins[1]
    bias = math.prod(outs[0]) if len(ins) > 2 and node.op == "Conv" else 0
    return 2.0 * math.prod(outs[0]) * math.prod(weight[1:]) + bias


def _conv_transpose(node: Node, ins: Shapes, outs: Shapes) -> float:
    return 2.0 * math.prod(ins[0]) * math.prod(ins[1][1:])


def _matmul(node: Node, ins: Shapes, outs: Shapes) -> float:
    return 2.0 * math.prod(outs[0]) * ins[0][-1]


def _gemm(node: Node, ins: Shapes, outs: Shapes) -> float:
    inner = ins[0][0] if node.attributes["transA"] else ins[0][1]
    return 2.0 * math.prod(outs[0]) * inner + (math.prod(outs[0]) if len(ins) > 2 else 0)


def _pool(node: Node, ins: Shapes, outs: Shapes) -> float:
    return float(math.prod(outs[0]) * math.prod(node.attributes["kernel_shape"]))


def _whole_input(node: Node, ins: Shapes, outs: Shapes) -> float:
    return float(math.prod(ins[0]))


def _sum(node: Node, ins: Shapes, outs: Shapes) -> float:
    return float(math.prod(outs[0]) * max(1, len(ins) - 1))


def _attention(node: Node, ins: Shapes, outs: Shapes) -> float:
    query, keys = ins[0], ins[1]
    past = ins[4][2] if len(ins) > 4 and ins[4] else 0
    return 4.0 * math.prod(query) * (keys[-2] + past)


def _recurrent(node: Node, ins: Shapes, outs: Shapes) -> float:
    steps_times_batch = ins[0][0] * ins[0][1]
    return 2.0 * steps_times_batch * (math.prod(ins[1]) + math.prod(ins[2]))


def _einsum(node: Node, ins: Shapes, outs: Shapes) -> float:
    sizes: dict[str, int] = {}
    left = node.attributes["equation"].split("->")[0]
    for term, shape in zip(left.split(","), ins, strict=True):
        letters = [letter for letter in term.replace("...", "") if letter.isalpha()]
        sizes.update(zip(reversed(letters), reversed(shape), strict=False))
    return 2.0 * math.prod(sizes.values())


_FLOPS: dict[str, Callable[[Node, Shapes, Shapes], float]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _conv,
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "GlobalAveragePool": _whole_input,
    "GlobalMaxPool": _whole_input,
    "LSTM": _recurrent,
    "LpPool": _pool,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Max": _sum,
    "MaxPool": _pool,
    "Mean": _sum,
    "Min": _sum,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "RNN": _recurrent,
    "Sum": _sum,
}
