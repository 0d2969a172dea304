"""Drops kernels that do not pay for the cuts that they make in a model. PURE.

A kernel between nodes of ONNX Runtime cuts the model. Values that ONNX Runtime would hold in blocks of
channels are converted there, and one more region is called. A single kernel may save less than that where
several in a row save more.

So the kernels are chosen together, along the order of the steps: a cut costs what all values alive there
cost. A value that passes several parts unread is counted at each, which is too much. So we also solve it with
cheaper cuts, cost each result, all kernels and none with their real borders, and keep the cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate

from opatlas.graph.linked import NodeAt
from opatlas.graph.profile import MIB, BorderCosts
from opatlas.plan.borders import Borders
from opatlas.plan.making import NodeChoice, PlannedGraph, needed_nodes, with_kernels
from opatlas.plan.plan import ByFramework, ByKernel

CHEAPER = (1.0, 0.5)
"""The share of its conversion that a value alive at a cut is charged."""


def worth_their_cuts(
    graph: PlannedGraph,
    chosen: Mapping[NodeAt, NodeChoice],
    left_us: Callable[[int], float],
    borders: Borders,
    costs: BorderCosts,
    fixed: Collection[int] = (),
) -> dict[NodeAt, NodeChoice]:
    """The kernels with which the whole model takes least, in their order. ``left_us``: the time of a node in
    ONNX Runtime, in place; ``fixed``: kernels that always stay, such as those in bodies."""
    stays = {at for at in chosen if isinstance(at, tuple) or at in fixed}
    if len(stays) == len(chosen):
        return dict(chosen)
    line = _StepOrder(graph, chosen, left_us, borders, costs, stays)
    ways = [frozenset(chosen), *(line.kept(share) for share in CHEAPER), frozenset(stays)]
    best = min(dict.fromkeys(ways), key=line.us)
    return {at: one for at, one in chosen.items() if at in best}


class _StepOrder:
    """The nodes in the order in which they run; a fused kernel stands at the place of its last node."""

    def __init__(
        self,
        graph: PlannedGraph,
        chosen: Mapping[NodeAt, NodeChoice],
        left_us: Callable[[int], float],
        borders: Borders,
        costs: BorderCosts,
        stays: Collection[NodeAt],
    ) -> None:
        self._graph, self._chosen, self._left_us = graph, chosen, left_us
        self._borders, self._costs, self._stays = borders, costs, stays
        within = {node for one in chosen.values() for node in one.fused[:-1]}
        order = [node for node in needed_nodes(graph) if node not in within]
        # Who runs by itself for the sake of a kernel in it cuts as a kernel does.
        self._must = {at[0] if isinstance(at, tuple) else at for at in stays}
        self._gains = [
            math.fsum(map(left_us, chosen[node].fused or (node,))) - chosen[node].median_us
            if node in chosen
            else None
            for node in order
        ]
        self._order = order
        self._alive = _alive(graph, order, chosen, borders)

    def us(self, way: Collection[NodeAt]) -> float:
        """The time of one run with these kernels alone, without the bodies of branches and loops that a plan
        runs."""

        def each() -> Iterator[float]:
            chosen = {at: self._chosen[at] for at in way}
            for step in with_kernels(self._graph, chosen, "", "").steps:
                if isinstance(step.by, ByKernel):
                    yield step.predicted_us or 0.0
                elif isinstance(step.by, ByFramework):
                    yield self._costs.ends_us(self._borders.bytes_of(step))
                    yield from map(self._left_us, step.nodes)

        return math.fsum(each())

    def kept(self, share: float) -> frozenset[NodeAt]:
        """The kernels with which the whole order takes least, if a value alive at a cut is charged this share
        of its conversion."""
        # Where the node that comes next is left, or runs by its kernel: the gain so far, and the kernels.
        left: _Way = (-self._costs.handoff_us, None)
        kernel: _Way = (0.0, None)
        for at, node in enumerate(self._order):
            before_left, before_kernel = left, kernel
            if at:
                cut_us = share * self._costs.us_per_mib * self._alive[at] / MIB
                begun = (kernel[0] - cut_us - self._costs.handoff_us, kernel[1])
                before_left = max(left, begun, key=_gain)
                before_kernel = max(kernel, (left[0] - cut_us, left[1]), key=_gain)
            gain = self._gains[at]
            if node in self._must:
                left, kernel = _NEVER, before_kernel
            elif gain is None:
                left, kernel = before_left, _NEVER
            else:
                left, kernel = before_left, (before_kernel[0] + gain, (node, before_kernel[1]))
        found, link = set(self._stays), max(left, kernel, key=_gain)[1]
        while link is not None:
            found.add(link[0])
            link = link[1]
        return frozenset(found)


_Chosen = tuple[int, "_Chosen"] | None
"""A chosen kernel, linked to those before it."""
_Way = tuple[float, _Chosen]
_NEVER: _Way = (-math.inf, None)


def _gain(way: _Way) -> float:
    return way[0]


def _alive(
    graph: PlannedGraph, order: list[int], chosen: Mapping[NodeAt, NodeChoice], borders: Borders
) -> list[int]:
    """Bytes in blocks that are alive before each node: made earlier, and read there or later."""
    place = {node: at for at, node in enumerate(order)}
    place |= {
        node: place[one.fused[-1]] for one in chosen.values() for node in one.fused if one.fused[-1] in place
    }
    made, last = dict[int, int](), dict[int, int]()
    for node, at in place.items():
        for value in graph.nodes[node].makes & borders.blocked.keys():
            made[value] = at
        for value in graph.nodes[node].reads & borders.blocked.keys():
            last[value] = max(last.get(value, 0), at)
    change = [0] * (len(order) + 1)
    for value, at in made.items():
        if (end := last.get(value, 0)) > at:
            change[at + 1] += borders.blocked[value]
            change[end + 1] -= borders.blocked[value]
    return list(accumulate(change))[: len(order)]
