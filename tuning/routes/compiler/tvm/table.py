"""What TVM's ONNX frontend takes and this route can ship, known without importing TVM."""

from __future__ import annotations

from opatlas.identity import Operator
from opatlas.identity.operator_types import types_with

ALIGNMENT = 64
"""Bytes: TVM's code crashes on buffers aligned to less (seen with 16)."""

HALF_TYPES = ("float16", "bfloat16")

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32"),
    *("int64", "uint64", "float64"),
)

OPS = types_with("tvm")
"""Op types of the default domain. Left out of the frontend's map: control flow, sequences, operators
whose output shape or algorithm depends on values (NonZero, Unique, TopK, NonMaxSuppression …), and those that
read or write where an index says without looking whether that lies in the tensor (GatherND, ScatterND,
GatherElements, ScatterElements; Gather is made to clamp)."""

POINTWISE = types_with("tvm", "pointwise")
"""Op types whose every output element depends on the inputs' elements at its own place only."""

CONTRACTIONS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger", "Einsum"})


def variants(operator: Operator) -> list[tuple[str, str]]:
    """(variant, label) pairs worth building, the most promising first."""
    kinds = CONTRACTIONS.intersection(operator.op_types)
    if not kinds:
        return [("rows", "untuned, parallel rows")]
    found = [("packed", "untuned, register tiles over packed weights")]
    # Measured: convolutions are slower this way, whatever their shape.
    last = operator.output_values[0].shape[-1:]
    if "Conv" not in kinds and last and last[0] % 4 == 0:
        found.append(("flat only", "untuned, register tiles over the innermost axis"))
    return found


def normalises_a_convolution(operator: Operator) -> bool:
    """Whether it has a convolution and a batch normalisation together, as a model that is not simplified."""
    return {"Conv", "BatchNormalization"} <= set(operator.op_types)


def has_odd_channels(operator: Operator) -> bool:
    """Whether a convolution's output channels fill no vectors; depthwise ones have them along their lines."""
    for node in operator.nodes:
        if node.op == "Conv" and not node.domain:
            channels = operator.value(node.inputs[1]).shape[0] // int(node.attributes["group"])
            if channels > 1 and channels % 4:
                return True
    return False
