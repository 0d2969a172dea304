"""Which operators the XLA lowering has, known without importing JAX."""

from __future__ import annotations

import math

from opatlas.identity import Operator
from opatlas.identity.operator import Node
from opatlas.identity.operator_types import families_with

FAMILY_OF = families_with("xla")
"""Operator type → module of this package that lowers it."""

DTYPES = frozenset(
    (
        *("bool", "float16", "float32", "float64", "bfloat16"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)

VARIANTS: dict[str, str] = {
    "plain": "plain",
    "channels-last": "channels-last",
    "product": "as a product",
    "shifted": "as one slice for each element of the window",
}
"""The forms of convolutions and pools, with their labels."""


def missing(operator: Operator) -> str | None:
    """Why the lowering cannot express the operator; None if nothing is known against it."""
    for node in operator.nodes:
        if node.domain not in ("", "ai.onnx") or node.op not in FAMILY_OF:
            return f"the XLA lowering has no {node.domain + '.' if node.domain else ''}{node.op}"
        if node.op == "MaxPool" and len([n for n in node.outputs if n >= 0]) > 1:
            return f"the XLA lowering makes only the first output of {node.op}"
    for value in (*operator.inputs, *operator.produced):
        if value.dtype not in DTYPES:
            return f"the XLA lowering has no {value.dtype}"
        if 0 in value.shape:
            return "XLA's code does not take empty tensors"
    return None


def variants(operator: Operator) -> list[str]:
    """The forms that the operator's convolutions and pools may have, best first."""
    found: list[str] = []
    for node in operator.nodes:
        found += [variant for variant in _variants(operator, node) if variant not in found]
    return found or ["plain"]


def _variants(operator: Operator, node: Node) -> list[str]:
    if node.op in ("MaxPool", "AveragePool"):
        few = math.prod(int(size) for size in node.attributes["kernel_shape"]) <= MOST_TAPS
        return ["shifted", "plain"] if few else ["plain"]
    if node.op != "Conv":
        return []
    weights = operator.value(node.inputs[1]).shape
    few = math.prod(weights[2:]) <= MOST_TAPS
    if int(node.attributes["group"]) > 1 and weights[1] == 1:
        return ["shifted", "plain"] if few else ["plain", "channels-last"]
    return [*(["product"] if few else []), "plain", "channels-last"]


MOST_TAPS = 49
"""A window of more elements is not unrolled into one slice each."""
