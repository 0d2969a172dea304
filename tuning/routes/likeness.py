"""How alike two operators are: a schedule found for one may serve another of its family. PURE.

A *family* is everything but the sizes: operators and how they are wired, attributes, kernel sizes, ranks,
dtypes, what is constant. Within one, nearness is measured in the logarithms of the sizes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from opatlas.identity import Node, Operator, Setting
from opatlas.identity.operator import canonical_json

_SIZES_AS_DATA = frozenset({"Reshape", "Expand", "Resize", "Tile", "Upsample"})
"""These get sizes as values of an input: not structure."""

_KERNEL_FROM = 2
"""Of a convolution's weights, the dimensions from here on are the kernel's."""


def family_of(operator: Operator, setting: Setting) -> str:
    """The op types and a digest of the structure: at most 80 characters."""
    document = {
        "nodes": [
            {
                "op": node.op,
                "domain": node.domain,
                "wires": [node.inputs, node.outputs],
                "attrs": _attributes(operator, node),
                "kernel": _kernel(operator, node),
            }
            for node in operator.nodes
        ],
        "inputs": [
            [value.dtype, len(value.shape), value.role, value.strides is not None, _data(operator, i)]
            for i, value in enumerate(operator.inputs)
        ],
        "outputs": operator.outputs,
        "produced": [[value.dtype, len(value.shape)] for value in operator.produced],
        "numerics": [setting.accumulate, setting.tf32, setting.fast_math],
        **({"graphs": True} if setting.graphs else {}),
    }
    digest = hashlib.sha256(canonical_json(document)).hexdigest()[:16]
    return f"{'+'.join(operator.op_types)[:60]}:{digest}"


def features_of(operator: Operator, setting: Setting) -> list[float]:
    """log2 of every size, inputs first, then outputs, and of the threads; as long for all of a family."""
    tensors = [operator.inputs[number] for number in operator.tensor_inputs]
    sizes = [size for value in (*tensors, *operator.output_values) for size in value.shape]
    return [round(math.log2(max(1, size)), 4) for size in (*sizes, setting.threads)]


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Euclidean, in doublings; infinite between lists of different lengths."""
    return math.dist(one, other) if len(one) == len(other) else math.inf


def sizes_of(operator: Operator) -> str:
    """The sizes in a few characters, for people: ``1×64×56×56, 64×64×3×3``."""
    shapes = [operator.inputs[number].shape for number in operator.tensor_inputs]
    named = [shape for shape in shapes if len(shape) > 1] or shapes
    return ", ".join("×".join(map(str, shape)) or "scalar" for shape in named[:2])


def _attributes(operator: Operator, node: Node) -> list[Any]:
    """Attributes as they are, except that a group per channel is a kind of its own, whatever the number."""
    kept: list[Any] = []
    for name, value in node.attrs:
        if name == "group" and value > 1 and operator.value(node.inputs[0]).shape[1:2] == (value,):
            value = "one per channel"
        kept.append([name, value])
    return kept


def _kernel(operator: Operator, node: Node) -> tuple[int, ...]:
    if "Conv" not in node.op or len(node.inputs) < 2 or node.inputs[1] < 0:
        return ()
    return operator.value(node.inputs[1]).shape[_KERNEL_FROM:]


def _data(operator: Operator, number: int) -> Any:
    """Values that shape the computation, unless they are sizes (then how many)."""
    values = operator.inputs[number].data
    if values is None:
        return None
    readers = {node.op for node in operator.nodes if number in node.inputs}
    return len(values) if readers & _SIZES_AS_DATA else list(values)
