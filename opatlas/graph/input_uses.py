"""What a model does with its inputs: which are indices and of what range, which divide, which decide sizes.
PURE.

It is read off the graph: an input's values are followed forwards through what keeps them (reshaping, casts
between whole numbers, sums and products with constants) to where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.types import TensorType
from opatlas.graph.walk import CONTROL

KEEPS = frozenset(
    {
        "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Tile", "Slice",
        "Split", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Compress",
        "Dropout", "ReverseSequence",
    }
)  # fmt: skip
"""Operators whose first input's values come out as they are."""
SHAPING: Mapping[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "ConstantOfShape": (0,),
    "Pad": (1, 3),
    "Resize": (1, 2, 3), "Upsample": (1,), "TopK": (1,), "OneHot": (1,), "Unsqueeze": (1,), "Squeeze": (1,),
    "Split": (1,), "Range": (0, 1, 2), "CumSum": (1,), "CenterCropPad": (1,), "AffineGrid": (1,),
    "Col2Im": (1, 2),
    "MaxUnpool": (2,), "NonMaxSuppression": (2,), "DFT": (1, 2), "STFT": (1, 3), "HannWindow": (0,),
    "HammingWindow": (0,), "BlackmanWindow": (0,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    "SplitToSequence": (1,),
    "SequenceAt": (1,), "SequenceInsert": (2,), "SequenceErase": (1,), "Loop": (0, 1), "Compress": (1,),
    "Attention": (4, 5, 6), "Trilu": (1,),
}  # fmt: skip
"""Inputs that say how large something is, where it begins, or how often it happens."""
_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
_INDEXED: Mapping[str, tuple[int, int]] = {
    "Gather": (1, 0), "GatherElements": (1, 0), "ScatterElements": (1, 0), "Scatter": (1, 0),
}  # fmt: skip
"""Which input indexes which, along the attribute ``axis``."""
MODERATE = 2**24
"""Whole numbers of 32 bits or more are held to be at most so large, up or down, where nothing else is known:
beyond every vocabulary, float32 still holds each, and a product with a small constant fits 32 bits."""
_WHOLE = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_WIDE = frozenset({6, 7, 12, 13})
"""ONNX's numbers of whole-number types: all but those of 4 bits, and those of 32 bits or more."""


@dataclass(frozen=True)
class InputUse:
    """What one input must be: ``low`` to ``high`` if it is a whole number (endless where nothing says so),
    none of the values ``never`` (they would divide by zero), and ``is_fixed`` where it decides sizes or how
    often something happens, so that other values are another computation."""

    low: float = -math.inf
    high: float = math.inf
    never: frozenset[int] = frozenset()
    is_fixed: bool = False

    def within(self, low: float, high: float) -> InputUse:
        return replace(self, low=max(self.low, low), high=min(self.high, high))


@dataclass(frozen=True)
class _Value:
    """``scale`` × the input + something in ``low`` to ``high``."""

    scale: int = 1
    low: int = 0
    high: int = 0


def input_uses(graph: ModelGraph) -> dict[str, InputUse]:
    """Of each input of a model, by name."""
    fixed = _that_shape(graph)
    return {
        name: replace(_use_of(graph, number), is_fixed=number in fixed)
        for name, number in zip(graph.input_names, graph.inputs, strict=True)
    }


def _use_of(graph: ModelGraph, number: int) -> InputUse:
    kind, use = graph.type_of(number), InputUse()
    if kind is None or kind.element not in _WHOLE:
        return use
    held = {number: _Value()}
    for node in graph.nodes:
        for slot, value in enumerate(node.inputs):
            if value in held:
                use = _used(graph, node, slot, held[value], use)
        if (kept := _kept(graph, node, held)) is not None:
            held.update(dict.fromkeys(node.makes, kept))
    return use


def _used(graph: ModelGraph, node: GraphNode, slot: int, value: _Value, use: InputUse) -> InputUse:
    op = node.proto.op_type
    for size in _indexed_sizes(graph, node, slot):
        low = math.ceil((-size - value.low) / value.scale)
        use = use.within(low, math.floor((size - 1 - value.high) / value.scale))
    if op in ("Div", "Mod") and slot == 1 and value.high - value.low < 64:
        zeros = (-one for one in range(value.low, value.high + 1) if one % value.scale == 0)
        use = replace(use, never=use.never | {zero // value.scale for zero in zeros})
    return use


def _indexed_sizes(graph: ModelGraph, node: GraphNode, slot: int) -> Iterator[int]:
    """Of the axis that this input indexes, if it does; of several the smallest."""
    op = node.proto.op_type
    if op in _INDEXED and slot == _INDEXED[op][0]:
        if (kind := _type(graph, node, 0)) is not None and kind.shape:
            yield kind.shape[_int(node.proto, "axis", 0)]
    elif op in ("GatherND", "ScatterND") and slot == 1:
        data, indices = _type(graph, node, 0), _type(graph, node, 1)
        if data is not None and indices is not None and indices.shape:
            first = _int(node.proto, "batch_dims", 0)
            yield min(data.shape[first : first + indices.shape[-1]], default=1)
    elif op == "OneHot" and slot == 0 and (depth := _constant(graph, node, 1)) is not None:
        yield int(depth.reshape(-1)[0])
    elif op == "EmbedLayerNormalization" and slot < 2 and (kind := _type(graph, node, slot + 2)) is not None:
        yield kind.shape[0]
    elif op in _LOSSES and slot == 1 and (kind := _type(graph, node, 0)) is not None:
        yield kind.shape[1]


def _kept(graph: ModelGraph, node: GraphNode, held: Mapping[int, _Value]) -> _Value | None:
    """What the node's outputs are of the input, if it can be said."""
    op, first = node.proto.op_type, node.inputs[0] if node.inputs else -1
    if op in KEEPS and first in held:
        return held[first]
    if op == "Cast" and first in held and _int(node.proto, "to", 0) in _WIDE:
        return held[first]
    if op == "Concat":
        return next((held[one] for one in node.inputs if one in held), None)
    if op in _ARITHMETIC and len(node.inputs) == 2:
        for slot in (0, 1):
            if node.inputs[slot] in held and (other := _constant(graph, node, 1 - slot)) is not None:
                return _ARITHMETIC[op](held[node.inputs[slot]], other, slot) if other.size else None
    return None


def _added(value: _Value, other: np.ndarray, slot: int) -> _Value:
    return replace(value, low=value.low + int(other.min()), high=value.high + int(other.max()))


def _taken(value: _Value, other: np.ndarray, slot: int) -> _Value | None:
    return _added(value, -other.astype(np.int64), slot) if slot == 0 else None


def _scaled(value: _Value, other: np.ndarray, slot: int) -> _Value | None:
    by = int(other.reshape(-1)[0])
    if by <= 0 or (other != by).any():
        return None
    return _Value(value.scale * by, value.low * by, value.high * by)


_ARITHMETIC: Mapping[str, Callable[[_Value, np.ndarray, int], _Value | None]] = {
    "Add": _added, "Sub": _taken, "Mul": _scaled,
}  # fmt: skip


def _that_shape(graph: ModelGraph) -> frozenset[int]:
    """Values that sizes, positions or rounds follow from. What a loop reads is among them: no value that a
    run is tried with may make it endless."""
    found: set[int] = set()
    for node in reversed(graph.nodes):
        if node.proto.op_type in ("Shape", "Size"):
            continue
        if (node.proto.op_type in CONTROL and node.proto.op_type != "If") or node.makes & found:
            found |= node.reads
        elif node.proto.domain not in ("", "ai.onnx"):  # nobody says what its whole numbers are
            found |= {one for one in node.reads if _is_whole(graph, one)}
        found |= {
            node.inputs[slot] for slot in SHAPING.get(node.proto.op_type, ()) if slot < len(node.inputs)
        }
    return frozenset(found)


def _is_whole(graph: ModelGraph, number: int) -> bool:
    kind = graph.type_of(number)
    return kind is None or kind.element in _WHOLE


def _type(graph: ModelGraph, node: GraphNode, slot: int) -> TensorType | None:
    return graph.type_of(node.inputs[slot]) if slot < len(node.inputs) and node.inputs[slot] >= 0 else None


def _constant(graph: ModelGraph, node: GraphNode, slot: int) -> np.ndarray | None:
    number = node.inputs[slot] if slot < len(node.inputs) else -1
    return graph.walk.values.get(graph.names[number]) if number >= 0 else None


def _int(proto: onnx.NodeProto, name: str, default: int) -> int:
    found = next((one for one in proto.attribute if one.name == name), None)
    return default if found is None else int(helper.get_attribute_value(found))
