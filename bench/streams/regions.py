"""Parts of a model that begin and end where one value alone goes on, and have branches between. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opatlas.graph.normal import ModelGraph
from opatlas.plan.making import needed_nodes
from opatlas.plan.streaming import could_pay

LEAST_NODES = 4
"""A fork of two nodes, what they read from and what joins them."""


def branching_regions(graph: ModelGraph) -> list[bytes]:
    """Each as a model of its own with the model's weights, in order; a model of one region is left out, since
    it is the model."""
    nodes = needed_nodes(graph)
    found = [part for part in _between_cuts(graph, nodes) if len(part) >= LEAST_NODES]
    regions = [part for part in found if len(part) < len(nodes)]
    made = (_model(graph, part) for part in regions)
    return [data for data in made if could_pay(ModelGraph(data), float("inf"))]


def _between_cuts(graph: ModelGraph, nodes: Sequence[int]) -> Iterator[list[int]]:
    last_read: dict[int, int] = {}
    for at, number in enumerate(nodes):
        last_read |= dict.fromkeys(graph.nodes[number].reads, at)
    last_read |= dict.fromkeys(graph.outputs, len(nodes))
    alive = {value for value in graph.inputs if value in last_read}
    part: list[int] = []
    for at, number in enumerate(nodes):
        part.append(number)
        alive |= {value for value in graph.nodes[number].makes if value in last_read}
        alive = {value for value in alive if last_read[value] > at}
        if len(alive) == 1 and graph.type_of(next(iter(alive))) is not None:
            yield part
            part = []
    if part:
        yield part


def _model(graph: ModelGraph, part: Sequence[int]) -> bytes:
    inside = set(part)
    read = {value for number, node in enumerate(graph.nodes) if number not in inside for value in node.reads}
    made = [value for number in part for value in graph.nodes[number].outputs if value >= 0]
    outputs = [value for value in made if value in read or value in graph.outputs]
    model, _ = graph.part(part, outputs, graph.evaluate(graph.constants_of(part)))
    return bytes(model.SerializeToString())
