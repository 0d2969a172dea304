"""Runs a plan. Buffers are shared by lifetime, outputs are written into the next step's inputs, constants are
prepared once, and a part that fails is replaced by the default."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opatlas.errors import CallerError, LoadError, OpatlasError
from opatlas.graph.linked import NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.memory import lacking
from opatlas.placement.queues import NoEngine
from opatlas.plan.arrays import Misfit, copied, dtype_of, has_array, memory_of
from opatlas.plan.bodies import ALONE
from opatlas.plan.concurrent import InStreams, cpu_device, step_said
from opatlas.plan.direct import Direct, InsideRuns, direct_runs, expected_inputs, fits
from opatlas.plan.engines import DeadlinePassed, EngineShare, EngineStalled, EngineStep
from opatlas.plan.engines.runs import OnEngines, engine_steps
from opatlas.plan.guard import InputGuard
from opatlas.plan.inside import InsideModel
from opatlas.plan.limits import TookTooLong
from opatlas.plan.making import whole as whole_plan
from opatlas.plan.node_names import median_times
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan, PlanStep
from opatlas.plan.program import GraphProgram, Load, PartFailed, Parts
from opatlas.plan.regions import DEFAULT, ModelPart, OnnxRuntimeRegion, Region, open_region
from opatlas.streams.device import Marks, StreamDevice, StreamsFailed
from opatlas.streams.timeline import Timeline, TimelineBox, bounded

log = logging.getLogger("opatlas")
INSIDE = "onnxruntime with kernels inside"


class ModelFailed(OpatlasError):
    """A model that fails in the default too; says at which node and why."""


class UnexpectedInputs(CallerError):
    """Inputs of another name, shape or type than planned for."""


@dataclass(frozen=True)
class ModelAsGiven:
    """The caller's model, if the executor runs another form of it: its graph, and a function that loads it in
    ONNX Runtime, which raises :class:`opatlas.errors.LoadError`."""

    graph: ModelGraph
    open: Callable[[], Region]


@dataclass(frozen=True)
class StepTime:
    """The time of one step in a profiled run, in microseconds."""

    step: PlanStep
    us: float


class RunAlone:
    """Allows one run at a time. Other threads wait; a run that starts another would overwrite its values.
    Entered around each run; it is a class since a generator would take several times as long as a short
    run."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_open = True
        self._is_running = False

    def __enter__(self) -> None:
        self.lock.acquire()
        refused = (
            "The model was closed: make it anew." if not self.is_open else
            "The model is running: it cannot be run from within its own run." if self._is_running else ""
        )  # fmt: skip
        if refused:
            self.lock.release()
            raise CallerError(refused)
        self._is_running = True

    def __exit__(self, *exc: object) -> None:
        self._is_running = False
        self.lock.release()


class Executor:
    """A model that runs by a plan: ``executor.run({"x": array})``. Check the plan before
    (:func:`opatlas.plan.checking.check_plan`).

    ``load`` loads the kernel that a step names. ``failed(step, error)`` is called for a step that went over
    to the default, ONNX Runtime. ``revoked()`` gives artifacts that must not run any more; it is called
    before each run. If a part fails and no kernel is to blame (shapes that ONNX infers may be wrong), ONNX
    Runtime runs the whole model from then on. There is one run at a time, and outputs belong to the caller.
    ONNX Runtime executes runs over unusual inputs (:mod:`opatlas.plan.guard`) with a session opened for the
    first of them: of the ``given`` model if ``graph`` is another form of it.

    The streams of a plan run at the same time, on ``device`` (default: a thread each), and share the threads.
    If a stream fails, steps run one after the other from that run on (``in_one_stream`` says why); if one
    hangs, ONNX Runtime runs the whole model. ``exact``: ONNX Runtime computes 8-bit products exactly, as far
    as it can.
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
        device: StreamDevice | None = None,
        exact: bool = False,
        given: ModelAsGiven | None = None,
    ) -> None:
        self.graph, self.plan, self._as_given = graph, plan, given
        self._is_other_form = given is not None and given.graph is not graph.unlaid
        self._threads, self._revoked, self._exact = threads, revoked, exact
        self._alone = RunAlone()
        self._expected = expected_inputs(graph)
        guarded = given.graph if given is not None else graph.unlaid
        self._guard = None if _is_default(plan) and not self._is_other_form else InputGuard(guarded)
        self._for_guarded: Region | None = None
        self._parts = Parts(load, max(1, threads // plan.stream_count), failed, exact=exact)
        self._streams: InStreams | None = None
        self._whole: Region | None = None
        self.direct: Direct | None = None  # where a framework runs the whole model
        self._whole_by = DEFAULT
        self._program: GraphProgram | None = None
        self._engine_steps: list[EngineStep] | None = None
        self.fallen_back = ""  # why the whole model runs in the default, though the plan says otherwise
        self.in_one_stream = ""  # why its steps run one after the other, though the plan says otherwise
        self.peak_bytes = 0
        self._has_kernels = False
        by = plan.steps[0].by
        if plan.inside:
            self._leave_to(InsideModel(graph, plan, load, threads, failed=failed, exact=exact), INSIDE)
            return
        if len(plan.steps) == 1 and isinstance(by, ByFramework):
            region = open_region(by.framework, ModelPart.whole(graph), threads, alone=True, exact=exact)
            self._leave_to(region, by.framework)
            return
        program = GraphProgram(graph, plan, self._parts, ALONE)
        self.fallen_back = lacking(program.size)
        if self.fallen_back:
            log.warning("The whole model runs in ONNX Runtime: %s.", self.fallen_back)
            self._leave_to(self._whole_model(graph.input_names))
            return
        program.settle(memory_of(program.size), {})
        self._program, self.peak_bytes = program, program.size
        self._has_kernels = bool(program.artifacts)
        if plan.stream_count > threads:
            self.in_one_stream = f"The plan has {plan.stream_count} streams for {threads} threads."
        elif plan.stream_count > 1:
            self._streams = InStreams(program, device or cpu_device(program, self._parts.threads))

    @property
    def calls(self) -> list[Callable[[], None]]:
        """The steps' calls in order; none if a framework runs the whole model."""
        return self._program.calls[0] if self._program is not None else []

    @property
    def artifacts(self) -> frozenset[str]:
        """Artifacts of the kernels that still run."""
        if (inside := self._inside) is not None:
            return inside.artifacts
        return self._program.artifacts if self._program is not None else frozenset()

    @property
    def kernels(self) -> list[ByKernel]:
        """The kernels that still run inside a framework."""
        return inside.kernels if (inside := self._inside) is not None else []

    @property
    def _inside(self) -> InsideModel | None:
        """The whole model with kernels inside, if that is what runs."""
        return self._whole if isinstance(self._whole, InsideModel) else None

    @property
    def body_runs(self) -> dict[NodePath, int]:
        """How often each node in a body that the plan runs has run, by where it is."""
        return self._program.body_runs() if self._program is not None else {}

    # ---- running ------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        share: EngineShare | None = None,
        deadline_s: float = math.inf,
        marks: Marks | None = None,
        limit_s: float = math.inf,
    ) -> list[np.ndarray]:
        """The model's outputs in its order. Raises :class:`UnexpectedInputs` for inputs of another name,
        shape or type, and :class:`ModelFailed` if the default fails as well. ``share``: runs on these shared
        engines, step by step in turns with other models; raises :class:`opatlas.plan.engines.DeadlinePassed`
        if it cannot end within ``deadline_s``. If an engine hangs or none is left, it runs without them.
        ``marks``: filled by runs in streams (:meth:`timeline`). ``limit_s``: ends ONNX Runtime with
        :class:`opatlas.plan.limits.TookTooLong`, if it has the whole model from the start."""
        on = None if share is None else OnEngines(share, deadline_s)
        with self._alone:
            if (arrays := self._as_expected(inputs)) is None:
                if self._overridden(inputs):
                    return self._run_whole(self._whole_model(tuple(inputs)), list(inputs.values()))
                arrays = self._given(inputs)
            if self._is_guarded(arrays):
                return self._run_whole(self._guarded_model(), arrays, on)
            self._drop_revoked()
            if self._program is not None:
                try:
                    if (program := self._ran(self._program, arrays, on, marks)) is not None:
                        return [copied(program.arrays[0][number]) for number in self.graph.outputs]
                except (PartFailed, Misfit) as error:
                    self._prefer_whole(arrays, error)
            assert self._whole is not None
            try:
                return self._run_whole(self._whole, arrays, on, limit_s)
            except ModelFailed as error:
                if self._whole_by == DEFAULT:
                    raise
                self._prefer_whole(arrays, error)
                return self._run_whole(self._whole, arrays)

    def hands_over(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Whether ONNX Runtime must execute a run over these inputs, whatever the plan says."""
        return self._guard is not None and self._guard.needs_default(inputs)

    def is_own(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Whether the plan runs these inputs: they fit, and the guard lets them through."""
        try:
            arrays = self._as_expected(inputs)
            return not self._is_guarded(self._given(inputs) if arrays is None else arrays)
        except UnexpectedInputs:
            return False

    def _is_guarded(self, arrays: Sequence[Any]) -> bool:
        return self._guard is not None and self.hands_over(
            dict(zip(self.graph.input_names, arrays, strict=True))
        )

    def _guarded_model(self) -> Region:
        if self._for_guarded is None:
            self._for_guarded = self._given_model()
        return self._for_guarded

    def _given_model(self) -> Region:
        if self._as_given is not None:
            return self._as_given.open()
        return self._whole_model(self.graph.input_names)

    def _ran(
        self, program: GraphProgram, arrays: Sequence[Any], on: OnEngines | None, marks: Marks | None
    ) -> GraphProgram | None:
        """The program that has run all steps over these inputs; None if the whole model must run."""
        self._take(program, arrays)
        if on is not None:
            return self._ran_on(on, program, arrays)
        streams = self._streams
        if streams is None:
            program.run()
            return program
        try:
            streams.run(marks)
            return program
        except StreamsFailed as error:
            reason = str(error)
        finally:
            if streams.device.is_lost:  # Ctrl-C ends a run as well
                self._let_hang()
        if self._program is None:
            return None
        program.run()  # where this fails too, the inputs are to blame, and streams stay
        log.warning("%s The plan's steps run one after the other.", reason)
        streams.device.close()
        self._streams, self.in_one_stream = None, reason
        return program

    def _ran_on(self, on: OnEngines, program: GraphProgram, arrays: Sequence[Any]) -> GraphProgram | None:
        if self._engine_steps is None:
            self._engine_steps = engine_steps(program)
        try:
            on.run(self._engine_steps)
        except EngineStalled:
            on.look()  # too late for another run
            return None
        except NoEngine as error:
            log.warning("%s The plan's steps run one after the other.", error)
            self._take(program, arrays)
            program.run()
        finally:
            if on.share.hangs:  # Ctrl-C ends a run as well
                self._let_hang("A step of the plan never ended")
        return program

    def _let_hang(self, why: str = "A stream of the plan never ended") -> None:
        """A thread that hangs may still write: the program is not used again, and its kernels are not
        closed."""
        self._streams = self._program = self._engine_steps = None
        self._parts = replace(self._parts, kernels=[])
        self.fallen_back = why
        log.warning("%s. The whole model runs in ONNX Runtime.", self.fallen_back)
        self._leave_to(self._whole_model(self.graph.input_names))

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[StepTime]:
        """One run with the time of each step; inside a framework, some runs with its own profiler."""
        with self._alone:
            arrays = self._given(inputs)
            self._drop_revoked()
            if self._inside is not None:
                taken = self.node_times(inputs)
                return [
                    StepTime(step, sum(taken.get(number, 0.0) for number in step.nodes))
                    for step in self.plan.steps
                ]
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

    def node_times(self, inputs: Mapping[str, np.ndarray]) -> dict[int, float]:
        """Microseconds of each node inside a framework, from its own profile of some runs. If one kernel
        computes several nodes, the last has all of its time."""
        if (inside := self._inside) is None:
            raise LoadError("only inside a framework its profile shows nodes")
        feed = dict(zip(self.graph.input_names, self._given(inputs), strict=True))
        return median_times(self.graph, inside.profile(feed))

    def timeline(self, inputs: Mapping[str, np.ndarray]) -> Timeline:
        """One run: its streams as rows, or its steps one after the other."""
        if self._streams is not None:
            self.run(inputs)  # the first is one step after the other
            marks: Marks = []
            self.run(inputs, marks=marks)
            if (streams := self._streams) is not None:
                return streams.timeline(marks)
        boxes, start_us = [], 0.0
        for at, timed in enumerate(self.profile(inputs)):
            said, by = "the whole model", self._whole_by
            if (program := self._program) is not None:
                said, by = step_said(self.graph, at, timed.step), program.run_by(at)
            elif self._inside is not None:
                said, by = step_said(self.graph, at, timed.step), timed.step.by.said
            boxes.append(TimelineBox(0, said, start_us, timed.us, by=by))
            start_us += timed.us
        return bounded(["one step after the other"], boxes)

    def close(self) -> None:
        """Release kernels and buffers; it cannot run any more."""
        with self._alone.lock:
            if self._streams is not None:
                self._streams.device.close()
            inside = self._inside
            self._program, self._whole, self._streams, self.direct = None, None, None, None
            if inside is not None:
                inside.close()
            self._for_guarded = None
            self._alone.is_open = False
            self._parts.close()

    def _run_whole(
        self,
        model: Region,
        arrays: Sequence[np.ndarray],
        on: OnEngines | None = None,
        limit_s: float = math.inf,
    ) -> list[np.ndarray]:
        try:
            if on is None and limit_s < math.inf and isinstance(model, OnnxRuntimeRegion):
                return model.run_within(arrays, limit_s)
            if on is None:
                return model.run(arrays)
            return on.run_whole(model, arrays, self.plan.predicted_us, self._whole_by)
        except (DeadlinePassed, TookTooLong):
            raise
        except OpatlasError as error:
            raise ModelFailed(f"The model failed: {error}") from error
        finally:
            if on is not None and on.share.hangs:  # a thread is in it still
                self._for_guarded = None if model is self._for_guarded else self._for_guarded
                if model is self._whole:
                    self._leave_to(self._whole_model(self.graph.input_names))

    def _prefer_whole(self, arrays: Sequence[np.ndarray], error: Exception) -> None:
        """No kernel is to blame. If the whole model runs, it does so from now on; otherwise the inputs are to
        blame."""
        whole = self._given_model()
        self._run_whole(whole, arrays)
        log.warning("%s. The whole model runs in ONNX Runtime.", error)
        self._leave_to(whole, is_given=True)
        self._program, self.fallen_back = None, str(error)

    def leave(self, whole: OnnxRuntimeRegion, reason: str) -> None:
        """From now on that session runs the whole model as it was given. Current runs end first."""
        with self._alone.lock:
            if self._streams is not None:
                self._streams.device.close()
            self._streams = self._program = self._engine_steps = None
            self.peak_bytes, self._has_kernels, self.fallen_back = 0, False, reason
            self.plan = whole_plan(self.graph, self.plan.target, self.plan.setting)
            self._leave_to(whole, is_given=True)

    def _drop_revoked(self) -> None:
        runs = self._program if self._has_kernels else self._inside
        if runs is not None and (gone := self._revoked()) and not self.artifacts.isdisjoint(gone):
            runs.drop(gone)

    # ---- inputs and outputs -------------------------------------------------------------------------

    def _overridden(self, inputs: Mapping[str, Any]) -> bool:
        """Whether the inputs set a constant that is an input too, as ONNX allows."""
        extra = set(inputs) - set(self.graph.input_names)
        return bool(extra) and extra <= {value.name for value in self.graph.unlaid.model.graph.input}

    def _as_expected(self, inputs: Mapping[str, Any]) -> list[Any] | None:
        """Arrays that fit as they are, otherwise None. Written for speed: a model may take 0.1 ms."""
        expected = self._expected
        if expected is None or not fits(inputs, expected):
            return None
        return [inputs[name] for name, _, _ in expected]

    def _given(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        wanted = self.graph.input_names
        if set(inputs) != set(wanted):
            given = ", ".join(sorted(inputs)) or "none"
            raise UnexpectedInputs(f"The model takes the inputs {', '.join(wanted)}; {given} are given.")
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
                raise UnexpectedInputs(
                    f"Input '{name}' is {found[0]} {found[1]}; the model takes {wanted[0]} {wanted[1]}."
                )
        return array

    def _take(self, program: GraphProgram, arrays: Sequence[Any]) -> None:
        for number, array in zip(self.graph.inputs, arrays, strict=True):
            if number in program.fixed:
                program.arrays[0][number][...] = array
            else:
                program.arrays[0][number] = array

    def _leave_to(self, whole: Region, framework: str = DEFAULT, *, is_given: bool = False) -> None:
        """From now on that region runs the whole model; ``is_given``: in the form that the caller gave."""
        before = self._inside
        self._whole, self._whole_by = whole, framework
        if before is not None:
            self.direct = None
            before.close()
        if framework == DEFAULT and (is_given or not self._is_other_form):
            self._guard = self._for_guarded = None
        if (inside := self._inside) is not None:
            self.direct = InsideRuns(inside, self.graph, self._guard, self._revoked)
        else:
            self.direct = direct_runs(self.graph, whole, self._alone, self._guard)

    def _whole_model(self, inputs: Sequence[str]) -> Region:
        """The planned form in the default framework."""
        part = ModelPart.whole(self.graph.unlaid, inputs)
        return open_region(DEFAULT, part, self._threads, alone=True, exact=self._exact)


def _is_default(plan: ModelPlan) -> bool:
    return all(isinstance(step.by, ByFramework) and step.by.framework == DEFAULT for step in plan.steps)
