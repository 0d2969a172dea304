"""The units of a model and its bodies as a problem of layouts: which of them run, in row-major or, if they
can, channels-last. PURE.

Only a unit's channels-last inputs and outputs have a layout; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.linked import LEFT_OUT, BodyPath, NodeAt, NodePath, unique_name
from opatlas.graph.typed_nodes import TypedNodes
from tuning.graph.layout.costing import PlacedReorder
from tuning.graph.layout.counts import control_flow
from tuning.graph.layout.model import FREE, handed_name, layouts_of_needed
from tuning.graph.layout.names import NHWC, ROW_MAJOR, inside
from tuning.graph.layout.problem import LayoutOption, MarkedCost
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.layout.solving import LayoutSolution


@dataclass(frozen=True)
class LayoutUnit:
    """Nodes of ``body`` that may run as one operator: a single node, or several of which each but the last
    makes only what the others read. ``us``: in row-major; None for a single node of unknown time, or for
    several that shall not run so. ``nhwc``: their time channels-last, with ``turned`` inputs so, None if
    impossible."""

    nodes: tuple[int, ...]
    us: float | None
    turned: tuple[int, ...] = ()
    nhwc: MarkedCost | None = None
    body: BodyPath = ()

    @property
    def paths(self) -> list[NodePath]:
        """The places of its nodes."""
        return [(*self.body, node) for node in self.nodes]

    @property
    def ways(self) -> list[tuple[str, MarkedCost]]:
        """Its possible layouts, with their times."""
        found = list[tuple[str, MarkedCost]]()
        if self.us is not None or len(self.nodes) == 1:
            found.append((ROW_MAJOR, MarkedCost(self.us or 0.0)))
        if self.nhwc is not None:
            found.append((NHWC, self.nhwc))
        return found


RunUnit = tuple[LayoutUnit, str]
"""A unit that runs, and its layout."""


class UnitsProblem:
    """``units``: each needed node as a single unit, and those of several nodes, which may share nodes; of
    equal costs the first is taken. ``counts``: how often each body runs. Values are named by where they are
    made and their numbers there."""

    def __init__(
        self,
        model: TypedNodes,
        units: Sequence[LayoutUnit],
        reorders: ReorderCosts,
        counts: Mapping[BodyPath, float],
    ) -> None:
        self._model = model
        tables = dict[NodePath, list[LayoutOption]]()
        self._runs = dict[NodePath, list[RunUnit]]()  # by node, what each of its options is part of
        for number, unit in enumerate(units):
            for layout, cost in unit.ways:
                for at, option in zip(unit.paths, self._options(unit, number, layout, cost), strict=True):
                    tables.setdefault(at, []).append(option)
                    self._runs.setdefault(at, []).append((unit, layout))
        self.problem = layouts_of_needed(model, tables, reorders, counts)
        options = {node.name: len(node.options) for node in self.problem.nodes}
        self._runs = {at: runs for at, runs in self._runs.items() if unique_name(at) in options}
        assert all(options[unique_name(at)] == len(runs) for at, runs in self._runs.items())  # none is unfit

    def _options(
        self, unit: LayoutUnit, number: int, layout: str, cost: MarkedCost
    ) -> Iterable[LayoutOption]:
        """The options of each of its nodes; its time counts at the last."""
        model, within = self._model.within(unit.body), inside(number, layout)
        made = frozenset().union(*(model.nodes[node].makes for node in unit.nodes))
        turned = frozenset(unit.turned) if layout == NHWC else frozenset[int]()
        for at in unit.nodes:
            node, is_last = model.nodes[at], at == unit.nodes[-1]
            inputs = tuple(
                within if value in made else NHWC if value in turned else ROW_MAJOR
                for value in (*node.inputs, *node.captured)
                if value != LEFT_OUT and not model.is_constant(value)
            )
            outputs = (layout if is_last else within,) * len(node.makes)
            yield LayoutOption(inputs, outputs, cost if is_last else FREE)

    def chosen(self, runs: Iterable[RunUnit]) -> dict[str, int]:
        """These units with these layouts, and every other node alone in row-major, as a choice in the
        problem."""
        found = dict.fromkeys((node.name for node in self.problem.nodes), 0)
        for unit, layout in runs:
            for at in unit.paths:
                if at in self._runs:  # no branch or loop
                    every = [(one.nodes, way) for one, way in self._runs[at]]
                    found[unique_name(at)] = every.index((unit.nodes, layout))
        return found

    def from_fewer(self, fewer: UnitsProblem, chosen: Mapping[str, int]) -> dict[str, int]:
        """A choice in a problem of some of the same units, as one in this; what branches and loops hand on as
        it was."""
        nodes = {unique_name(at) for at in self._runs}
        rest = {name: number for name, number in chosen.items() if name not in nodes}
        return self.chosen(fewer.runs(chosen)) | rest

    def runs(self, chosen: Mapping[str, int]) -> list[RunUnit]:
        """The units that a choice runs, in the order of their last nodes, with their layouts."""
        found = list[RunUnit]()
        for at, runs in self._runs.items():
            unit, layout = runs[chosen[unique_name(at)]]
            if unit.paths[-1] == at:
                found.append((unit, layout))
        return found

    def channels_last(self, solution: LayoutSolution) -> ChannelsLast:
        """The part of the model that a solution runs channels-last."""
        model, units = self._model, [
            unit for unit, layout in self.runs(solution.chosen) if layout == NHWC
        ]  # fmt: skip
        options = {node.name: node.options[solution.chosen[node.name]] for node in self.problem.nodes}
        handed = set[NodePath]()
        for flow in control_flow(model):
            for place in range(len(model.within(flow.at[:-1]).handed(flow.at[-1]))):
                option = options.get(handed_name(flow.at, place))  # what nobody wants is in no problem
                if option is not None and NHWC in (*option.inputs, *option.outputs):
                    handed.add((*flow.at, place))
        brought = {path for one in solution.costs.reorders if (path := _brought(model, one)) is not None}
        return ChannelsLast(
            tuple(tuple(map(_node_at, unit.paths)) for unit in units), frozenset(handed), frozenset(brought)
        )


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
