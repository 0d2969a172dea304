"""Units of a model, of its bodies too, as a problem of layouts: each in row-major or, where it can,
channels-last. PURE. What is told by layout is what a unit reads or makes channels-last; everything else is as
it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.linked import LEFT_OUT, BodyPath, NodeAt, NodePath, unique_name
from opatlas.graph.typed_nodes import TypedNodes
from tuning.graph.layout.costing import PlacedReorder
from tuning.graph.layout.counts import control_flow
from tuning.graph.layout.model import handed_name, layouts_of_units, read_of
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.problem import LayoutOption, LayoutProblem, MarkedCost
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.layout.solving import LayoutSolution


@dataclass(frozen=True)
class LayoutUnit:
    """Nodes of ``body`` that run as one operator. ``us``: as they run now, None where that is not known;
    ``nhwc``: what they take channels-last, reading ``turned`` so, None where nobody can."""

    nodes: tuple[int, ...]
    us: float | None
    turned: tuple[int, ...] = ()
    nhwc: MarkedCost | None = None
    body: BodyPath = ()

    @property
    def at(self) -> NodePath:
        """Where its last node is, under which it stands in a problem."""
        return (*self.body, self.nodes[-1])


def problem_of(
    model: TypedNodes, units: Sequence[LayoutUnit], reorders: ReorderCosts, counts: Mapping[BodyPath, float]
) -> LayoutProblem:
    """Values are named by where they are made and their numbers there. ``counts``: how often each body
    runs."""
    tables = {unit.at: _options(model.within(unit.body), unit) for unit in units}
    return layouts_of_units(model, {unit.at: unit.nodes for unit in units}, tables, reorders, counts)


def _options(model: TypedNodes, unit: LayoutUnit) -> list[LayoutOption]:
    read = [one for one in read_of(model, unit.nodes) if one != LEFT_OUT and not model.is_constant(one)]
    made = len(model.nodes[unit.nodes[-1]].makes)
    options = [LayoutOption((ROW_MAJOR,) * len(read), (ROW_MAJOR,) * made, MarkedCost(unit.us or 0.0))]
    if unit.nhwc is not None:
        inputs = tuple(NHWC if one in unit.turned else ROW_MAJOR for one in read)
        options.append(LayoutOption(inputs, (NHWC,) * made, unit.nhwc))
    return options


def all_row_major_us(problem: LayoutProblem) -> float:
    """Of one run. The first option of each is row-major, which needs no reorder."""
    return math.fsum(problem.counts[node.body] * node.options[0].cost.us for node in problem.nodes)


def is_laid_out(solution: LayoutSolution, unit: LayoutUnit) -> bool:
    """Whether it runs channels-last there."""
    return unit.nhwc is not None and solution.chosen[unique_name(unit.at)] == 1


def chosen_layouts(
    model: TypedNodes, problem: LayoutProblem, solution: LayoutSolution, units: Sequence[LayoutUnit]
) -> ChannelsLast:
    """What a solution comes to in the model."""
    chosen = [one for one in units if is_laid_out(solution, one)]
    options = {node.name: node.options[solution.chosen[node.name]] for node in problem.nodes}
    handed = set[NodePath]()
    for flow in control_flow(model):
        for place in range(len(model.within(flow.at[:-1]).handed(flow.at[-1]))):
            option = options.get(handed_name(flow.at, place))  # what nobody wants is in no problem
            if option is not None and NHWC in (*option.inputs, *option.outputs):
                handed.add((*flow.at, place))
    brought = {path for one in solution.costs.reorders if (path := _brought(model, one)) is not None}
    return ChannelsLast(
        tuple(tuple(map(_node_at, (_paths(one)))) for one in chosen), frozenset(handed), frozenset(brought)
    )


def _paths(unit: LayoutUnit) -> list[NodePath]:
    return [(*unit.body, node) for node in unit.nodes]


def _node_at(path: NodePath) -> NodeAt:
    return path[0] if len(path) == 1 else path


def _brought(model: TypedNodes, one: PlacedReorder) -> NodePath | None:
    """Where it stands, as far as bodies read what it makes: the body, and the value's number there."""
    *made_in, number = map(int, one.value.split("/"))
    around = model.within(tuple(made_in))
    own = around.number_within(number, one.body[len(made_in) :])
    nodes = model.within(one.body).nodes
    is_own = one.body == tuple(made_in)
    if is_own and not any(own in node.captured for node in nodes):
        return None
    return (*one.body, own)
