"""FlashInfer's definitions, as operators.

A definition leaves lengths open, and often its inputs too. Attention is read as one sequence of
``attrs["length"]`` tokens, laid out head by head; an epsilon as 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opatlas.graph.aten import CallRecord, CannotMap
from opatlas.graph.aten.registry import MISFITS

LENGTH = 2048
EPSILON = 1e-6

Document = dict[str, Any]
"""As ``parse_operator`` reads it."""


def document(record: CallRecord) -> Document:
    """Raises :class:`CannotMap` with the reason."""
    name = record.op.removeprefix("flashinfer.")
    for part, reason in _REASONS.items():
        if part in name:
            raise CannotMap(f"flashinfer: {reason}")
    if name not in _MAKERS:
        raise CannotMap(f"flashinfer: {name} has no rule yet")
    try:
        return _MAKERS[name](record)
    except MISFITS as error:
        raise CannotMap(
            f"flashinfer: {name} has arguments that do not fit ({type(error).__name__})"
        ) from None


def _given(record: CallRecord, count: int) -> list[Document]:
    tensors = [tensor for tensor in record.inputs if tensor is not None]
    if len(tensors) != count:
        raise CannotMap(f"{record.op} has {len(tensors)} inputs, not {count}")
    return [{"shape": list(one.shape), "dtype": one.dtype, "const": one.const} for one in tensors]


def _gemm(record: CallRecord) -> Document:
    """The second matrix is stored by output row, like a linear layer's weight."""
    return {"op": "Gemm", "attrs": {"transB": 1}, "inputs": _given(record, 2)}


def _norm(record: CallRecord) -> Document:
    return {"op": "RMSNormalization", "attrs": {"epsilon": EPSILON}, "inputs": _given(record, 2)}


def _added_norm(record: CallRecord) -> Document:
    """The sum is a result too: the next layer's residual."""
    nodes = [
        {"op": "Add", "inputs": [0, 1], "outputs": [3]},
        {"op": "RMSNormalization", "attrs": {"epsilon": EPSILON}, "inputs": [3, 2], "outputs": [4]},
    ]
    return {"inputs": _given(record, 3), "nodes": nodes, "outputs": [4, 3]}


def _prefill(record: CallRecord) -> Document:
    attrs = record.attrs
    length, dtype, heads = int(attrs.get("length", LENGTH)), attrs.get("dtype", "bfloat16"), int(attrs["h"])
    size, value_size = (int(attrs.get(name, attrs.get("d"))) for name in ("qk", "vo"))
    shared = int(attrs.get("kv", heads))
    shapes = [(heads, size), (shared, size), (shared, value_size)]
    inputs = [{"shape": [1, many, length, wide], "dtype": dtype} for many, wide in shapes]
    return {"op": "Attention", "attrs": {"is_causal": 1}, "inputs": inputs}


_MAKERS: Mapping[str, Callable[[CallRecord], Document]] = {
    "gemm": _gemm,
    "rmsnorm": _norm,
    "fused_add_rmsnorm": _added_norm,
    "gqa_ragged_prefill_causal": _prefill,
    "mla_ragged_prefill_causal": _prefill,
}

_REASONS: Mapping[str, str] = {
    "paged": "keys and values lie in pages that a table names",
    "gdn": "a state is carried from call to call",
    "moe": "experts are chosen by data, and their weights are in blocks of 8 or 4 bits",
    "sampling": "draws random numbers",
}
"""Part of a definition's name → why ONNX has no operator for it."""
