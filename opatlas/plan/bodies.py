"""Runs branches and loops: which branch, how many iterations, what is carried and stacked.

A body runs by a plan of its own. It reads outer values where they are stored, and a branch writes its outputs
where the next step reads them. A loop's carried value has two places, used in turn; a value that an iteration
only passes on is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from opatlas.graph.bodies import ScanForm, scan_form
from opatlas.graph.linked import BodyPath, NodePath
from opatlas.graph.normal import LEFT_OUT, GraphBody, GraphNode, ModelGraph
from opatlas.plan.arrays import Arrays, Misfit, OnlyDefault, copied, has_place, put
from opatlas.plan.plan import ByBodies, ModelPlan

FIRST_ROWS = 8
"""Initial places for the rows that a loop stacks; doubled whenever they are full."""


class Inner(Protocol):
    """A body's program: the part of :class:`opatlas.plan.program.GraphProgram` that is used here."""

    graph: ModelGraph
    plan: ModelPlan
    size: int
    fixed: frozenset[int]
    arrays: list[Arrays]

    @property
    def artifacts(self) -> frozenset[str]: ...

    def settle(self, memory: np.ndarray, outside: Mapping[int, np.ndarray]) -> None: ...

    def run(self, turn: int = 0) -> None: ...

    def drop(self, gone: Set[str]) -> None: ...

    def body_runs(self, body: BodyPath = ()) -> dict[NodePath, int]: ...


@dataclass(frozen=True)
class Wiring:
    """How a body's values, by its own numbers, relate to those around it. ``outside``: the outer value in
    whose memory each lies; ``held``: values that must last for all iterations; ``swapped``: pairs of a
    carried value and its next value, which change places from one iteration to the next."""

    outside: Mapping[int, int]
    held: frozenset[int] = frozenset()
    swapped: tuple[tuple[int, int], ...] = ()


ALONE = Wiring({})
"""The wiring of a model: nothing is around it."""


def wirings(
    graph: ModelGraph, node: GraphNode, plans: Sequence[ModelPlan], fixed: frozenset[int]
) -> list[Wiring]:
    """The wiring of each body of a node. ``fixed``: values of ``graph`` with a place of their own."""
    wire = _branch if node.proto.op_type == "If" else _rounds
    return [wire(graph, node, body, plan, fixed) for body, plan in zip(node.bodies, plans, strict=True)]


def _captured(body: GraphBody, fixed: frozenset[int]) -> dict[int, int]:
    return {own: outer for own, outer in body.captured if outer in fixed}


def _made(plan: ModelPlan) -> list[int]:
    """Values that the plan's own steps make."""
    return [number for step in plan.steps for number in step.outputs]


def _branch(
    graph: ModelGraph, node: GraphNode, body: GraphBody, plan: ModelPlan, fixed: frozenset[int]
) -> Wiring:
    outside, made = _captured(body, fixed), set(_made(plan))
    for own, outer in zip(body.graph.outputs, node.outputs, strict=True):
        if own in made and outer in fixed and body.graph.type_of(own) == graph.type_of(outer):
            outside[own] = outer
    return Wiring(outside)


def _rounds(
    graph: ModelGraph, node: GraphNode, body: GraphBody, plan: ModelPlan, fixed: frozenset[int]
) -> Wiring:
    pairs = carried(node, body)
    becomes = [after for _, after in pairs]
    inner = {at for step in plan.steps if isinstance(step.by, ByBodies) for at in step.nodes}
    elsewhere = {one for at in inner for one in body.graph.nodes[at].reads | body.graph.nodes[at].makes}
    made = set(_made(plan)) - elsewhere  # an inner body is tied to one place
    swapped = tuple(
        (before, after)
        for before, after in pairs
        if after in made
        and before not in elsewhere
        and becomes.count(after) == 1
        and has_place(body.graph, before)
        and body.graph.type_of(before) == body.graph.type_of(after)
    )
    held = frozenset((*body.formal, *(after for _, after in swapped)))
    return Wiring(_captured(body, fixed), held, swapped)


def carried(node: GraphNode, body: GraphBody) -> list[tuple[int, int]]:
    """Pairs of a carried value in one iteration and in the next."""
    if node.proto.op_type == "Loop":
        return list(zip(body.formal[2:], body.graph.outputs[1:], strict=False))
    states = scan_form(node.proto).states
    return list(zip(body.formal[:states], body.graph.outputs[:states], strict=True))


def body_run(
    node: GraphNode, inners: Sequence[Inner], wired: Sequence[Wiring], fixed: frozenset[int]
) -> BodyRun:
    """The runner of a node, made of its bodies' programs."""
    return _RUNS[node.proto.op_type](node, inners, wired, fixed)


class BodyRun:
    """A node that runs by its bodies. ``size``: bytes of the buffer that the bodies use one after the other;
    ``runs``: how often each of them ran to its end."""

    def __init__(
        self, node: GraphNode, inners: Sequence[Inner], wired: Sequence[Wiring], fixed: frozenset[int]
    ) -> None:
        self.node, self.inners, self._wired, self._fixed = node, inners, wired, fixed
        self.size = max(inner.size for inner in inners)
        self.runs = [0] * len(inners)
        self._loose = [
            [pair for pair in body.captured if pair[0] not in wiring.outside]
            for body, wiring in zip(node.bodies, wired, strict=True)
        ]

    def settle(self, outer: Arrays, memory: np.ndarray) -> None:
        for inner, wiring in zip(self.inners, self._wired, strict=True):
            inner.settle(memory[: inner.size], {own: outer[one] for own, one in wiring.outside.items()})

    def run(self, outer: Arrays) -> None:
        """Run once, from and to the values around it."""
        raise NotImplementedError

    def _take_captured(self, which: int, outer: Arrays) -> None:
        for own, number in self._loose[which]:
            for arrays in self.inners[which].arrays:
                arrays[own] = outer[number]

    def _give(self, outer: Arrays, place: int, value: Any) -> None:
        """An output of the node's, if anybody wants it."""
        number = self.node.outputs[place]
        if number == LEFT_OUT:
            return
        if number in self._fixed:
            put(outer[number], value)
        else:
            outer[number] = copied(value)


class Branches(BodyRun):
    """An If: runs the branch that is taken."""

    def run(self, outer: Arrays) -> None:
        which = 0 if _number(outer[self.node.inputs[0]], "condition") else 1
        inner = self.inners[which]
        self._take_captured(which, outer)
        inner.run()
        self.runs[which] += 1
        [arrays], already = inner.arrays, self._wired[which].outside
        for place, number in enumerate(inner.graph.outputs):
            if already.get(number, LEFT_OUT) != self.node.outputs[place]:
                self._give(outer, place, arrays[number])


class Rounds(BodyRun):
    """The common part of Loop and Scan."""

    def __init__(self, node: GraphNode, inners: Any, wired: Any, fixed: frozenset[int]) -> None:
        super().__init__(node, inners, wired, fixed)
        [self._inner], [body], [wiring] = inners, node.bodies, wired
        self._pairs = carried(node, body)
        swapped = {before for before, _ in wiring.swapped}
        self._turns = 2 if swapped else 1
        self._copied = [pair for pair in self._pairs if pair[0] not in swapped]
        self._before = {before for before, _ in self._copied}
        first = 1 if node.proto.op_type == "Loop" else 0
        stacked = zip(body.graph.outputs[first:], node.outputs, strict=False)
        self._stacked = [  # place among the outputs, and the value
            (place, made)
            for place, (made, output) in enumerate(stacked)
            if place >= len(self._pairs) and output != LEFT_OUT
        ]

    def _begin(self, outer: Arrays, begins: Sequence[int]) -> None:
        self._take_captured(0, outer)
        first = self._inner.arrays[0]
        for (before, _), number in zip(self._pairs, begins, strict=True):
            if before in self._inner.fixed:
                put(first[before], outer[number])
            else:
                first[before] = outer[number]

    def _carry(self, turn: int) -> int:
        """Hand on what no step makes in its place; gives the next turn."""
        then = (turn + 1) % self._turns
        if self._copied:
            now, after, fixed = self._inner.arrays[turn], self._inner.arrays[then], self._inner.fixed
            values = [now[made] for _, made in self._copied]
            for at, (_, made) in enumerate(self._copied):
                if made in self._before and made in fixed:  # which the next lines overwrite
                    values[at] = values[at].copy()
            for (before, made), value in zip(self._copied, values, strict=True):
                if before in fixed:
                    put(after[before], value)
                else:
                    after[before] = copied(value) if made in fixed else value
        return then

    def _give_carried(self, outer: Arrays, turn: int) -> None:
        arrays = self._inner.arrays[turn]
        for place, (before, _) in enumerate(self._pairs):
            self._give(outer, place, arrays[before])


class Loop(Rounds):
    """A Loop: runs until its count or its condition ends it."""

    def run(self, outer: Arrays) -> None:
        count, go, *begins = self.node.inputs
        trips = None if count == LEFT_OUT else _number(outer[count], "trip count")
        goes_on = True if go == LEFT_OUT else bool(_number(outer[go], "condition"))
        inner, [body] = self._inner, self.node.bodies
        self._begin(outer, begins)
        stacks = [StackedRows() for _ in self._stacked]
        done = turn = 0
        while goes_on and (trips is None or done < trips):
            arrays = inner.arrays[turn]
            arrays[body.formal[0]][...] = done
            arrays[body.formal[1]][...] = True
            inner.run(turn)
            self.runs[0] += 1
            for stack, (_, number) in zip(stacks, self._stacked, strict=True):
                stack.add(arrays[number])
            goes_on = bool(_number(arrays[inner.graph.outputs[0]], "condition"))
            turn = self._carry(turn)
            done += 1
        self._give_carried(outer, turn)
        for stack, (place, _) in zip(stacks, self._stacked, strict=True):
            self._give(outer, place, stack.rows())


class Scan(Rounds):
    """A Scan: runs once for each slice of its scanned inputs."""

    def __init__(self, node: GraphNode, inners: Any, wired: Any, fixed: frozenset[int]) -> None:
        super().__init__(node, inners, wired, fixed)
        self._form: ScanForm = scan_form(node.proto)

    def run(self, outer: Arrays) -> None:
        form, inner, [body] = self._form, self._inner, self.node.bodies
        self._begin(outer, self.node.inputs[: form.states])
        sources = []
        for at, number in enumerate(self.node.inputs[form.states :]):
            source = np.moveaxis(outer[number], form.input_axes[at], 0)
            sources.append(source[::-1] if form.backwards[at] else source)
        stacks = [StackedRows() for _ in self._stacked]
        turn = 0
        for at in range(len(sources[0])):
            arrays = inner.arrays[turn]
            for number, source in zip(body.formal[form.states :], sources, strict=True):
                if number in inner.fixed:
                    put(arrays[number], source[at, ...])
                else:
                    arrays[number] = np.array(source[at, ...])
            inner.run(turn)
            self.runs[0] += 1
            for stack, (_, number) in zip(stacks, self._stacked, strict=True):
                stack.add(arrays[number])
            turn = self._carry(turn)
        self._give_carried(outer, turn)
        for stack, (place, _) in zip(stacks, self._stacked, strict=True):
            rows, at = stack.rows(), place - form.states
            rows = np.moveaxis(rows[::-1] if form.prepends[at] else rows, 0, form.output_axes[at])
            self._give(outer, place, np.asarray(rows, order="C"))


_RUNS: Mapping[str, type[BodyRun]] = {"If": Branches, "Loop": Loop, "Scan": Scan}


class StackedRows:
    """The outputs of a loop's iterations, in order; grows as needed."""

    def __init__(self) -> None:
        self._rows: np.ndarray | None = None
        self._count = 0

    def add(self, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            raise Misfit("a loop can only stack tensors")
        if self._rows is None:
            self._rows = np.empty((FIRST_ROWS, *value.shape), value.dtype)
        elif self._count == len(self._rows):
            grown = np.empty((2 * self._count, *value.shape), value.dtype)
            grown[: self._count] = self._rows
            self._rows = grown
        put(self._rows[self._count, ...], value)
        self._count += 1

    def rows(self) -> np.ndarray:
        """All rows. Raises :class:`OnlyDefault` if there were none: only ONNX Runtime may have inferred their
        shape."""
        if self._rows is None:
            raise OnlyDefault("a loop of no iterations stacks nothing")
        return self._rows[: self._count]


def _number(value: Any, what: str) -> int:
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise Misfit(f"the {what} is not one number")
    return int(value.item())
