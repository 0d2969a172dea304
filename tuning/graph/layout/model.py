"""A model's layouts as a problem: its values and nodes, bodies included, tables of costs, and counts. PURE.

Branches and loops do no work of their own and accept any layout. An If's output has one layout whichever
branch made it. A Loop's carried value has one layout in every iteration, before the first and after the last.
Conditions and counts are in any layout too. Weights are packed once and never reordered in a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opatlas.graph.linked import LEFT_OUT, BodyPath, NodePath, unique_name
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.typed_nodes import HandedValue, TypedBody, TypedNodes
from opatlas.graph.types import TensorType
from tuning.graph.layout.counts import control_flow, expected_counts
from tuning.graph.layout.names import ANY, ROW_MAJOR, is_inside, misfit, settled
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
"""By node: its possible layouts and their times. An option's inputs are the non-constant ones in the node's
order; its outputs those that are read."""
FREE = MarkedCost(0.0)


class KnownReorders(Protocol):
    """The interface of :class:`tuning.graph.layout.reorders.ReorderCosts`."""

    def cost(self, kind: TensorType, source: str, target: str) -> MarkedCost | None: ...


@dataclass(frozen=True)
class ModelLayouts:
    """``without``: operators without known times, which stay row-major; ``left_out``: by node, impossible
    options, and why; ``estimated``: unmeasured reorders, to be looked up as
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
    model = TypedNodes.of_graph(graph)
    made = _Assembly(tables, reorders)
    made.add_model(
        model,
        _ends("input", graph.input_names, graph.inputs, given or {}),
        _ends("output", graph.output_names, graph.outputs, wanted or {}),
    )
    if unknown := [at for at in tables if at not in made.seen]:
        raise InvalidLayouts(f"The model has no operator {unique_name(unknown[0])}, which a table is of.")
    return made.layouts(expected_counts(control_flow(model), profile))


def layouts_of_needed(
    model: TypedNodes, tables: Tables, reorders: KnownReorders, counts: Mapping[BodyPath, float]
) -> LayoutProblem:
    """The same for the nodes with a table alone; the others are not needed. Inputs and outputs are
    row-major."""
    made = _Assembly(tables, reorders, tables.keys())
    ends = (_ends(what, map(str, numbers), numbers, {}) for what, numbers in _numbers(model))
    made.add_model(model, *ends)
    return made.layouts(counts).problem


def handed_name(at: NodePath, place: int) -> str:
    """The name in a problem for all values that a branch or loop passes on at one output."""
    return f"{unique_name(at)} hands on {place}"


@dataclass(frozen=True)
class _End:
    """An input or output: its name, and its required layout."""

    name: str
    said: str
    number: int
    layout: str


def _ends(what: str, names: Iterable[str], numbers: Sequence[int], layouts: Mapping[str, str]) -> list[_End]:
    ends = [
        _End(f"{what} {name}", f"{what.capitalize()} '{name}'", number, settled(layouts.get(name, ROW_MAJOR)))
        for name, number in zip(names, numbers, strict=True)
    ]
    if unknown := set(layouts) - {one.name.removeprefix(f"{what} ") for one in ends}:
        raise InvalidLayouts(f"The model has no {what} '{min(unknown)}'.")
    return ends


def _numbers(model: TypedNodes) -> list[tuple[str, tuple[int, ...]]]:
    return [("input", model.inputs), ("output", tuple(dict.fromkeys(model.outputs)))]


@dataclass
class _Assembly:
    tables: Tables
    reorders: KnownReorders
    needed: Collection[NodePath] | None = None  # all of them unless given
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
            if not is_inside(layout)
        )
        self._layouts = list(dict.fromkeys([ROW_MAJOR, *map(settled, sides)]))

    def add_model(self, model: TypedNodes, given: Sequence[_End], wanted: Sequence[_End]) -> None:
        self._layouts += [
            one for one in dict.fromkeys(end.layout for end in (*given, *wanted))
            if one != ANY and one not in self._layouts
        ]  # fmt: skip
        scope: dict[int, str] = {}
        for end in given:
            self._check(model, end)
            self._source(end.name, (), [self._define(model, (), scope, end.number)], end.layout)
        self._walk(model, (), scope)
        for end in wanted:
            reads = _reads(scope, [end.number], ())
            if end.layout == ANY:
                self._indifferent(end.name, (), reads, [], self._layouts)
            else:
                self._check(model, end)
                self._sink(end.name, (), reads, end.layout)

    def layouts(self, counts: Mapping[BodyPath, float]) -> ModelLayouts:
        values = {name: self.value(name) for name in self.bodies}
        problem = LayoutProblem(tuple(self.nodes), values, counts)
        return ModelLayouts(problem, tuple(self.without), self.left_out, tuple(self.estimated))

    def value(self, name: str) -> LayoutValue:
        """With the reorders for its size, shared by all values of a type."""
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

    def _walk(self, model: TypedNodes, body: BodyPath, scope: dict[int, str]) -> None:
        """``scope``: names of values by their numbers in this graph; constants have none."""
        for number in range(len(model.nodes)):
            at = (*body, number)
            if self.needed is not None and at not in self.needed:
                continue
            if number not in model.bodies:
                self._operator(model, at, scope)
            elif model.types[number] == "If":
                self._branch(model, at, scope)
            else:
                self._loop(model, at, scope)

    def _operator(self, model: TypedNodes, at: NodePath, scope: dict[int, str]) -> None:
        self.seen.add(at)
        node = model.nodes[at[-1]]
        reads = _reads(scope, (*node.inputs, *node.captured), at[:-1])
        makes = [self._define(model, at[:-1], scope, one) for one in node.outputs if one != LEFT_OUT]
        options = self._options(at, reads, makes)
        self.nodes.append(LayoutNode(unique_name(at), at[:-1], tuple(reads), tuple(makes), tuple(options)))

    def _options(self, at: NodePath, reads: list[LayoutRead], makes: list[str]) -> list[LayoutOption]:
        """The options that its tensors can have; if there are none, it stays row-major."""
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

    def _branch(self, model: TypedNodes, at: NodePath, scope: dict[int, str]) -> None:
        node, bodies = at[-1], model.bodies[at[-1]]
        inner = [_captured(body, scope) for body in bodies]
        for which, body in enumerate(bodies):
            self._walk(body.graph, (*at, which), inner[which])
        for place, one in enumerate(model.handed(node)):
            if one.output == LEFT_OUT:
                continue
            reads = [
                read
                for which, value in enumerate(one.becomes)
                for read in _reads(inner[which], [value], (*at, which))
            ]
            made = self._define(model, at[:-1], scope, one.output)
            self._hand_on(model, at, place, one, reads, [made])

    def _loop(self, model: TypedNodes, at: NodePath, scope: dict[int, str]) -> None:
        node, [body], within = model.nodes[at[-1]], model.bodies[at[-1]], (*at, 0)
        inner, handed, name = _captured(body, scope), model.handed(at[-1]), unique_name(at)
        formal = [self._define(body.graph, within, inner, one.formal) for one in handed]
        others = set(body.formal) - {one.formal for one in handed}
        given = [self._define(body.graph, within, inner, one) for one in sorted(others)]
        if given:  # its counter and condition, or a Scan's slices
            self._source(f"{name} inputs", within, given, ROW_MAJOR)
        self._walk(body.graph, within, inner)
        for place, one in enumerate(handed):
            reads = [*_reads(scope, [one.begins], at[:-1]), *_reads(inner, one.becomes, within)]
            made = [formal[place]]
            if one.output != LEFT_OUT:
                made.append(self._define(model, at[:-1], scope, one.output))
            self._hand_on(model, at, place, one, reads, made)
        first = model.first_carried(at[-1])
        stacked = _reads(inner, body.graph.outputs[first // 2 + len(handed) :], within)
        if not first:  # what a Scan goes over
            stacked += _reads(scope, node.inputs[len(handed) :], at[:-1])
        self._sink(f"{name} stacked", at[:-1], stacked, ROW_MAJOR)
        rest = [one for one in node.outputs[len(handed) :] if one != LEFT_OUT]
        if rest:
            makes = [self._define(model, at[:-1], scope, one) for one in rest]
            self._source(f"{name} stacks", at[:-1], makes, ROW_MAJOR)

    def _hand_on(
        self,
        model: TypedNodes,
        at: NodePath,
        place: int,
        one: HandedValue,
        reads: list[LayoutRead],
        makes: list[str],
    ) -> None:
        """One layout on all sides; a constant that is passed on is row-major, like all constants that no
        operator packs."""
        bodies = model.bodies[at[-1]]
        becomes = zip(bodies, one.becomes, strict=True)
        is_constant = one.begins != LEFT_OUT and model.is_constant(one.begins)
        is_constant |= any(body.graph.is_constant(value) for body, value in becomes)
        layouts = [ROW_MAJOR] if is_constant else self._layouts
        self._indifferent(handed_name(at, place), at[:-1], reads, makes, layouts)

    # ---- what is no operator ------------------------------------------------------------------------

    def _define(self, model: TypedNodes, body: BodyPath, scope: dict[int, str], number: int) -> str:
        name = unique_name((*body, number))
        scope[number] = name
        self.bodies[name], self.kinds[name] = body, model.type_of(number)
        return name

    def _indifferent(
        self, name: str, body: BodyPath, reads: list[LayoutRead], makes: list[str], layouts: Iterable[str]
    ) -> None:
        """One of these layouts on all sides, at no cost."""
        kinds = [self.kinds[one] for one in (*(read.value for read in reads), *makes)]
        fitting = [one for one in layouts if not any(misfit(one, kind) for kind in kinds)]
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

    @staticmethod
    def _check(model: TypedNodes, end: _End) -> None:
        if reason := misfit(end.layout, model.type_of(end.number)):
            raise InvalidLayouts(f"{end.said} cannot be in it: {reason}.")


def _captured(body: TypedBody, scope: Mapping[int, str]) -> dict[int, str]:
    """The outer values that a body reads."""
    return {own: scope[outer] for own, outer in body.captured if outer in scope}


def _reads(scope: Mapping[int, str], numbers: Iterable[int], body: BodyPath) -> list[LayoutRead]:
    """The non-constant ones."""
    return [LayoutRead(scope[number], body) for number in numbers if number in scope]
