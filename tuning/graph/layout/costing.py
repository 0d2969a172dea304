"""The cost of a choice of layouts, computed from the problem alone: the solvers' own sums are compared with
it. PURE."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opatlas.graph.linked import BodyPath
from tuning.graph.layout.problem import InvalidLayouts, LayoutProblem


@dataclass(frozen=True)
class PlacedReorder:
    """One reorder of a value, in ``body``; ``us``: of all its runs in one run of the model."""

    value: str
    source: str
    target: str
    body: BodyPath
    us: float
    is_estimate: bool


@dataclass(frozen=True)
class LayoutCosts:
    """Microseconds of one run of the model. ``estimated_us``: the unmeasured part."""

    nodes_us: float
    reorders: tuple[PlacedReorder, ...]
    estimated_us: float

    @property
    def total_us(self) -> float:
        return self.nodes_us + math.fsum(one.us for one in self.reorders)


def costs_of(problem: LayoutProblem, chosen: Mapping[str, int]) -> LayoutCosts:
    """For one option of each node, by number; reorders are placed where they cost least. Raises
    :class:`InvalidLayouts` if a node has no choice, or a needed reorder is unknown."""
    own, estimated = list[float](), list[float]()
    made = dict[str, str]()
    wanted: dict[tuple[str, str], set[BodyPath]] = defaultdict(set)
    for node in problem.nodes:
        if not 0 <= (number := chosen.get(node.name, -1)) < len(node.options):
            raise InvalidLayouts(f"No option is chosen for node {node.name}.")
        option = node.options[number]
        us = problem.counts[node.body] * option.cost.us
        own.append(us)
        estimated += [us] if option.cost.is_estimate else []
        made |= dict(zip(node.makes, option.outputs, strict=True))
        for read, layout in zip(node.reads, option.inputs, strict=True):
            wanted[read.value, layout].add(read.body)
    reorders = []
    for (name, target), bodies in wanted.items():
        if made[name] != target:
            reorders += _placed(problem, name, made[name], target, bodies)
    estimated += [one.us for one in reorders if one.is_estimate]
    return LayoutCosts(math.fsum(own), tuple(reorders), math.fsum(estimated))


def _placed(
    problem: LayoutProblem, name: str, source: str, target: str, bodies: Collection[BodyPath]
) -> list[PlacedReorder]:
    value = problem.values[name]
    cost = value.reorders.get((source, target))
    if cost is None:
        raise InvalidLayouts(f"No reorder of '{name}' from {source} to {target} is known.")
    _, places = _cheapest(problem.counts, value.body, bodies)
    return [
        PlacedReorder(name, source, target, body, problem.counts[body] * cost.us, cost.is_estimate)
        for body in places
    ]


def _cheapest(
    counts: Mapping[BodyPath, float], here: BodyPath, wanted: Collection[BodyPath]
) -> tuple[float, list[BodyPath]]:
    """Runs of one reorder here for all that need it here or further in, or of several further in if those run
    less often."""
    if here in wanted:
        return counts[here], [here]
    inner = sorted({one[: len(here) + 2] for one in wanted})
    below = [_cheapest(counts, one, [body for body in wanted if body[: len(one)] == one]) for one in inner]
    runs = math.fsum(count for count, _ in below)
    if counts[here] <= runs:
        return counts[here], [here]
    return runs, [body for _, bodies in below for body in bodies]
