"""The steps of a plan over one graph, a model's or a body's: prepared once, run often.

Values of known size share one buffer if they are never needed together; bodies use it too. A value that a
loop carries has two places that change roles with each iteration, so nothing is copied. The steps that touch
it are bound twice, once for each *turn*.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from opatlas.errors import LoadError, OpatlasError
from opatlas.graph.fused import operator_of
from opatlas.graph.linked import BodyPath, NodePath
from opatlas.graph.normal import LEFT_OUT, ModelGraph
from opatlas.graph.types import TensorType
from opatlas.load.kernel import LoadedKernel, binds_outputs
from opatlas.plan.arena import Lifetime, place_apart
from opatlas.plan.arrays import Arrays, OnlyDefault, dtype_of, has_place, put
from opatlas.plan.bodies import BodyRun, Wiring, body_run, wirings
from opatlas.plan.plan import ByBodies, ByFramework, ByKernel, ModelPlan, PlanStep
from opatlas.plan.regions import DEFAULT, ModelPart, open_region

log = logging.getLogger("opatlas")

Load = Callable[[ByKernel], LoadedKernel]
"""Loads a kernel's implementation, a new one for each step: it keeps that step's weights."""
Call = Callable[[], None]
_INPUTS = -1
"""The part of memory for inputs, beside those of the streams."""


class PartFailed(OpatlasError):
    """A step failed, and no kernel is to blame: the part is, or the model."""


@dataclass
class Parts:
    """What the programs of a model share. ``failed``: told of each step that went over to the default;
    ``exact``: the default computes 8-bit products exactly."""

    load: Load
    threads: int
    failed: Callable[[PlanStep, Exception], None] | None = None
    kernels: list[LoadedKernel] = field(default_factory=list)
    exact: bool = False

    def close(self) -> None:
        for kernel in self.kernels:
            kernel.close()
        self.kernels = []


class GraphProgram:
    """A plan over a graph. ``wiring``: which of its values lie outside, are held, or swapped. ``size``: bytes
    that it needs; :meth:`settle` provides them, and the outer values. ``fixed``: values with a place of their
    own; the others are in ``arrays``, a dictionary for each turn."""

    def __init__(self, graph: ModelGraph, plan: ModelPlan, parts: Parts, wiring: Wiring) -> None:
        self.graph, self.plan, self._parts, self._wiring = graph, plan, parts, wiring
        made = [number for step in plan.steps for number in step.outputs]
        self.fixed = frozenset(number for number in (*graph.inputs, *made) if has_place(graph, number))
        self._bodies = {at: self._body(step) for at, step in enumerate(plan.steps) if _is_by_bodies(step)}
        self.live = {
            at: step.by.artifact for at, step in enumerate(plan.steps) if isinstance(step.by, ByKernel)
        }  # artifacts by step, of those that did not go over to the default
        self._regions: dict[int, list[Call]] = {}  # for bodies that the default runs now and then
        self._lives = self._lifetimes()
        self._offsets, self.size = place_apart(self._lives, self._parts_of_memory())
        self.arrays: list[Arrays] = []
        self.calls: list[list[Call]] = []
        self.scratch: dict[int, np.ndarray] = {}  # by step, of those that run by bodies: their buffer

    def settle(self, memory: np.ndarray, outside: Mapping[int, np.ndarray]) -> None:
        """Bind every step to ``memory`` (aligned bytes) and to the outer arrays."""
        own: Arrays = {}
        for number, offset in self._offsets.items():
            if number in self.fixed:
                kind = self._type_of(number)
                raw = memory[offset : offset + self._lives[number].size]
                own[number] = raw.view(dtype_of(kind)).reshape(kind.shape)
        own |= {**outside, **self._constants()}
        other = own | {one: own[by] for pair in self._wiring.swapped for one, by in (pair, pair[::-1])}
        self.arrays = [own, other] if self._wiring.swapped else [own]
        for at, body in self._bodies.items():
            self.scratch[at] = memory[self._offsets[~at] : self._offsets[~at] + body.size]
            body.settle(own, self.scratch[at])
        by_step = [self._prepared(at) for at in range(len(self.plan.steps))]
        self.calls = [[calls[turn] for calls in by_step] for turn in range(len(self.arrays))]

    # ---- running ------------------------------------------------------------------------------------

    def run(self, turn: int = 0) -> None:
        """Run all steps. Raises :class:`PartFailed` if the default fails as well."""
        calls, first = self.calls[turn], 0
        while first < len(calls):
            number = first
            try:
                for number, call in enumerate(calls[first:] if first else calls, first):  # noqa: B007
                    call()
                return
            except Exception as error:
                first = self._fall_back(number, turn, error)

    def run_step(self, number: int) -> None:
        """Run one step of a program with one turn."""
        try:
            self.calls[0][number]()
        except Exception as error:
            if self._fall_back(number, 0, error) == number:
                self.run_step(number)

    def drop(self, gone: Set[str]) -> None:
        """Replace the kernels of these artifacts by the default."""
        for number, artifact in list(self.live.items()):
            if artifact in gone:
                self._leave_kernel(number, LoadError("it was revoked"))
        for body in self._bodies.values():
            for inner in body.inners:
                inner.drop(gone)

    @property
    def artifacts(self) -> frozenset[str]:
        """The artifacts of kernels that run, bodies included."""
        inner = (one.artifacts for body in self._bodies.values() for one in body.inners)
        return frozenset(self.live.values()).union(*inner)

    def run_by(self, number: int) -> str:
        """The label of what runs a step now: its kernel, or the default once that failed."""
        by = self.plan.steps[number].by
        has_left = number not in self.live and number not in self._bodies
        return DEFAULT if has_left and not isinstance(by, ByFramework) else by.said

    def body_runs(self, body: BodyPath = ()) -> dict[NodePath, int]:
        """How often each node in a body that the plan runs has run since loading, by where it is in
        ``body``."""
        found: dict[NodePath, int] = {}
        for at, one in self._bodies.items():
            for which, inner in enumerate(one.inners):
                within = (*body, self.plan.steps[at].nodes[0], which)
                numbers = (number for step in inner.plan.steps for number in step.nodes)
                found |= {(*within, number): one.runs[which] for number in numbers}
                found |= inner.body_runs(within)
        return found

    def _fall_back(self, number: int, turn: int, error: Exception) -> int:
        """Give the step's nodes to the default, for good; the inputs are unchanged. Returns the step to go on
        with."""
        step = self.plan.steps[number]
        try:
            if number in self.live:
                self._leave_kernel(number, error)
                return number
            if number in self._bodies:
                self._leave_body(number, turn, error)
                return number + 1
        except Exception as again:  # the default takes it no more than they did
            error = again
        label = self.graph.nodes[step.nodes[0]].proto.op_type
        raise PartFailed(f"The model failed at node {step.nodes[0]} ({label}): {error}") from error

    def _leave_kernel(self, number: int, error: Exception) -> None:
        self._replace(number, self._region(self.plan.steps[number]))
        self._give_up(number, error)

    def _leave_body(self, number: int, turn: int, error: Exception) -> None:
        """Only if the default can run what the body could not; otherwise the inputs are to blame."""
        if number not in self._regions:
            self._regions[number] = self._region(self.plan.steps[number])
        self._regions[number][turn]()
        if isinstance(error, OnlyDefault):
            return
        self._replace(number, self._regions.pop(number))
        self._give_up(number, error)

    def _replace(self, number: int, calls: list[Call]) -> None:
        for turn, call in enumerate(calls):
            self.calls[turn][number] = call

    def _give_up(self, number: int, error: Exception) -> None:
        step = self.plan.steps[number]
        self.live.pop(number, None)
        self._bodies.pop(number, None)
        log.warning("%s cannot run in a model: %s. Its nodes run by ONNX Runtime.", step.by.said, error)
        if self._parts.failed is not None:
            self._parts.failed(step, error)

    # ---- where values lie ---------------------------------------------------------------------------

    def _type_of(self, number: int) -> TensorType:
        kind = self.graph.type_of(number)
        assert kind is not None  # of what is fixed
        return kind

    def _lifetimes(self) -> dict[int, Lifetime]:
        """From the step that makes each value to the last that reads it. A body's buffer, under ``~step``,
        lives during its step."""
        end, wiring = len(self.plan.steps), self._wiring
        last = dict.fromkeys(self.graph.outputs, end)
        made = dict.fromkeys(self.graph.inputs, -1)
        for at, step in enumerate(self.plan.steps):
            made |= dict.fromkeys(step.outputs, at)
            for number in self.reads(step):
                last[number] = max(last.get(number, -1), at)
        lives = {~at: Lifetime(at, at, body.size) for at, body in self._bodies.items()}
        for number, at in made.items():
            if number in self.fixed and number not in wiring.outside:
                kind = self._type_of(number)
                size = kind.size * dtype_of(kind).itemsize
                held = number in wiring.held
                lives[number] = Lifetime(-1 if held else at, end if held else last.get(number, at), size)
        return lives

    def _parts_of_memory(self) -> dict[int, int]:
        """Parallel streams share no memory, or they would wait for it. Inputs have a part of their own, so
        that a run can begin again."""
        if self.plan.stream_count == 1:
            return {}
        parts = {number: step.stream for step in self.plan.steps for number in step.outputs}
        parts |= {~at: self.plan.steps[at].stream for at in self._bodies}
        return parts | dict.fromkeys(self.graph.inputs, _INPUTS)

    def _constants(self) -> Arrays:
        """Constants that are outputs, or that a body's node reads itself."""
        wanted = {number for number in self.graph.outputs if self.graph.is_constant(number)}
        for at in self._bodies:
            node = self.graph.nodes[self.plan.steps[at].nodes[0]]
            wanted |= {one for one in node.inputs if one != LEFT_OUT and self.graph.is_constant(one)}
        return self._values_of(wanted)

    def _values_of(self, constants: Iterable[int]) -> Arrays:
        found = self.graph.evaluate(tuple(constants))
        return {number: np.asarray(value, order="C") for number, value in found.items()}

    def reads(self, step: PlanStep) -> frozenset[int]:
        """Values made before the step and read in it."""
        nodes = [self.graph.nodes[number] for number in step.nodes]
        made = frozenset().union(*(node.makes for node in nodes))
        return frozenset().union(*(node.reads for node in nodes)) - made

    # ---- preparing ----------------------------------------------------------------------------------

    def _prepared(self, number: int) -> list[Call]:
        """A step's call, by turn."""
        step = self.plan.steps[number]
        if number in self._bodies:
            return [partial(self._bodies[number].run, arrays) for arrays in self.arrays]
        if not isinstance(step.by, ByKernel):
            return self._region(step)
        try:
            return self._kernel(step, step.by)
        except Exception as error:
            calls = self._region(step)
            self._give_up(number, error)
            return calls

    def _each_turn(self, numbers: Collection[int], bind: Callable[[Arrays], Call]) -> list[Call]:
        """Binds a step once if everything that it touches stays in place."""
        swapped = {one for pair in self._wiring.swapped for one in pair}
        if self.fixed.issuperset(numbers) and swapped.isdisjoint(numbers):
            return [bind(self.arrays[0])] * len(self.arrays)
        return [bind(arrays) for arrays in self.arrays]

    def _body(self, step: PlanStep) -> BodyRun:
        assert isinstance(step.by, ByBodies)
        node = self.graph.nodes[step.nodes[0]]
        plans = step.by.plans
        wired = wirings(self.graph, node, plans, self.fixed)
        inners = [
            GraphProgram(body.graph, plan, self._parts, wiring)
            for body, plan, wiring in zip(node.bodies, plans, wired, strict=True)
        ]
        return body_run(node, inners, wired, self.fixed)

    def _kernel(self, step: PlanStep, by: ByKernel) -> list[Call]:
        kernel = self._parts.load(by)
        self._parts.kernels.append(kernel)
        operator = operator_of(self.graph, step.nodes, step.outputs).operator  # the plan was checked
        value_of = dict(zip(operator.tensor_inputs, by.tensors, strict=True))
        weights = self._values_of(self.graph.constants_of(step.nodes))
        kernel.prepare({number: weights[value_of[number]] for number in operator.constant_inputs})
        read = {number: value_of[number] for number in operator.runtime_inputs}

        def bind(arrays: Arrays) -> Call:
            inputs = {number: arrays[value] for number, value in read.items()}
            return _bound(kernel, inputs, [arrays[number] for number in step.outputs])

        return self._each_turn((*read.values(), *step.outputs), bind)

    def _region(self, step: PlanStep) -> list[Call]:
        part = ModelPart.of_step(self.graph, step)
        by = step.by if isinstance(step.by, ByFramework) else ByFramework(DEFAULT)
        threads, exact = self._parts.threads, self._parts.exact
        region = open_region(by.framework, part, threads, threading=by.threading, exact=exact)
        inputs = part.inputs

        def bind(arrays: Arrays) -> Call:
            if self.fixed.issuperset((*inputs, *step.outputs)):
                return region.bind([arrays[one] for one in inputs], [arrays[one] for one in step.outputs])

            def call() -> None:
                for number, made in zip(
                    step.outputs, region.run([arrays[one] for one in inputs]), strict=True
                ):
                    if number in self.fixed:
                        put(arrays[number], made)
                    else:
                        arrays[number] = made

            return call

        return self._each_turn((*inputs, *step.outputs), bind)


def _bound(kernel: LoadedKernel, inputs: Mapping[int, np.ndarray], outputs: list[np.ndarray]) -> Call:
    """A call that writes into ``outputs``, whatever makes them."""
    if binds_outputs(kernel):
        return kernel.bind(inputs, outputs)
    bound = kernel.bind(inputs)

    def call() -> None:
        bound()
        for output, made in zip(outputs, bound.outputs(), strict=True):
            put(output, made)

    return call


def _is_by_bodies(step: PlanStep) -> bool:
    return isinstance(step.by, ByBodies)
