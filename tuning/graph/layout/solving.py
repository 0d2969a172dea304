"""The best choice of layouts: exact if the graph allows, otherwise with the gap. PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from opatlas.errors import OpatlasError
from tuning.graph.layout.costing import LayoutCosts, costs_of
from tuning.graph.layout.elimination import by_elimination
from tuning.graph.layout.integer import by_integer_program
from tuning.graph.layout.names import is_inside
from tuning.graph.layout.problem import InvalidLayouts, LayoutNode, LayoutOption, LayoutProblem

LIMIT_S = 1.5
"""Of the integer program: planning has two seconds for 2,000 operators, and the rest needs some too."""
ELIMINATION, PROGRAM, UNIFORM = "dynamic programming", "integer programming", "one layout for all"
AT_HAND = "a choice of parts of it"
SLACK = 1e-6
"""The relative difference allowed between two sums of the same numbers."""


@dataclass(frozen=True)
class LayoutSolution:
    """``chosen``: an option of each node, by number; ``by``: the method; ``gap``: by which share of its cost
    the best may be below it at most, 0 if it is the best."""

    chosen: Mapping[str, int]
    costs: LayoutCosts
    by: str
    gap: float


def solve(
    problem: LayoutProblem,
    seconds: float = LIMIT_S,
    at_hand: Callable[[], Iterable[Mapping[str, int]]] = tuple,
) -> LayoutSolution:
    """The cheapest choice. ``seconds``: for the integer program, used if dynamic programming cannot; after
    them the best one found is returned with its gap, or the one ``at_hand`` if that is as good. Raises
    :class:`InvalidLayouts` if no choice fits, for want of reorders, or none was found in time."""
    found = by_elimination(problem)
    if found is not None:
        chosen, said_us = found
        if math.isinf(said_us):
            raise InvalidLayouts("No choice of layouts fits together: reorders between them are not known.")
        return _held(problem, LayoutSolution(chosen, costs_of(problem, chosen), ELIMINATION, 0.0), said_us)
    return _by_program(problem, seconds, at_hand())


def _by_program(
    problem: LayoutProblem, seconds: float, at_hand: Iterable[Mapping[str, int]]
) -> LayoutSolution:
    result = by_integer_program(problem, seconds)
    if result.is_infeasible:
        raise InvalidLayouts("No choice of layouts fits together: reorders between them are not known.")
    bound_us = max(result.bound_us, _least_of_nodes(problem))
    candidates: list[tuple[str, Mapping[str, int]]] = [(AT_HAND, one) for one in at_hand]
    candidates += [(UNIFORM, one) for one in _uniform(problem)]
    if result.chosen is not None:
        candidates.insert(0, (PROGRAM, result.chosen))
    solutions = []
    for by, chosen in candidates:
        try:
            costs = costs_of(problem, chosen)
        except InvalidLayouts:
            continue  # one layout for all may not fit together
        gap = (costs.total_us - bound_us) / costs.total_us if costs.total_us else 0.0
        solutions.append(LayoutSolution(chosen, costs, by, gap if gap > SLACK else 0.0))
    if not solutions:
        raise InvalidLayouts(f"No choice of layouts that fits together was found in {seconds:g} s.")
    best = min(solutions, key=lambda one: one.costs.total_us)
    return _held(problem, best, max(best.costs.total_us, bound_us))


def _held(problem: LayoutProblem, solution: LayoutSolution, said_us: float) -> LayoutSolution:
    """Compares a solver's own sum with the one computed from the problem alone."""
    total_us = solution.costs.total_us
    if abs(total_us - said_us) > SLACK * max(total_us, said_us, 1.0):
        raise OpatlasError(f"Layouts by {solution.by} were said to take {said_us} µs; they take {total_us}.")
    return solution


def _least_of_nodes(problem: LayoutProblem) -> float:
    """A lower bound: each node's cheapest option, without any reorder."""
    return math.fsum(
        problem.counts[node.body] * min(option.cost.us for option in node.options) for node in problem.nodes
    )


def _uniform(problem: LayoutProblem) -> Iterator[dict[str, int]]:
    """One layout for every node that has it: the fallback if the program finds nothing in time."""
    sides = (one for node in problem.nodes for option in node.options for one in _sides(option))
    for layout in dict.fromkeys(one for one in sides if not is_inside(one)):
        yield {node.name: _nearest(node, layout) for node in problem.nodes}


def _nearest(node: LayoutNode, layout: str) -> int:
    """The node's option with this layout on most sides; of several the cheapest."""

    def worth(at: int) -> tuple[bool, int, float]:
        option = node.options[at]
        sides = _sides(option)
        return any(map(is_inside, sides)), -sides.count(layout), option.cost.us

    return min(range(len(node.options)), key=worth)


def _sides(option: LayoutOption) -> tuple[str, ...]:
    return (*option.inputs, *option.outputs)
