"""A model's layouts as a problem: its values and nodes, bodies included, tables of costs, and counts. PURE.

Branches and loops do no work of their own and are in any layout. What leaves an If is in one layout whichever
branch made it; what a Loop carries is in one layout in every iteration, before the first and after the last.
Conditions and counts are in any layout too. Weights are packed once and never reordered in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opatlas.graph.bodies import scan_form
from opatlas.graph.linked import LEFT_OUT, BodyPath, NodePath, unique_name
from opatlas.graph.normal import GraphBody, GraphNode, ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.types import TensorType
from opatlas.plan.bodies import carried
from tuning.graph.layout.counts import control_flow, expected_counts
from tuning.graph.layout.names import ANY, ROW_MAJOR, misfit, settled
from tuning.graph.layout.problem import (
    InvalidLayouts,
    LayoutNode,
    LayoutOption,
    LayoutProblem,
    LayoutRead,
    LayoutValue,
    MarkedCost,
    ReorderOf,
)

Tables = Mapping[NodePath, Sequence[LayoutOption]]
"""By node: the layouts that it can run in and what it takes so. An option's inputs are those that are no
constants, in the node's order; its outputs those that somebody reads."""
FREE = MarkedCost(0.0)


class KnownReorders(Protocol):
    """What is known of reorders, as :class:`tuning.graph.layout.reorders.ReorderCosts` is."""

    def cost(self, kind: TensorType, source: str, target: str) -> MarkedCost | None: ...


@dataclass(frozen=True)
class ModelLayouts:
    """``without``: operators that nothing is known of, which stay row-major; ``left_out``: by node, options
    that cannot be, and why; ``estimated``: reorders that nobody has measured, to be looked up as
    :func:`tuning.graph.layout.reorders.reorder_operator` says."""

    problem: LayoutProblem
    without: tuple[NodePath, ...]
    left_out: Mapping[NodePath, tuple[str, ...]]
    estimated: tuple[ReorderOf, ...]


def layouts_of(
    graph: ModelGraph,
    tables: Tables,
    reorders: KnownReorders,
    profile: ModelProfile | None = None,
    *,
    version: str = "",
    given: Mapping[str, str] | None = None,
    wanted: Mapping[str, str] | None = None,
) -> ModelLayouts:
    """``given`` and ``wanted``: layouts of the model's inputs and outputs by name, row-major where not said;
    an output may be wanted in ``any``. Without a ``profile`` everything runs once.

    Raises :class:`opatlas.graph.profile.InvalidProfile` for a profile of another model, or of another
    ``version`` of it; :class:`InvalidLayouts` for a table that does not fit its node, and for a layout that
    an input or output cannot be in.
    """
    if profile is not None:
        profile.check(graph.key, version)
    made = _Assembly(tables, reorders)
    made.add_model(graph, given or {}, wanted or {})
    if unknown := [at for at in tables if at not in made.seen]:
        raise InvalidLayouts(f"The model has no operator {unique_name(unknown[0])}, which a table is of.")
    counts = expected_counts(control_flow(graph), profile)
    values = {name: made.value(name) for name in made.bodies}
    problem = LayoutProblem(tuple(made.nodes), values, counts)
    return ModelLayouts(problem, tuple(made.without), made.left_out, tuple(made.estimated))


@dataclass
class _Assembly:
    tables: Tables
    reorders: KnownReorders
    nodes: list[LayoutNode] = field(default_factory=list)
    bodies: dict[str, BodyPath] = field(default_factory=dict)  # where each value is made
    kinds: dict[str, TensorType | None] = field(default_factory=dict)
    seen: set[NodePath] = field(default_factory=set)
    without: list[NodePath] = field(default_factory=list)
    left_out: dict[NodePath, tuple[str, ...]] = field(default_factory=dict)
    estimated: list[ReorderOf] = field(default_factory=list)
    _reorders_of: dict[TensorType | None, dict[tuple[str, str], MarkedCost]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sides = (
            layout
            for options in self.tables.values()
            for option in options
            for layout in (*option.inputs, *option.outputs)
        )
        self._layouts = list(dict.fromkeys([ROW_MAJOR, *map(settled, sides)]))

    def add_model(self, graph: ModelGraph, given: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        ends = (("input", given, graph.input_names), ("output", wanted, graph.output_names))
        for what, layouts, names in ends:
            if unknown := set(layouts) - set(names):
                raise InvalidLayouts(f"The model has no {what} '{min(unknown)}'.")
            for layout in map(settled, layouts.values()):
                if layout not in (*self._layouts, ANY):
                    self._layouts.append(layout)
        scope: dict[int, str] = {}
        for name, number in zip(graph.input_names, graph.inputs, strict=True):
            layout = self._end(graph, number, f"Input '{name}'", given.get(name, ROW_MAJOR))
            self._source(f"input {name}", (), [self._define(graph, (), scope, number)], layout)
        self._walk(graph, (), scope)
        for name, number in zip(graph.output_names, graph.outputs, strict=True):
            reads, layout = _reads(scope, [number], ()), wanted.get(name, ROW_MAJOR)
            if layout == ANY:
                self._indifferent(f"output {name}", (), reads, [])
            else:
                layout = self._end(graph, number, f"Output '{name}'", layout)
                self._sink(f"output {name}", (), reads, layout)

    def value(self, name: str) -> LayoutValue:
        """With the reorders that its size has, shared by all values of a type."""
        kind = self.kinds[name]
        if kind not in self._reorders_of:
            fitting = [layout for layout in self._layouts if not misfit(layout, kind)]
            pairs = [(one, other) for one in fitting for other in fitting if one != other]
            costs = {
                pair: cost
                for pair in pairs
                if kind is not None and (cost := self.reorders.cost(kind, *pair)) is not None
            }
            self._reorders_of[kind] = costs
            if kind is not None:
                self.estimated += [(kind, *pair) for pair, cost in costs.items() if cost.is_estimate]
        return LayoutValue(self.bodies[name], self._reorders_of[kind])

    # ---- nodes --------------------------------------------------------------------------------------

    def _walk(self, graph: ModelGraph, body: BodyPath, scope: dict[int, str]) -> None:
        """``scope``: names of values by their numbers in this graph; constants have none."""
        for number, node in enumerate(graph.nodes):
            at = (*body, number)
            if not node.bodies:
                self._operator(graph, node, at, scope)
            elif node.proto.op_type == "If":
                self._branch(graph, node, at, scope)
            else:
                self._loop(graph, node, at, scope)

    def _operator(self, graph: ModelGraph, node: GraphNode, at: NodePath, scope: dict[int, str]) -> None:
        self.seen.add(at)
        reads = _reads(scope, (*node.inputs, *node.captured), at[:-1])
        makes = [self._define(graph, at[:-1], scope, one) for one in node.outputs if one != LEFT_OUT]
        options = self._options(at, reads, makes)
        self.nodes.append(LayoutNode(unique_name(at), at[:-1], tuple(reads), tuple(makes), tuple(options)))

    def _options(self, at: NodePath, reads: list[LayoutRead], makes: list[str]) -> list[LayoutOption]:
        """Those that its tensors can be in; where there are none, it stays row-major."""
        kinds = [self.kinds[name] for name in (*(read.value for read in reads), *makes)]
        fitting, reasons = list[LayoutOption](), dict[str, None]()
        for option in self.tables.get(at, ()):
            sides = tuple(map(settled, (*option.inputs, *option.outputs)))
            if (len(option.inputs), len(option.outputs)) != (len(reads), len(makes)):
                raise InvalidLayouts(
                    f"Operator {unique_name(at)} reads {len(reads)} values that are no constants and makes "
                    f"{len(makes)}; its table has layouts of {len(option.inputs)} and {len(option.outputs)}."
                )
            reason = next(filter(None, map(misfit, sides, kinds)), "")
            if reason:
                reasons[reason] = None
            else:
                fitting.append(LayoutOption(sides[: len(reads)], sides[len(reads) :], option.cost))
        if reasons:
            self.left_out[at] = tuple(reasons)
        if not fitting:
            self.without.append(at)
            plain = LayoutOption((ROW_MAJOR,) * len(reads), (ROW_MAJOR,) * len(makes), FREE)
            fitting.append(plain)
        return fitting

    def _branch(self, graph: ModelGraph, node: GraphNode, at: NodePath, scope: dict[int, str]) -> None:
        inner = [_captured(body, scope) for body in node.bodies]
        for which, body in enumerate(node.bodies):
            self._walk(body.graph, (*at, which), inner[which])
        for place, number in enumerate(node.outputs):
            if number == LEFT_OUT:
                continue
            reads = [
                read
                for which, body in enumerate(node.bodies)
                for read in _reads(inner[which], [body.graph.outputs[place]], (*at, which))
            ]
            made = self._define(graph, at[:-1], scope, number)
            self._indifferent(f"{unique_name(at)} output {place}", at[:-1], reads, [made])

    def _loop(self, graph: ModelGraph, node: GraphNode, at: NodePath, scope: dict[int, str]) -> None:
        [body], within, name = node.bodies, (*at, 0), unique_name(at)
        inner = _captured(body, scope)
        is_loop = node.proto.op_type == "Loop"
        pairs = carried(node, body)
        begins = node.inputs[2:] if is_loop else node.inputs[: scan_form(node.proto).states]
        formal = [self._define(body.graph, within, inner, before) for before, _ in pairs]
        others = set(body.formal) - {before for before, _ in pairs}
        given = [self._define(body.graph, within, inner, one) for one in sorted(others)]
        if given:  # its counter and condition, or a Scan's slices
            self._source(f"{name} inputs", within, given, ROW_MAJOR)
        self._walk(body.graph, within, inner)
        after = body.graph.outputs[1:] if is_loop else body.graph.outputs
        for place, (begin, (_, becomes)) in enumerate(zip(begins, pairs, strict=True)):
            reads = [*_reads(scope, [begin], at[:-1]), *_reads(inner, [becomes], within)]
            made = [formal[place]]
            if node.outputs[place] != LEFT_OUT:
                made.append(self._define(graph, at[:-1], scope, node.outputs[place]))
            self._indifferent(f"{name} carried {place}", at[:-1], reads, made)
        stacked = _reads(inner, after[len(pairs) :], within)
        if not is_loop:
            stacked += _reads(scope, node.inputs[len(pairs) :], at[:-1])
        self._sink(f"{name} stacked", at[:-1], stacked, ROW_MAJOR)
        rest = [one for one in node.outputs[len(pairs) :] if one != LEFT_OUT]
        if rest:
            makes = [self._define(graph, at[:-1], scope, one) for one in rest]
            self._source(f"{name} stacks", at[:-1], makes, ROW_MAJOR)

    # ---- what is no operator ------------------------------------------------------------------------

    def _define(self, graph: ModelGraph, body: BodyPath, scope: dict[int, str], number: int) -> str:
        name = unique_name((*body, number))
        scope[number] = name
        self.bodies[name], self.kinds[name] = body, graph.type_of(number)
        return name

    def _indifferent(self, name: str, body: BodyPath, reads: list[LayoutRead], makes: list[str]) -> None:
        """One layout on all sides, any, for nothing."""
        kinds = [self.kinds[one] for one in (*(read.value for read in reads), *makes)]
        fitting = [one for one in self._layouts if not any(misfit(one, kind) for kind in kinds)]
        options = tuple(
            LayoutOption((layout,) * len(reads), (layout,) * len(makes), FREE) for layout in fitting
        )
        self.nodes.append(LayoutNode(name, body, tuple(reads), tuple(makes), options))

    def _source(self, name: str, body: BodyPath, makes: list[str], layout: str) -> None:
        option = LayoutOption((), (layout,) * len(makes), FREE)
        self.nodes.append(LayoutNode(name, body, (), tuple(makes), (option,)))

    def _sink(self, name: str, body: BodyPath, reads: list[LayoutRead], layout: str) -> None:
        option = LayoutOption((layout,) * len(reads), (), FREE)
        if reads:
            self.nodes.append(LayoutNode(name, body, tuple(reads), (), (option,)))

    def _end(self, graph: ModelGraph, number: int, what: str, layout: str) -> str:
        """The layout of an input or output."""
        if reason := misfit(settled(layout), graph.type_of(number)):
            raise InvalidLayouts(f"{what} cannot be in it: {reason}.")
        return settled(layout)


def _captured(body: GraphBody, scope: Mapping[int, str]) -> dict[int, str]:
    """What a body has of the values around it."""
    return {own: scope[outer] for own, outer in body.captured if outer in scope}


def _reads(scope: Mapping[int, str], numbers: Iterable[int], body: BodyPath) -> list[LayoutRead]:
    """Of those that are no constants."""
    return [LayoutRead(scope[number], body) for number in numbers if number in scope]
