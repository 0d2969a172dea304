"""Which operators the torch table has, and their limits, known without importing torch."""

from __future__ import annotations

from collections.abc import Callable

from opatlas.identity.operator import Node, Operator
from opatlas.identity.operator_types import families_with, types_with

FAMILY_OF = families_with("torch")
"""Operator type → module of this package that builds it."""


KEPT = types_with("kept")
"""Operator types that PyTorch can compute straight into a kept buffer (:mod:`opatlas.load.torch.kept`)."""


def limit(operator: Operator, node: Node) -> str | None:
    """Why this node cannot be built although its type is known; None where nothing is known against it."""
    check = _LIMITS.get(node.op)
    return check(operator, node) if check else None


def _conv(operator: Operator, node: Node) -> str | None:
    spatial = len(operator.value(node.inputs[0]).shape) - 2
    return None if 1 <= spatial <= 3 else f"PyTorch has no {node.op} over {spatial} dimensions"


def _narrow(operator: Operator, node: Node) -> str | None:
    value = operator.value(node.inputs[0])
    if node.op == "AveragePool" and len(value.shape) < 5:
        return None
    return f"PyTorch's CPU has no {value.dtype} {node.op}" if value.dtype in ("float16", "bfloat16") else None


def _sampling(operator: Operator, node: Node) -> str | None:
    rank = len(operator.value(node.inputs[0]).shape)
    if rank not in (4, 5):
        return f"PyTorch has no GridSample over {rank - 2} dimensions"
    cubic = rank == 5 and node.attributes.get("mode") == "cubic"
    return "PyTorch has no cubic GridSample over 3 dimensions" if cubic else None


def _transform(operator: Operator, node: Node) -> str | None:
    value = operator.value(node.inputs[0])
    return None if value.dtype in ("float32", "float64") else f"PyTorch's CPU has no {value.dtype} {node.op}"


def _folding(operator: Operator, node: Node) -> str | None:
    pads = node.attributes["pads"]
    if len(operator.value(node.outputs[0]).shape) != 4 or pads[:2] != pads[2:]:
        return "PyTorch has Col2Im over two dimensions with the same padding on both sides only"
    return None


_LIMITS: dict[str, Callable[[Operator, Node], str | None]] = {
    "AveragePool": _narrow,
    "Col2Im": _folding,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "DFT": _transform,
    "Det": _narrow,
    "GridSample": _sampling,
    "LRN": _narrow,
    "STFT": _transform,
}
