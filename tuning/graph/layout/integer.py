"""The best layouts by integer programming (HiGHS, through SciPy), for graphs that are far from trees. PURE.

Which layout a value goes from and to at each of its readers is a flow: so much leaves each layout as its
maker's options give, so much arrives in each as its reader's take. Along a tree that program is whole by
itself; elsewhere HiGHS branches on the nodes' options.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.graph.linked import BodyPath
from tuning.graph.layout.problem import LayoutProblem, LayoutRead, on_the_way


@dataclass(frozen=True)
class ProgramResult:
    """``chosen``: None where none was found in time, or none fits (``is_infeasible``); ``bound_us``: no
    choice costs less."""

    chosen: dict[str, int] | None
    bound_us: float
    is_infeasible: bool = False


def by_integer_program(problem: LayoutProblem, seconds: float) -> ProgramResult:
    """The best that is found within so many seconds."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    made = _Program(problem)
    count = len(made.costs)
    matrix = csr_array((made.weights, (made.rows, made.columns)), shape=(len(made.least), count))
    found = milp(
        np.array(made.costs),
        integrality=np.repeat([1, 0], [made.whole, count - made.whole]),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, np.array(made.least), np.array(made.most)),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if found.status == INFEASIBLE:
        return ProgramResult(None, math.inf, is_infeasible=True)
    bound = getattr(found, "mip_dual_bound", None)
    bound_us = float(bound) if bound is not None and math.isfinite(bound) else 0.0
    return ProgramResult(made.chosen(found.x) if found.x is not None else None, bound_us)


INFEASIBLE = 2
"""What SciPy's ``milp`` calls a program that nothing fulfils."""


class _Program:
    """A problem as columns (first each node's options, which must be whole) and rows of a linear program."""

    def __init__(self, problem: LayoutProblem) -> None:
        self._problem = problem
        self.costs: list[float] = []
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.weights: list[float] = []
        self.least: list[float] = []
        self.most: list[float] = []
        self._options = [
            [self._column(problem.counts[node.body] * option.cost.us) for option in node.options]
            for node in problem.nodes
        ]
        self.whole = len(self.costs)
        for columns in self._options:
            self._row([(one, 1.0) for one in columns], 1.0, 1.0)
        readers = defaultdict[str, list[tuple[int, int]]](list)
        for at, node in enumerate(problem.nodes):
            for place, read in enumerate(node.reads):
                readers[read.value].append((at, place))
        for at, node in enumerate(problem.nodes):
            for value in node.makes:
                leaving = _by_layout(problem.layouts_made(node, value), self._options[at])
                self._add_value(value, leaving, readers[value])

    def chosen(self, values: Any) -> dict[str, int]:
        return {
            node.name: int(np.argmax([values[one] for one in columns]))
            for node, columns in zip(self._problem.nodes, self._options, strict=True)
        }

    def _add_value(
        self, value: str, leaving: Mapping[str, list[int]], readers: list[tuple[int, int]]
    ) -> None:
        copies: dict[tuple[str, str, BodyPath], int] = {}
        for at, place in readers:
            node = self._problem.nodes[at]
            read = node.reads[place]
            arriving = _by_layout([option.inputs[place] for option in node.options], self._options[at])
            flows = self._flows(read, leaving, arriving, alone=len(readers) == 1)
            for source, columns in leaving.items():
                self._balance((one for (left, _), one in flows.items() if left == source), columns)
            for target, columns in arriving.items():
                self._balance((one for (_, came), one in flows.items() if came == target), columns)
            if len(readers) > 1:
                self._share(copies, read, flows)

    def _flows(
        self,
        read: LayoutRead,
        leaving: Iterable[str],
        arriving: Iterable[str],
        alone: bool,
    ) -> dict[tuple[str, str], int]:
        """A column for each pair of layouts that a reorder is known for; who reads ``alone`` pays there."""
        reorders = self._problem.values[read.value].reorders
        runs = self._problem.least_on_the_way(read)
        flows = {}
        for source in leaving:
            for target in arriving:
                cost = reorders.get((source, target))
                if source == target or cost is not None:
                    us = runs * cost.us if alone and source != target and cost is not None else 0.0
                    flows[source, target] = self._column(us)
        return flows

    def _share(
        self,
        copies: dict[tuple[str, str, BodyPath], int],
        read: LayoutRead,
        flows: Mapping[tuple[str, str], int],
    ) -> None:
        """Whoever reads a reordered value needs one copy of it on its way, which others may read too."""
        value = self._problem.values[read.value]
        for (source, target), flow in flows.items():
            if source == target:
                continue
            us = value.reorders[source, target].us
            row = [(flow, -1.0)]
            for body in on_the_way(value.body, read.body):
                if (source, target, body) not in copies:
                    copies[source, target, body] = self._column(self._problem.counts[body] * us)
                row.append((copies[source, target, body], 1.0))
            self._row(row, 0.0, math.inf)

    def _balance(self, flows: Iterable[int], options: Iterable[int]) -> None:
        self._row([*((one, 1.0) for one in flows), *((one, -1.0) for one in options)], 0.0, 0.0)

    def _column(self, us: float) -> int:
        self.costs.append(us)
        return len(self.costs) - 1

    def _row(self, entries: Iterable[tuple[int, float]], least: float, most: float) -> None:
        for column, weight in entries:
            self.rows.append(len(self.least))
            self.columns.append(column)
            self.weights.append(weight)
        self.least.append(least)
        self.most.append(most)


def _by_layout(layouts: Iterable[str], columns: Iterable[int]) -> dict[str, list[int]]:
    """Columns of a node's options by the layout that each has."""
    found = defaultdict[str, list[int]](list)
    for layout, column in zip(layouts, columns, strict=True):
        found[layout].append(column)
    return found
