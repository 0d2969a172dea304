"""Kernels that do not pay for the cuts which they make in a model run in no plan. PURE.

Where a kernel stands between nodes that ONNX Runtime runs, values that it would hold in blocks of channels
are brought out of them and into them again, and one more part of the model is handed over to it. A kernel
alone may save less than that, where several one after the other save more. Which of them pay together is a
minimum cut, solved as the linear program that it is (HiGHS, through SciPy). That sees what kernels read and
make, and not what else is cut since steps run one after another: so what it finds is told as a plan, with all
of its ends, and the best of a few such plans is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from opatlas.graph.profile import MIB, BorderCosts
from opatlas.plan.borders import Borders
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByKernel
from tuning.graph.passes.draft import PlanDraft

DEARER = (1.0, 2.0, 4.0)
"""What ends cost, so many times as much: the more, the fewer kernels."""


def worth_their_borders(draft: PlanDraft) -> PlanDraft:
    """A draft with those of its kernels that take less in all, ends of regions with them; as it is where
    nobody measured what those cost. What runs channels-last stays."""
    if draft.borders is None or not draft.chosen:
        return draft
    program = _Cut(draft, draft.borders)
    ways = [draft.chosen, *(program.kept(times) for times in DEARER), program.fixed]
    return min((replace(draft, chosen=way) for way in ways), key=planned_us)


def planned_us(draft: PlanDraft) -> float:
    """Of one run of the model or body, its ends with it; nodes of which nothing is known, and those in
    bodies, take nothing."""
    steps = with_kernels(draft.structure, draft.chosen, "", "").steps
    kernels = (step.predicted_us or 0.0 for step in steps if isinstance(step.by, ByKernel))
    left = (
        draft.left_us(node) or 0.0
        for step in steps
        if not isinstance(step.by, ByKernel)
        for node in step.nodes
        if (node, 0) not in draft.bodies
    )
    return math.fsum([*kernels, *left, *(draft.ends_us(step) for step in steps)])


class _Cut:
    """Each kernel is on one side, all that is left to ONNX Runtime on the other; a value that lies between
    the two costs what bringing it over does, once each way."""

    def __init__(self, draft: PlanDraft, costs: BorderCosts) -> None:
        self._draft, self._costs = draft, costs
        self._blocked = Borders.of_structure(draft.structure).blocked
        laid = draft.assumed.keys()
        self._nodes = {
            last: one.fused or (last,) for last, one in draft.chosen.items() if not laid & {last, *one.fused}
        }
        self.fixed = {last: one for last, one in draft.chosen.items() if last not in self._nodes}
        self._of_node = {node: last for last, nodes in self._nodes.items() for node in nodes}

    def kept(self, times: float) -> Mapping[int, NodeChoice]:
        """Kernels that pay for their ends, where these cost so many times as much."""
        if not self._nodes:
            return self.fixed
        place = {last: at for at, last in enumerate(self._nodes)}
        rows, weights = self._crossings(place)
        gains = [self._gain_us(last) for last in self._nodes]
        sides = _least([-one for one in gains], [times * one for one in weights], rows)
        return self.fixed | {last: self._draft.chosen[last] for last, at in place.items() if sides[at] > 0.5}

    def _gain_us(self, last: int) -> float:
        left = math.fsum(self._draft.left_us(node) or 0.0 for node in self._nodes[last])
        return left - self._draft.chosen[last].median_us

    def _crossings(self, place: Mapping[int, int]) -> tuple[list[list[tuple[int, int]]], list[float]]:
        """Of each value, both ways: pairs of sides of which the first may be a kernel and the second not
        (:data:`_LEFT` for what never is one), and what it costs if any pair is so."""
        structure = self._draft.structure
        side = lambda node: place[self._of_node[node]] if node in self._of_node else _LEFT  # noqa: E731
        makers = {value: node for node, one in enumerate(structure.nodes) for value in one.makes}
        readers: dict[int, set[int]] = {}
        for node, one in enumerate(structure.nodes):
            for value in one.reads & makers.keys():
                readers.setdefault(value, set()).add(side(node))
        rows, weights = list[list[tuple[int, int]]](), list[float]()
        for value, others in readers.items():
            maker = side(makers[value])
            us = self._costs.us_per_mib * self._blocked.get(value, 0) / MIB + self._costs.handoff_us / 2
            for pairs in (
                [(other, maker) for other in sorted(others)],  # a kernel reads what a region makes
                [(maker, other) for other in sorted(others)],
            ):
                crossing = [(one, other) for one, other in pairs if one != other and one != _LEFT]
                if crossing and us:
                    rows.append(crossing)
                    weights.append(us)
        return rows, weights


_LEFT = -1


def _least(costs: list[float], weights: list[float], rows: list[list[tuple[int, int]]]) -> np.ndarray:
    """Sides (1: a kernel) by which the whole is cheapest: of a minimum cut the program's corners are whole
    numbers."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    count, at = len(costs), 0
    data, row_of, column_of = list[float](), list[int](), list[int]()
    for value, pairs in enumerate(rows):
        for one, other in pairs:  # side of one − side of the other ≤ whether the value crosses
            entries = [(one, 1.0), (count + value, -1.0)] + [(other, -1.0)] * (other != _LEFT)
            for column, entry in entries:
                data.append(entry)
                row_of.append(at)
                column_of.append(column)
            at += 1
    matrix = csr_array((data, (row_of, column_of)), shape=(at, count + len(rows))) if at else None
    found = linprog(
        [*costs, *weights], A_ub=matrix, b_ub=np.zeros(at) if at else None, bounds=(0.0, 1.0), method="highs"
    )
    return np.asarray(found.x[:count])
