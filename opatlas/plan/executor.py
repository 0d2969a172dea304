"""Runs a plan: buffers shared by lifetime, outputs written into the next step's inputs, constants prepared
once, and a part that fails replaced by the default."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import CallerError, OpatlasError
from opatlas.graph.linked import NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.memory import lacking
from opatlas.plan.arrays import Misfit, copied, dtype_of, has_array, memory_of
from opatlas.plan.bodies import ALONE
from opatlas.plan.plan import ByFramework, ModelPlan, PlanStep
from opatlas.plan.program import GraphProgram, Load, PartFailed, Parts
from opatlas.plan.regions import DEFAULT, ModelPart, Region, open_region

log = logging.getLogger("opatlas")


class ModelFailed(OpatlasError):
    """A model that could not be run, by the default either; says which node and why."""


@dataclass(frozen=True)
class StepTime:
    """What one step took in a profiled run, in microseconds."""

    step: PlanStep
    us: float


class Executor:
    """A model that runs by a plan: ``executor.run({"x": array})``.

    The plan must have been checked (:func:`opatlas.plan.checking.check_plan`). ``load`` loads what a kernel's
    step names; ``failed(step, error)`` is told of a step that went over to the default, which is ONNX
    Runtime; ``revoked()`` gives the artifacts that must not run any more, asked before each run. Where a part
    fails though no kernel is to blame (shapes that ONNX infers are not always those that are made), the whole
    model runs in ONNX Runtime from then on. Each run is one at a time; what is given back is the caller's
    own.
    """

    def __init__(
        self,
        graph: ModelGraph,
        plan: ModelPlan,
        load: Load,
        *,
        threads: int,
        failed: Callable[[PlanStep, Exception], None] | None = None,
        revoked: Callable[[], Set[str]] = frozenset,
    ) -> None:
        self.graph, self.plan = graph, plan
        self._threads, self._revoked = threads, revoked
        self._lock = threading.RLock()
        self._is_running = False
        self._parts = Parts(load, threads, failed)
        self._whole: Region | None = None
        self._whole_by = DEFAULT
        self._program: GraphProgram | None = None
        self.fallen_back = ""  # why the whole model runs in the default, though the plan says otherwise
        self._is_open = True
        self.peak_bytes = 0
        by = plan.steps[0].by
        if len(plan.steps) == 1 and isinstance(by, ByFramework):
            self._whole_by = by.framework
            self._whole = open_region(self._whole_by, ModelPart.whole(graph), threads, alone=True)
            return
        program = GraphProgram(graph, plan, self._parts, ALONE)
        self.fallen_back = lacking(program.size)
        if self.fallen_back:
            log.warning("The whole model runs in ONNX Runtime: %s.", self.fallen_back)
            self._whole = self._whole_model(graph.input_names)
            return
        program.settle(memory_of(program.size), {})
        self._program, self.peak_bytes = program, program.size

    @property
    def calls(self) -> list[Callable[[], None]]:
        """The steps' calls, in order; none where a framework runs the whole model."""
        return self._program.calls[0] if self._program is not None else []

    @property
    def artifacts(self) -> frozenset[str]:
        """What runs by kernels, and has not gone over to the default."""
        return self._program.artifacts if self._program is not None else frozenset()

    @property
    def body_runs(self) -> dict[NodePath, int]:
        """How often each node in a body that the plan runs by itself has run, by where it is."""
        return self._program.body_runs() if self._program is not None else {}

    # ---- running ------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The model's outputs, in its order. Raises :class:`opatlas.errors.CallerError` for inputs of another
        name, shape or type, :class:`ModelFailed` where the default fails as well."""
        with self._alone():
            if self._overridden(inputs):
                return self._run_whole(self._whole_model(tuple(inputs)), list(inputs.values()))
            arrays = self._given(inputs)
            self._drop_revoked()
            if self._program is not None:
                try:
                    self._take(self._program, arrays)
                    self._program.run()
                    return [copied(self._program.arrays[0][number]) for number in self.graph.outputs]
                except (PartFailed, Misfit) as error:
                    self._prefer_whole(arrays, error)
            assert self._whole is not None
            try:
                return self._run_whole(self._whole, arrays)
            except ModelFailed as error:
                if self._whole_by == DEFAULT:
                    raise
                self._prefer_whole(arrays, error)
                return self._run_whole(self._whole, arrays)

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[StepTime]:
        """One run, each step timed."""
        with self._alone():
            arrays = self._given(inputs)
            self._drop_revoked()
            if self._program is None:
                assert self._whole is not None
                start = time.perf_counter_ns()
                self._run_whole(self._whole, arrays)
                return [StepTime(self.plan.steps[0], (time.perf_counter_ns() - start) / 1e3)]
            self._take(self._program, arrays)
            times = []
            for number, step in enumerate(self.plan.steps):
                start = time.perf_counter_ns()
                self._program.run_step(number)
                times.append(StepTime(step, (time.perf_counter_ns() - start) / 1e3))
            return times

    def close(self) -> None:
        """Let go of kernels and buffers; it cannot be run any more."""
        with self._lock:
            self._program, self._whole, self._is_open = None, None, False
            self._parts.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One run at a time: other threads wait; one within another, from what a run calls, would overwrite
        its values."""
        with self._lock:
            if not self._is_open:
                raise CallerError("The model was closed: make it anew.")
            if self._is_running:
                raise CallerError("The model is running: it cannot be run from within its own run.")
            self._is_running = True
            try:
                yield
            finally:
                self._is_running = False

    def _run_whole(self, model: Region, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            return model.run(arrays)
        except OpatlasError as error:
            raise ModelFailed(f"The model failed: {error}") from error

    def _prefer_whole(self, arrays: Sequence[np.ndarray], error: Exception) -> None:
        """No kernel is to blame: if the whole model runs, it does so from now on; else the inputs are."""
        whole = self._whole_model(self.graph.input_names)
        self._run_whole(whole, arrays)
        log.warning("%s. The whole model runs in ONNX Runtime.", error)
        self._whole, self._whole_by, self._program = whole, DEFAULT, None
        self.fallen_back = str(error)

    def _drop_revoked(self) -> None:
        if self._program is None or not (running := self.artifacts):
            return
        if not running.isdisjoint(gone := self._revoked()):
            self._program.drop(gone)

    # ---- inputs and outputs -------------------------------------------------------------------------

    def _overridden(self, inputs: Mapping[str, Any]) -> bool:
        """Whether a constant that is an input too is given, as ONNX allows."""
        extra = set(inputs) - set(self.graph.input_names)
        return bool(extra) and extra <= {value.name for value in self.graph.model.graph.input}

    def _given(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        wanted = self.graph.input_names
        if set(inputs) != set(wanted):
            given = ", ".join(sorted(inputs)) or "none"
            raise CallerError(f"The model takes the inputs {', '.join(wanted)}; {given} are given.")
        return [self._fitting(name, inputs[name]) for name in wanted]

    def _fitting(self, name: str, given: Any) -> Any:
        kind = self.graph.walk.types.get(name)
        if kind is None:
            return given  # a sequence, a map, something optional
        array = given if isinstance(given, np.ndarray) else np.asarray(given)
        if has_array(kind):
            dtype = dtype_of(kind)
            if array.dtype != dtype or array.shape != kind.shape:
                found, wanted = (array.dtype, list(array.shape)), (dtype, list(kind.shape))
                raise CallerError(
                    f"Input '{name}' is {found[0]} {found[1]}; the model takes {wanted[0]} {wanted[1]}."
                )
        return array

    def _take(self, program: GraphProgram, arrays: Sequence[Any]) -> None:
        for number, array in zip(self.graph.inputs, arrays, strict=True):
            if number in program.fixed:
                program.arrays[0][number][...] = array
            else:
                program.arrays[0][number] = array

    def _whole_model(self, inputs: Sequence[str]) -> Region:
        """In the default framework."""
        return open_region(DEFAULT, ModelPart.whole(self.graph, inputs), self._threads, alone=True)
