"""The best layouts by integer programming (HiGHS, through SciPy), for graphs that are far from trees. PURE.

The layouts of a value with one reader are a flow, so that along a tree the program's solution is integral by
itself; elsewhere HiGHS branches on the nodes' options.
"""

from __future__ import annotations

import itertools
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
    """``chosen``: None if none was found in time, or none fits (``is_infeasible``); ``bound_us``: no choice
    costs less."""

    chosen: dict[str, int] | None
    bound_us: float
    is_infeasible: bool = False


def by_integer_program(problem: LayoutProblem, seconds: float) -> ProgramResult:
    """The best choice found within so many seconds."""
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
"""The status of SciPy's ``milp`` for an infeasible program."""


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
            arriving = _by_layout([option.inputs[place] for option in node.options], self._options[at])
            if len(readers) == 1:
                self._flow(node.reads[place], leaving, arriving)
            else:
                self._share(copies, node.reads[place], leaving, arriving)

    def _flow(
        self, read: LayoutRead, leaving: Mapping[str, list[int]], arriving: Mapping[str, list[int]]
    ) -> None:
        """A value with one reader: a column for each pair of layouts with a known reorder. Each layout's
        outflow is given by the maker's options, its inflow by the reader's."""
        reorders = self._problem.values[read.value].reorders
        runs = self._problem.least_on_the_way(read)
        flows: dict[tuple[str, str], int] = {}
        for layout in leaving:
            if layout in arriving:
                flows[layout, layout] = self._column(0.0)
        for pair, cost in reorders.items():
            if pair[0] in leaving and pair[1] in arriving:
                flows[pair] = self._column(runs * cost.us)
        for side, ends in enumerate((leaving, arriving)):
            passing = defaultdict[str, list[tuple[int, float]]](list)
            for pair, one in flows.items():
                passing[pair[side]].append((one, 1.0))
            for layout, columns in ends.items():
                self._row([*passing[layout], *((one, -1.0) for one in columns)], 0.0, 0.0)

    def _share(
        self,
        copies: dict[tuple[str, str, BodyPath], int],
        read: LayoutRead,
        leaving: Mapping[str, list[int]],
        arriving: Mapping[str, list[int]],
    ) -> None:
        """A value with several readers: each finds its layout made, or a copy on its way, which others may
        read too; copies are made only from existing layouts."""
        value = self._problem.values[read.value]
        for target, columns in arriving.items():
            row = [(one, -1.0) for one in columns] + [(one, 1.0) for one in leaving.get(target, ())]
            known = [(one, cost) for (one, to), cost in value.reorders.items() if to == target]
            there = [(one, cost) for one, cost in known if one in leaving]
            for (source, cost), body in itertools.product(there, on_the_way(value.body, read.body)):
                copy = (source, target, body)
                if copy not in copies:
                    copies[copy] = self._column(self._problem.counts[body] * cost.us)
                    made = [(one, 1.0) for one in leaving[source]]
                    self._row([*made, (copies[copy], -1.0)], 0.0, math.inf)
                row.append((copies[copy], 1.0))
            self._row(row, 0.0, math.inf)

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
