"""The best layouts by dynamic programming: exact, and fast if the graph is a tree or near one. PURE.

Nodes are eliminated one by one, with a table of the least cost for each choice of their neighbours (R.
Dechter, *Bucket elimination*, 1999); along a tree that is ordinary dynamic programming from the leaves.
Whether a value with several readers is reordered is a choice of its own, which keeps the other readers out of
a reader's table. If a table would be too large, the graph is no near-tree, and the integer program takes it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opatlas.graph.linked import BodyPath
from tuning.graph.layout.problem import LayoutNode, LayoutProblem, LayoutRead, on_the_way

MOST_CELLS = 1 << 18
"""Of one table."""
MOST_CELLS_IN_ALL = 1 << 25
MOST_NEIGHBOURS = 32
"""Of one choice: each has at least two options, so more neighbours make too many cells."""


@dataclass(frozen=True)
class LayoutTable:
    """``scope``: choices, in order; ``costs`` has an axis for each."""

    scope: tuple[int, ...]
    costs: np.ndarray


def by_elimination(problem: LayoutProblem) -> tuple[dict[str, int], float] | None:
    """An option for each node, by number, and their cost; infinite if none fit together. None if the graph is
    too far from a tree."""
    made = _Tables(problem)
    order = _order(made.sizes, [table.scope for table in made.tables])
    if order is None:
        return None
    chosen, cost = _least(made.tables, made.sizes, order)
    return {node.name: chosen[at] for at, node in enumerate(problem.nodes)}, made.fixed_us + cost


class _Tables:
    """The problem as choices (each node's option, and whether each reorder is made) and tables of their
    costs."""

    def __init__(self, problem: LayoutProblem) -> None:
        self._problem = problem
        self.sizes = [len(node.options) for node in problem.nodes]
        self.tables: list[LayoutTable] = []
        self.fixed_us = 0.0  # of what has no choice
        readers: dict[str, list[tuple[int, int]]] = {name: [] for name in problem.values}
        for at, node in enumerate(problem.nodes):
            runs = problem.counts[node.body]
            self._add([at], np.array([runs * option.cost.us for option in node.options]))
            for place, read in enumerate(node.reads):
                readers[read.value].append((at, place))
        for at, node in enumerate(problem.nodes):
            for value in node.makes:
                layouts = problem.layouts_made(node, value)
                if len(readers[value]) == 1:
                    self._add_lone(at, layouts, *readers[value][0])
                elif readers[value]:
                    self._add_shared(value, at, layouts, readers[value])

    def _add(self, scope: Sequence[int], costs: np.ndarray) -> None:
        """``costs``: by the choices of ``scope``; one that is named twice is one."""
        once = sorted(set(scope))
        letters = [once.index(one) for one in scope]
        costs = np.einsum(costs, letters, list(range(len(once))))
        open_ones = tuple(one for one in once if self.sizes[one] > 1)
        if open_ones:  # what has no choice ties nobody to anybody
            self.tables.append(LayoutTable(open_ones, costs.reshape([self.sizes[one] for one in open_ones])))
        else:
            self.fixed_us += float(costs.item())

    def _add_lone(self, maker: int, made: list[str], reader: int, place: int) -> None:
        """A value with one reader: the reorder is made where it runs least often."""
        node = self._problem.nodes[reader]
        read = node.reads[place]
        runs = self._problem.least_on_the_way(read)
        wanted = _wanted(node, place)
        number = {layout: at for at, layout in enumerate(dict.fromkeys((*made, *wanted)))}
        ways = np.full((len(number), len(number)), math.inf)
        for (one, other), cost in self._problem.values[read.value].reorders.items():
            if one in number and other in number:
                ways[number[one], number[other]] = runs * cost.us
        np.fill_diagonal(ways, 0.0)
        self._add([maker, reader], ways[[[number[one]] for one in made], [number[one] for one in wanted]])

    def _add_shared(self, value: str, maker: int, made: list[str], readers: list[tuple[int, int]]) -> None:
        """A value with several readers: for each layout that a reader could need, and each body on the way to
        it, whether it is reordered there; each reader must have what it needs."""
        nodes, outer = self._problem.nodes, self._problem.values[value].body
        reads = [(at, nodes[at].reads[place], _wanted(nodes[at], place)) for at, place in readers]
        for target in dict.fromkeys(layout for _, _, wanted in reads for layout in wanted):
            able = [(at, read, wanted) for at, read, wanted in reads if target in wanted]
            cost = [self._reorder(value, one, target) for one in made]
            has_it = np.array([one == target for one in made])
            can_be_brought = any(us < math.inf for us, has in zip(cost, has_it, strict=True) if not has)
            on_ways = [read for _, read, _ in able] if can_be_brought else []
            places = self._placed(maker, cost, outer, on_ways)
            for at, read, wanted in able:
                path = [places[body] for body in on_the_way(outer, read.body) if places]
                lacks = np.array([one == target for one in wanted])[None, :] & ~has_it[:, None]
                costs = np.zeros((*lacks.shape, *[2] * len(path)))
                costs[(lacks, *[0] * len(path))] = math.inf
                self._add([maker, at, *path], costs)

    def _placed(
        self, maker: int, cost: list[float], outer: BodyPath, reads: Iterable[LayoutRead]
    ) -> Mapping[BodyPath, int]:
        """For each body a choice: whether a value is reordered there."""
        places: dict[BodyPath, int] = {}
        for body in dict.fromkeys(one for read in reads for one in on_the_way(outer, read.body)):
            places[body] = len(self.sizes)
            self.sizes.append(2)
            runs = self._problem.counts[body]
            self._add([maker, places[body]], np.array([[0.0, _times(runs, one)] for one in cost]))
        return places

    def _reorder(self, value: str, source: str, target: str) -> float:
        if source == target:
            return 0.0
        cost = self._problem.values[value].reorders.get((source, target))
        return cost.us if cost is not None else math.inf


def _wanted(node: LayoutNode, place: int) -> list[str]:
    """By option."""
    return [option.inputs[place] for option in node.options]


def _times(runs: float, us: float) -> float:
    """Unknown costs stay unknown, however rarely they would occur."""
    return us if math.isinf(us) else runs * us


def _order(sizes: Sequence[int], scopes: Iterable[tuple[int, ...]]) -> list[int] | None:
    """The order of elimination, always with the smallest table next; None if one is too large."""
    near: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for one in scope:
            near[one].update(scope)
            near[one].discard(one)

    def cells(one: int) -> float:
        if len(near[one]) > MOST_NEIGHBOURS:
            return math.inf
        return float(sizes[one] * math.prod(sizes[other] for other in near[one]))

    waiting = [(cells(one), one) for one in range(len(sizes))]
    heapq.heapify(waiting)
    order, gone, in_all = list[int](), set[int](), 0.0
    while waiting:
        size, one = heapq.heappop(waiting)
        if one in gone or size != cells(one):
            continue  # it was put in again with the size that it has now
        in_all += size
        if size > MOST_CELLS or in_all > MOST_CELLS_IN_ALL:
            return None
        gone.add(one)
        order.append(one)
        for other in near[one]:
            near[other] |= near[one]
            near[other] -= {one, other}
            heapq.heappush(waiting, (cells(other), other))
    return order


def _least(
    tables: Iterable[LayoutTable], sizes: Sequence[int], order: Sequence[int]
) -> tuple[list[int], float]:
    turn = {one: at for at, one in enumerate(order)}
    held: list[list[LayoutTable]] = [[] for _ in sizes]
    for table in tables:
        held[min(table.scope, key=turn.__getitem__)].append(table)
    taken, cost = list[tuple[int, tuple[int, ...], np.ndarray]](), 0.0
    for one in order:
        scope = sorted({one}.union(*(table.scope for table in held[one])))
        joined = np.zeros([sizes[other] for other in scope])
        for table in held[one]:
            joined += table.costs.reshape([sizes[other] if other in table.scope else 1 for other in scope])
        held[one] = []
        axis = scope.index(one)
        rest = tuple(other for other in scope if other != one)
        taken.append((one, rest, joined.argmin(axis)))
        least = joined.min(axis)
        if rest:
            held[min(rest, key=turn.__getitem__)].append(LayoutTable(rest, least))
        else:
            cost += float(least)
    chosen = [0] * len(sizes)
    for one, rest, best in reversed(taken):
        chosen[one] = int(best[tuple(chosen[other] for other in rest)])
    return chosen, cost
