"""Inputs that say where: indices, lengths, boxes. Each may be only what its operator defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from opatlas.identity import Node, Operator
from tuning.measure.judging.domain import Domain

Rules = Iterator[tuple[int, Domain]]
Shape = Callable[[int], tuple[int, ...]]
"""The shape of an input by its position."""


def places(operator: Operator, node: Node) -> Rules:
    """Positions of a node's inputs with what they may be."""
    if node.op in _RULES:
        yield from _RULES[node.op](operator, node, lambda at: operator.value(node.inputs[at]).shape)


def _gather(operator: Operator, node: Node, shape: Shape) -> Rules:
    axis = node.attributes.get("axis", 0)
    yield 1, Domain("index", (shape(0)[axis],), backwards=True)


def _scatter_elements(operator: Operator, node: Node, shape: Shape) -> Rules:
    axis = node.attributes.get("axis", 0) % len(shape(0))
    yield 1, Domain("unique", (shape(0)[axis],), axis, backwards=True)


def _tuples(operator: Operator, node: Node, shape: Shape) -> Rules:
    gathers = node.op == "GatherND"
    skip = node.attributes.get("batch_dims", 0) if gathers else 0
    extents = shape(0)[skip : skip + shape(1)[-1]]
    yield 1, Domain("tuple" if gathers else "unique_tuple", extents, backwards=True)


def _reverse_sequence(operator: Operator, node: Node, shape: Shape) -> Rules:
    yield 1, Domain("length", (shape(0)[node.attributes.get("time_axis", 0)],))


def _recurrent(operator: Operator, node: Node, shape: Shape) -> Rules:
    yield 4, Domain("length", (shape(0)[0],))


def _one_hot(operator: Operator, node: Node, shape: Shape) -> Rules:
    depth = operator.value(node.inputs[1]).data
    yield 0, Domain("index", (int(depth[0]) if depth else 2,), backwards=True)


def _loss(operator: Operator, node: Node, shape: Shape) -> Rules:
    yield 1, Domain("index", (shape(0)[1],), ignored=node.attributes.get("ignore_index"))


def _max_unpool(operator: Operator, node: Node, shape: Shape) -> Rules:
    # Two elements at one place: the later one wins, or not.
    yield 1, Domain("in_plane", (prod(shape(0)[2:]), prod(operator.value(node.outputs[0]).shape[2:])))


def _roi_align(operator: Operator, node: Node, shape: Shape) -> Rules:
    yield 1, Domain("boxes", _image(node, shape))
    yield 2, Domain("index", (shape(0)[0],))


def _max_roi_pool(operator: Operator, node: Node, shape: Shape) -> Rules:
    yield 1, Domain("boxes_of_images", (shape(0)[0], *_image(node, shape)))


def _image(node: Node, shape: Shape) -> tuple[int, int]:
    """Height and width of the image in the boxes' units."""
    scale = float(node.attributes.get("spatial_scale", 1.0))
    height, width = (max(1, int(extent / scale)) if scale > 0 else extent for extent in shape(0)[2:])
    return height, width


def _rotary(operator: Operator, node: Node, shape: Shape) -> Rules:
    if len(node.inputs) > 3:
        yield 3, Domain("index", (shape(1)[0],))


_RULES: dict[str, Callable[[Operator, Node, Shape], Rules]] = {
    "GRU": _recurrent,
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _tuples,
    "LSTM": _recurrent,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
    "NegativeLogLikelihoodLoss": _loss,
    "OneHot": _one_hot,
    "RNN": _recurrent,
    "ReverseSequence": _reverse_sequence,
    "RoiAlign": _roi_align,
    "RotaryEmbedding": _rotary,
    "ScatterElements": _scatter_elements,
    "ScatterND": _tuples,
    "SoftmaxCrossEntropyLoss": _loss,
}
