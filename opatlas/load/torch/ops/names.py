"""Which operators the torch table has, and their limits, known without importing torch."""

from __future__ import annotations

from collections.abc import Callable

from opatlas.identity.operator import Node, Operator
from opatlas.identity.operator_types import families_with, types_with
from opatlas.load.torch.ops.site import TorchSite
from opatlas.load.torch.ops.windows import read_window

FAMILY_OF = families_with("torch")
"""Operator type → module of this package that builds it."""


KEPT = types_with("kept")
"""Operator types that PyTorch can compute straight into a kept buffer (:mod:`opatlas.load.torch.kept`)."""


def limit(operator: Operator, node: Node) -> str | None:
    """Why this node cannot be built although its type is known; None if nothing is known against it."""
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


def _shift(operator: Operator, node: Node) -> str | None:
    dtype = operator.value(node.inputs[0]).dtype
    return f"PyTorch's CPU shifts no {dtype}" if dtype in ("uint16", "uint32", "uint64") else None


def _cast(operator: Operator, node: Node) -> str | None:
    wild = node.attributes.get("saturate") == 0 and operator.value(node.outputs[0]).dtype.startswith("float8")
    return "PyTorch's Cast to eight bits has no word for what does not fit" if wild else None


def _max_pool(operator: Operator, node: Node) -> str | None:
    dtype, spatial = operator.value(node.inputs[0]).dtype, len(node.attributes["kernel_shape"])
    if dtype.startswith(("int", "uint")) and spatial != 2:
        return f"PyTorch has no MaxPool of {dtype} over {spatial} dimensions"
    if len(node.outputs) < 2:
        return None
    if node.attributes.get("storage_order"):
        return "PyTorch's MaxPool has no column-major indices"
    native = read_window(TorchSite(operator, node, {})).native
    return None if native else "PyTorch's MaxPool has no indices with one-sided padding"


def _resize(operator: Operator, node: Node) -> str | None:
    dtype, mode = operator.value(node.inputs[0]).dtype, node.attributes["mode"]
    smooth = mode == "cubic" or (mode == "linear" and node.attributes.get("antialias"))
    if smooth and dtype.startswith(("int", "uint")):
        return f"PyTorch has no {'antialiased' if mode == 'linear' else mode} Resize of {dtype}"
    return None


def _attention(operator: Operator, node: Node) -> str | None:
    scores = len(node.outputs) > 3 and node.outputs[3] >= 0
    return "PyTorch's attention gives no scores" if scores else None


def _rotary(operator: Operator, node: Node) -> str | None:
    positions = len(node.inputs) > 3 and node.inputs[3] >= 0
    if not positions and len(operator.value(node.inputs[1]).shape) != 3:
        return "RotaryEmbedding without positions needs tables of three dimensions"
    return None


_LIMITS: dict[str, Callable[[Operator, Node], str | None]] = {
    "Attention": _attention,
    "AveragePool": _narrow,
    "BitShift": _shift,
    "Cast": _cast,
    "Col2Im": _folding,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "DFT": _transform,
    "Det": _narrow,
    "GridSample": _sampling,
    "LRN": _narrow,
    "MaxPool": _max_pool,
    "Resize": _resize,
    "RotaryEmbedding": _rotary,
    "STFT": _transform,
}

LIMITED = frozenset(_LIMITS)
"""Types that PyTorch has in some forms only."""
