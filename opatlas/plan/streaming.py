"""Which of a model's nodes may run beside each other, and whether that could pay. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity.place.kinds import CPU
from opatlas.plan.making import needed_nodes
from opatlas.streams.manners import manner_of
from opatlas.streams.placing import Placeable, longest_ways, place_in_streams

STREAMS = (2, 4)
"""So many are tried, as far as there are threads for each."""
LEAST_US = 500.0
"""Of a model's run: below it what streams cost (a hand-over takes tens of microseconds) is most of it."""
LEAST_OVERLAP = 1.1
"""Of all nodes' time to that of the longest chain of them: what streams could gain at most."""


def node_streams(graph: ModelGraph, node_us: Mapping[NodeAt, float], count: int) -> dict[int, int]:
    """The stream of each node that an output needs. ``node_us``: what each takes where it stands."""
    needed = needed_nodes(graph)
    placed = place_in_streams(_placeable(graph, needed, node_us), count)
    return dict(zip(needed, placed, strict=True))


def could_pay(graph: ModelGraph, run_us: float, node_us: Mapping[NodeAt, float] | None = None) -> bool:
    """Whether a run is long enough, and enough of it beside its longest chain. ``node_us`` None: nothing is
    known of nodes yet, and all count the same."""
    operators = _placeable(graph, needed_nodes(graph), node_us or {})
    total = sum(one.cost_us for one in operators)
    return run_us >= LEAST_US and total >= LEAST_OVERLAP * max(longest_ways(operators), default=0.0)


def _placeable(graph: ModelGraph, needed: Sequence[int], node_us: Mapping[NodeAt, float]) -> list[Placeable]:
    """``node_us`` empty: all take the same."""
    maker = {value: at for at, number in enumerate(needed) for value in graph.nodes[number].makes}
    found = []
    for number in needed:
        node = graph.nodes[number]
        after = frozenset(maker[value] for value in node.reads if value in maker)
        cost_us = node_us.get(number, 0.0) if node_us else 1.0
        found.append(Placeable(manner_of(node.proto.op_type, CPU).manner, after, cost_us))
    return found
