"""Parts of a model that run channels-last, as nodes of it: Transposes around and between them. PURE.

A *laid-out unit* is nodes that run as one operator over dense tensors which lie in NHWC: that is
Transpose–X–Transpose, and X itself where it goes element by element. Units that follow one another hand NHWC
on, through the ends of branches and loops too where :class:`ChannelsLast` says so; a value that is wanted in
both ways is brought from one into the other once, by a Transpose of its own.

The form is made of how nodes hang together and of their types alone, so whoever has a model and whoever has
its structure come to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opatlas.errors import CallerError
from opatlas.graph.channels_last import NOTHING, ChannelsLast
from opatlas.graph.linked import LEFT_OUT, Linked, NodePath
from opatlas.graph.typed_nodes import TypedBody, TypedNodes
from opatlas.graph.types import TensorType

TO_NHWC, FROM_NHWC = (0, 2, 3, 1), (0, 3, 1, 2)
AS_GIVEN, TURNED = "", "nhwc"
"""How a value lies: row-major, as in the model; and channels-last."""


class NotLaidOut(CallerError):
    """Nodes that cannot run channels-last together: one sentence why."""


@dataclass(frozen=True)
class LaidValue:
    """A value of the model, or of one of its bodies, and how it lies: as there (``""``), ``nhwc``, or as
    there within a unit (``in 3``, ``out 3``). ``depth``: within how many bodies it was made so; 0 of what is
    as it was made."""

    value: int
    how: str
    depth: int = field(default=0, compare=False)

    @property
    def prefix(self) -> str:
        """What its name begins with, before the model's own for it. What bodies capture is numbered by name
        (:class:`opatlas.graph.normal.ModelGraph`), so the form's order of these is part of its names."""
        return f"~{self.depth:02}{self.how}/" if self.how or self.depth else ""


@dataclass(frozen=True)
class LaidNode(Linked):
    """A node by the form's own numbers of values. ``origin``: the model's node that it is; LEFT_OUT: a
    Transpose by ``perm``. ``bodies``: where something in them, or at their ends, lies otherwise than in the
    model; they capture no constants, but have their own."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...] = ()
    origin: int = LEFT_OUT
    perm: tuple[int, ...] = ()
    bodies: tuple[LaidBody, ...] = ()


@dataclass(frozen=True)
class LaidBody:
    """As :class:`opatlas.graph.normal.GraphBody`."""

    graph: LaidOutForm
    formal: tuple[int, ...]
    captured: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LaidOutForm:
    """Of a model, or of a body. ``units``: the form's nodes of each unit, its Transposes with them; those
    that are in none bring values from one layout into the other, or are the model's as they were."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[LaidNode, ...]
    values: tuple[LaidValue, ...]
    units: tuple[tuple[int, ...], ...]

    @cached_property
    def number(self) -> dict[LaidValue, int]:
        """Of each value, in the form."""
        return {value: number for number, value in enumerate(self.values)}

    @cached_property
    def node(self) -> dict[int, int]:
        """Of each of the model's nodes, in the form."""
        return {one.origin: number for number, one in enumerate(self.nodes) if one.origin != LEFT_OUT}

    @cached_property
    def reorders(self) -> list[int]:
        """Its own nodes that bring a value from one layout into the other."""
        within = {node for unit in self.units for node in unit}
        return [at for at, one in enumerate(self.nodes) if one.origin == LEFT_OUT and at not in within]

    @property
    def reorder_count(self) -> int:
        """Those of bodies with them."""
        inner = (body.graph.reorder_count for node in self.nodes for body in node.bodies)
        return len(self.reorders) + sum(inner)

    def own_path(self, at: NodePath) -> NodePath | None:
        """Where in the model a node is; None of a Transpose that is not there."""
        node = self.nodes[at[0]]
        if node.origin == LEFT_OUT:
            return None
        if len(at) == 1 or not node.bodies:
            return (node.origin, *at[1:])
        inner = node.bodies[at[1]].graph.own_path(at[2:])
        return None if inner is None else (node.origin, at[1], *inner)

    def kind(self, number: int, type_of: Callable[[int], TensorType | None]) -> TensorType | None:
        """A value's type; ``type_of``: the model's."""
        one = self.values[number]
        kind = type_of(one.value)
        return turned_kind(kind) if kind is not None and one.how == TURNED else kind


def turned_kind(kind: TensorType) -> TensorType:
    """Of a tensor whose channels were put last."""
    return TensorType(kind.element, tuple(kind.shape[axis] for axis in TO_NHWC))


def laid_out_form(model: TypedNodes, nhwc: ChannelsLast) -> LaidOutForm:
    """Raises :class:`NotLaidOut` for what cannot lie so, or units that share a node."""
    made = _Making(model, nhwc)
    for value in model.inputs:
        made.define(value, AS_GIVEN)
    made.add_all([AS_GIVEN] * len(model.outputs))
    return made.form([LaidValue(value, AS_GIVEN) for value in model.inputs])


@dataclass(frozen=True)
class _Node:
    """A node whose values have no numbers yet."""

    inputs: Sequence[LaidValue | None]
    outputs: Sequence[LaidValue | None]
    captured: Sequence[LaidValue] = ()
    origin: int = LEFT_OUT
    perm: tuple[int, ...] = ()
    bodies: Sequence[_Body] = ()


@dataclass(frozen=True)
class _Body:
    """``captured``: what it calls a value, and what that is called around it."""

    making: _Making
    formal: Sequence[LaidValue]
    captured: Sequence[tuple[LaidValue, LaidValue]]


class _Making:
    """The form of a model, or of a body: ``outer`` is then what is made around it, and ``outer_of`` the
    values there, by the body's own numbers."""

    def __init__(
        self,
        model: TypedNodes,
        nhwc: ChannelsLast,
        outer: _Making | None = None,
        outer_of: Mapping[int, int] | None = None,
    ) -> None:
        self.model, self._nhwc, self._outer, self._outer_of = model, nhwc, outer, outer_of or {}
        self.depth: int = outer.depth + 1 if outer is not None else 0
        self.captured: dict[LaidValue, LaidValue] = {}
        self._nodes: list[_Node] = []
        self._outputs: list[LaidValue | None] = []
        self._there: dict[tuple[int, str], LaidValue] = {}
        self._units = nhwc.own_units
        self._placed: list[list[int]] = [[] for _ in self._units]
        self._check()
        self._unit_of = {node: at for at, unit in enumerate(self._units) for node in unit}
        self._is_last = {unit[-1] for unit in self._units}
        self._laid = {model.output_of(unit) for unit in self._units}

    def _check(self) -> None:
        seen = set[int]()
        for unit in self._units:
            if reason := self.model.misfit(unit):
                raise NotLaidOut(f"Nodes {list(unit)[:8]} cannot run channels-last: {reason}.")
            if not seen.isdisjoint(unit):
                raise NotLaidOut(f"Node {min(seen.intersection(unit))} runs channels-last in two units.")
            seen.update(unit)
        for node, which in self._nhwc.bodies:
            if not 0 <= which < len(self.model.bodies.get(node, ())):
                raise NotLaidOut(
                    f"Node {node} has no body {which} of which something could lie channels-last."
                )
        for node, place in self._nhwc.own_handed:
            if node not in self.model.bodies or not self.model.can_be_turned(node, place):
                raise NotLaidOut(f"Node {node} hands on no picture at place {place}.")

    def form(self, inputs: Sequence[LaidValue]) -> LaidOutForm:
        """Values are numbered as they are come to, which is the normal form's own order."""
        numbers: dict[LaidValue, int] = {}

        def number(one: LaidValue | None) -> int:
            return LEFT_OUT if one is None else numbers.setdefault(one, len(numbers))

        def numbered(values: Iterable[LaidValue | None]) -> tuple[int, ...]:
            return tuple(map(number, values))

        given, nodes = numbered(inputs), list[LaidNode]()
        for one in self._nodes:
            read, captured, made = numbered(one.inputs), numbered(one.captured), numbered(one.outputs)
            bodies = tuple(self._laid_body(body, numbers) for body in one.bodies)
            nodes.append(LaidNode(read, made, captured, one.origin, one.perm, bodies))
        outputs = numbered(self._outputs)
        return LaidOutForm(given, outputs, tuple(nodes), tuple(numbers), tuple(map(tuple, self._placed)))

    @staticmethod
    def _laid_body(body: _Body, outer: Mapping[LaidValue, int]) -> LaidBody:
        form = body.making.form([*body.formal, *(own for own, _ in body.captured)])
        formal = tuple(form.number[one] for one in body.formal)
        return LaidBody(form, formal, tuple((form.number[own], outer[one]) for own, one in body.captured))

    # ---- values -------------------------------------------------------------------------------------

    def define(self, value: int, how: str) -> LaidValue:
        """A value that is made here, by no Transpose."""
        made = LaidValue(value, how, self.depth if how else 0)
        self._there[value, AS_GIVEN if how == AS_GIVEN else TURNED] = made
        if how == TURNED:
            self._laid.add(value)
        return made

    def native(self, value: int) -> str:
        """How a value lies where it is made."""
        if self._outer is not None and value in self._outer_of:
            return self._outer.native(self._outer_of[value])
        return TURNED if value in self._laid else AS_GIVEN

    def found(self, value: int, how: str) -> LaidValue | None:
        """A value as it is there already so, here or around this body."""
        if (one := self._there.get((value, how))) is not None:
            return one
        if self.model.is_constant(value):
            return LaidValue(value, AS_GIVEN, self.depth)
        if self._outer is None or value not in self._outer_of:
            return None
        there = self._outer.found(self._outer_of[value], how)
        return None if there is None else LaidValue(value, how, there.depth)

    def use(self, value: int, how: str) -> LaidValue:
        """A value that is read so here: brought there, once, where it is not yet."""
        if (one := self.found(value, how)) is None:
            source = self.use(value, self.native(value))
            is_own = value not in self._outer_of
            one = LaidValue(value, how, 0 if is_own and how == AS_GIVEN else self.depth)
            self._nodes.append(_Node([source], [one], perm=TO_NHWC if how == TURNED else FROM_NHWC))
            self._there[value, how] = one
        elif (value, how) not in self._there and value in self._outer_of:
            assert self._outer is not None
            there = self._outer.found(self._outer_of[value], how)
            assert there is not None  # it was found
            self.captured[one] = there
        return one

    def _used(self, values: Iterable[int], how: str = AS_GIVEN) -> list[LaidValue | None]:
        return [None if value == LEFT_OUT else self.use(value, how) for value in values]

    # ---- nodes --------------------------------------------------------------------------------------

    def add_all(self, outputs: Sequence[str]) -> None:
        """All nodes, and ``outputs`` as they are wanted."""
        for at in range(len(self.model.nodes)):
            if at in self._is_last:
                self._add_unit(self._unit_of[at])
            elif at not in self._unit_of:
                is_laid = self._outer is not None or at in self._nhwc.nodes_with_bodies
                if is_laid and at in self.model.bodies:
                    self._add_with_bodies(at)
                else:
                    self._add_as_it_is(at)
        self._outputs = [self.use(one, how) for one, how in zip(self.model.outputs, outputs, strict=True)]

    def _add_as_it_is(self, at: int) -> None:
        node = self.model.nodes[at]
        read, captured = self._used(node.inputs), self._used(node.captured)
        self._nodes.append(_Node(read, self._made(node.outputs, {}), self._in_order(at, captured), at))

    def _made(self, values: Iterable[int], how: Mapping[int, str]) -> list[LaidValue | None]:
        return [None if one == LEFT_OUT else self.define(one, how.get(one, AS_GIVEN)) for one in values]

    def _in_order(self, at: int, captured: Iterable[LaidValue | None]) -> list[LaidValue]:
        """What a node's bodies capture, in the order of its names."""
        place = {value: number for number, value in enumerate(self.model.nodes[at].captured)}
        found = dict.fromkeys(one for one in captured if one is not None)
        return sorted(found, key=lambda one: (one.prefix, place[one.value]))

    def _add_unit(self, which: int) -> None:
        unit, placed, model = self._units[which], self._placed[which], self.model
        turned, output = model.turned(unit), model.output_of(unit)
        made = set().union(*(model.nodes[node].makes for node in unit))
        outside = {value: self.use(value, TURNED) for value in turned}
        self._used(one for one in model.read_by(unit) if one not in turned)
        if model.goes_by_element(unit):
            self._add_nodes(unit, placed, outside, dict.fromkeys(made, TURNED))
            return
        within = {value: LaidValue(value, f"in {which}", self.depth) for value in turned}
        for value in turned:
            self._nodes.append(_Node([outside[value]], [within[value]], perm=FROM_NHWC))
            placed.append(len(self._nodes) - 1)
        after = LaidValue(output, f"out {which}", self.depth)
        self._add_nodes(unit, placed, within, {}, after)
        self._nodes.append(_Node([after], [self.define(output, TURNED)], perm=TO_NHWC))
        placed.append(len(self._nodes) - 1)

    def _add_nodes(
        self,
        unit: Sequence[int],
        placed: list[int],
        known: Mapping[int, LaidValue],
        made: Mapping[int, str],
        after: LaidValue | None = None,
    ) -> None:
        """A unit's own nodes. ``known``: what they read as it lies within; ``after``: what the last makes."""
        inside = dict(known)
        for at in unit:
            node = self.model.nodes[at]
            read = [
                None if one == LEFT_OUT else inside.get(one) or self.use(one, AS_GIVEN) for one in node.inputs
            ]
            for value in node.makes:
                is_after = after is not None and value == after.value
                inside[value] = after if is_after and after else self.define(value, made.get(value, AS_GIVEN))
            outputs = [None if one == LEFT_OUT else inside[one] for one in node.outputs]
            self._nodes.append(_Node(read, outputs, origin=at))
            placed.append(len(self._nodes) - 1)

    # ---- branches and loops -------------------------------------------------------------------------

    def _add_with_bodies(self, at: int) -> None:
        model, node = self.model, self.model.nodes[at]
        turned = {place for one, place in self._nhwc.own_handed if one == at}
        is_branch, first = model.types[at] == "If", model.first_carried(at)
        for value in node.captured:
            if value in self._nhwc.own_brought:
                self._bring(value)
        given = [
            TURNED if not is_branch and place - first in turned else AS_GIVEN
            for place in range(len(node.inputs))
        ]
        read = [
            None if value == LEFT_OUT else self.use(value, how)
            for value, how in zip(node.inputs, given, strict=True)
        ]
        bodies = []
        for which, body in enumerate(model.bodies[at]):
            inner = _Making(
                body.graph, self._nhwc.bodies.get((at, which), NOTHING), self, dict(body.captured)
            )
            formal = [inner.define(one, how) for one, how in zip(body.formal, given, strict=False)]
            inner.add_all(
                [
                    TURNED if place - first // 2 in turned else AS_GIVEN
                    for place in range(len(body.graph.outputs))
                ]
            )
            bodies.append(_Body(inner, formal, inner.captured_in_order(body)))
        captured = self._in_order(at, (outer for body in bodies for _, outer in body.captured))
        for one in captured:
            self.use(one.value, one.how)  # of what is around this body too
        made = [
            None if value == LEFT_OUT else self.define(value, TURNED if place in turned else AS_GIVEN)
            for place, value in enumerate(node.outputs)
        ]
        self._nodes.append(_Node(read, made, captured, at, bodies=bodies))

    def _bring(self, value: int) -> None:
        """Into its other layout, for bodies; what is there so already is read by them alone."""
        how = AS_GIVEN if self.native(value) == TURNED else TURNED
        if not self.model.is_constant(value) and self.found(value, how) is None:
            self.use(value, how)

    def captured_in_order(self, body: TypedBody) -> list[tuple[LaidValue, LaidValue]]:
        place = {own: number for number, (own, _) in enumerate(body.captured)}
        return sorted(self.captured.items(), key=lambda pair: (pair[0].prefix, place[pair[0].value]))
