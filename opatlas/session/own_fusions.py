"""Fused operators that a session tries by itself: patterns propose them, they are looked up like single
nodes, and plans keep them if they measure faster (docs/plans.md)."""

from __future__ import annotations

from collections.abc import Sequence

from opatlas.graph.fused import PlacedOperator
from opatlas.graph.fusion.candidates import (
    FusionCandidate,
    FusionProposal,
    LocalValues,
    PartsShape,
    TypedFlow,
    as_operators,
    patterned,
    shape_of,
)
from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator, describe
from opatlas.plan.making import NodeChoice
from opatlas.session.known_kernels import KnownKernels

FLOPS_OF_A_BYTE = 8
"""About how many operations take as long as moving one byte through a core's memory."""
MOST_PROPOSED = 1024
"""The most proposals for a model: what patterns find in a thousand nodes, in a second or two."""


def own_fusions(graph: ModelGraph, most: int) -> list[FusionCandidate]:
    """Candidates of at most so many distinct operators, with most of the model's work, by the number of steps
    saved. Only these are made into operators, which takes about a millisecond a node."""
    if most < 1 or graph.is_random:
        return []
    placed = dict[int, PlacedOperator]()
    for number, node in enumerate(graph.nodes):
        if (own := graph.operator(number)) is not None:
            made = tuple(value for value in node.outputs if value != LEFT_OUT)
            placed[number] = PlacedOperator(own[0].operator, own[1], made)
    types = [node.proto.op_type for node in graph.nodes]
    typed = TypedFlow(DataFlow.of_graph(graph), types, frozenset(placed))
    found = patterned(typed, MOST_PROPOSED)
    shapes = [shape_of([placed[node] for node in one.nodes], LocalValues()) for one in found]
    works = {key: _work(one) for key, one in {at.operator.key: at.operator for at in placed.values()}.items()}
    worth = dict[PartsShape, tuple[bool, float]]()
    for one, shape, likely in zip(found, shapes, _are_likely(found, types), strict=True):
        before = worth.get(shape, (False, 0.0))
        work = (len(shape) - 1) * sum(works[placed[node].operator.key] for node in one.nodes)
        worth[shape] = (before[0] or likely, before[1] + work)
    asked = set(sorted(worth, key=worth.__getitem__, reverse=True)[:most])
    kept = (one for one, shape in zip(found, shapes, strict=True) if shape in asked)
    return as_operators(kept, placed)[0]


def _are_likely(found: Sequence[FusionProposal], types: Sequence[str]) -> list[bool]:
    """Drops proposals that another one extends, and pairs of convolutions that share only a sum of their
    results: a kernel would have to be the fastest for both."""
    begun = {one.nodes[:length] for one in found for length in range(2, len(one.nodes))}
    return [one.nodes not in begun and sum(types[node] == "Conv" for node in one.nodes) < 2 for one in found]


def _work(operator: Operator) -> float:
    """About how many floating-point operations a run takes."""
    described = describe(operator)
    return described.flops + FLOPS_OF_A_BYTE * described.bytes_moved


def fused_choices(candidates: Sequence[FusionCandidate], kernels: KnownKernels) -> list[NodeChoice]:
    """Those with a known kernel."""
    found = (kernels.choice(one.placed.operator.key, one.placed.tensors, one.nodes) for one in candidates)
    return [one for one in found if one is not None]
