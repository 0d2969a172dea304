"""Which nodes of a model may run at the same time, and whether that could pay. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity.place.kinds import CPU
from opatlas.plan.making import needed_nodes
from opatlas.streams.manners import manner_of
from opatlas.streams.placing import Placeable, longest_ways, place_in_streams

STREAMS = (2, 4)
"""The numbers of streams to try, if there are threads for each."""
LEAST_US = 500.0
"""The shortest run worth streams: a hand-over takes tens of microseconds."""
LEAST_OVERLAP = 1.1
"""The least ratio of all nodes' time to that of the longest chain: the most that streams could gain."""


def node_streams(graph: ModelGraph, node_us: Mapping[NodeAt, float], count: int) -> dict[int, int]:
    """The stream of each node that an output needs. ``node_us``: each node's time in place."""
    needed = needed_nodes(graph)
    placed = place_in_streams(_placeable(graph, needed, node_us), count)
    return dict(zip(needed, placed, strict=True))


def could_pay(graph: ModelGraph, run_us: float, node_us: Mapping[NodeAt, float] | None = None) -> bool:
    """Whether a run is long enough, and enough of it lies outside its longest chain. ``node_us`` None: times
    are unknown, and all nodes count the same."""
    operators = _placeable(graph, needed_nodes(graph), node_us or {})
    total = sum(one.cost_us for one in operators)
    return run_us >= LEAST_US and total >= LEAST_OVERLAP * max(longest_ways(operators), default=0.0)


def _placeable(graph: ModelGraph, needed: Sequence[int], node_us: Mapping[NodeAt, float]) -> list[Placeable]:
    """``node_us`` empty: all nodes take the same."""
    maker = {value: at for at, number in enumerate(needed) for value in graph.nodes[number].makes}
    found = []
    for number in needed:
        node = graph.nodes[number]
        after = frozenset(maker[value] for value in node.reads if value in maker)
        cost_us = node_us.get(number, 0.0) if node_us else 1.0
        found.append(Placeable(manner_of(node.proto.op_type, CPU).manner, after, cost_us))
    return found
