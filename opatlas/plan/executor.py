"""Runs a plan: buffers shared by lifetime, outputs written into the next step's inputs, constants prepared
once, and a part that fails replaced by the default."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import CallerError, LoadError, OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import Operator
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype
from opatlas.load.kernel import LoadedKernel, binds_outputs
from opatlas.plan.arena import ALIGNMENT, Lifetime, place
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan, PlanStep
from opatlas.plan.regions import DEFAULT, ModelPart, Region, open_region

log = logging.getLogger("opatlas")
_NAMES = {code: name for name, code in CODES.items() if name in ONNX_NUMBER}


class ModelFailed(OpatlasError):
    """A model that could not be run, by the default either; says which node and why."""


class _PartFailed(ModelFailed):
    """A region failed: a part, or the model."""


@dataclass(frozen=True)
class StepTime:
    """What one step took in a profiled run, in microseconds."""

    step: PlanStep
    us: float


Load = Callable[[ByKernel], LoadedKernel]
"""A kernel's implementation, loaded anew for each step: it keeps that step's weights."""


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
        self._load, self._threads = load, threads
        self._failed, self._revoked = failed, revoked
        self._lock = threading.Lock()
        self._whole: Region | None = None
        self._whole_by = DEFAULT
        self._arrays: dict[int, np.ndarray] = {}
        self._kernels: list[LoadedKernel] = []
        self.calls: list[Callable[[], None]] = []
        self._live = {
            number: step.by.artifact
            for number, step in enumerate(plan.steps)
            if isinstance(step.by, ByKernel)
        }  # artifacts by step, of those that did not go over to the default
        self.fallen_back = ""  # why the whole model runs in the default, though the plan says otherwise
        self._is_open = True
        self.peak_bytes = 0
        if len(plan.steps) == 1 and not self._live:
            by = plan.steps[0].by
            self._whole_by = by.framework if isinstance(by, ByFramework) else DEFAULT
            self._whole = open_region(self._whole_by, ModelPart.whole(graph), threads, alone=True)
            return
        self._allocate()
        self._arrays |= self._values_of(number for number in graph.outputs if graph.is_constant(number))
        self.calls = [self._prepared(number) for number in range(len(plan.steps))]

    # ---- running ------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The model's outputs, in its order. Raises :class:`opatlas.errors.CallerError` for inputs of another
        name, shape or type, :class:`ModelFailed` where the default fails as well."""
        with self._lock:
            self._check_open()
            if self._overridden(inputs):
                return self._run_whole(self._whole_model(tuple(inputs)), list(inputs.values()))
            arrays = self._given(inputs)
            self._drop_revoked()
            if self._whole is None:
                try:
                    self._take(arrays)
                    self._run_all()
                    return self._outputs()
                except _PartFailed as error:
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
        with self._lock:
            self._check_open()
            arrays = self._given(inputs)
            self._drop_revoked()
            if self._whole is not None:
                start = time.perf_counter_ns()
                self._run_whole(self._whole, arrays)
                return [StepTime(self.plan.steps[0], (time.perf_counter_ns() - start) / 1e3)]
            self._take(arrays)
            times = []
            for number, step in enumerate(self.plan.steps):
                start = time.perf_counter_ns()
                self._run_step(number)
                times.append(StepTime(step, (time.perf_counter_ns() - start) / 1e3))
            return times

    def close(self) -> None:
        """Let go of kernels and buffers; it cannot be run any more."""
        with self._lock:
            self.calls, self._arrays, self._whole, self._is_open = [], {}, None, False
            for kernel in self._kernels:
                kernel.close()
            self._kernels = []

    def _check_open(self) -> None:
        if not self._is_open:
            raise CallerError("The model was closed: make it anew.")

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
        self._whole, self._whole_by, self._live = whole, DEFAULT, {}
        self.fallen_back = str(error)

    def _run_all(self) -> None:
        first = 0
        while first < len(self.calls):
            number = first
            try:
                for number, call in enumerate(self.calls[first:] if first else self.calls, first):  # noqa: B007
                    call()
                return
            except Exception as error:
                self._fall_back(number, error)
                first = number

    def _run_step(self, number: int) -> None:
        try:
            self.calls[number]()
        except Exception as error:
            self._fall_back(number, error)
            self._run_step(number)

    def _fall_back(self, number: int, error: Exception) -> None:
        """The step's nodes go over to the default, for good; inputs are as they were."""
        step = self.plan.steps[number]
        if number not in self._live:
            label = self.graph.nodes[step.nodes[0]].proto.op_type
            raise _PartFailed(f"The model failed at node {step.nodes[0]} ({label}): {error}") from error
        self.calls[number] = self._region(step)
        self._give_up(number, error)

    def _give_up(self, number: int, error: Exception) -> None:
        step = self.plan.steps[number]
        del self._live[number]
        log.warning("%s cannot run in a model: %s. Its nodes run by ONNX Runtime.", step.by.said, error)
        if self._failed is not None:
            self._failed(step, error)

    def _drop_revoked(self) -> None:
        if not self._live or (gone := self._revoked()).isdisjoint(self._live.values()):
            return
        for number, artifact in list(self._live.items()):
            if artifact in gone:
                self._fall_back(number, LoadError("it was revoked"))

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
        if kind.element in _NAMES:
            dtype = numpy_dtype(_NAMES[kind.element])
            if array.dtype != dtype or array.shape != kind.shape:
                found, wanted = (array.dtype, list(array.shape)), (dtype, list(kind.shape))
                raise CallerError(
                    f"Input '{name}' is {found[0]} {found[1]}; the model takes {wanted[0]} {wanted[1]}."
                )
        return array

    def _take(self, arrays: Sequence[np.ndarray]) -> None:
        for number, array in zip(self.graph.inputs, arrays, strict=True):
            if number in self._fixed:
                self._arrays[number][...] = array
            else:
                self._arrays[number] = array

    def _outputs(self) -> list[np.ndarray]:
        return [_copied(self._arrays[number]) for number in self.graph.outputs]

    # ---- preparing ----------------------------------------------------------------------------------

    def _whole_model(self, inputs: Sequence[str]) -> Region:
        """In the default framework."""
        return open_region(DEFAULT, ModelPart.whole(self.graph, inputs), self._threads, alone=True)

    def _allocate(self) -> None:
        """One buffer for all values whose size is known."""
        lives: dict[int, Lifetime] = {}
        end = len(self.plan.steps)
        last = dict.fromkeys(self.graph.outputs, end)
        for at, step in enumerate(self.plan.steps):
            for number in self._reads(step):
                last[number] = max(last.get(number, -1), at)
        made = dict.fromkeys(self.graph.inputs, -1)
        made |= {number: at for at, step in enumerate(self.plan.steps) for number in step.outputs}
        for number, at in made.items():
            kind = self.graph.type_of(number)
            if kind is not None and kind.element in _NAMES and not self.graph.is_constant(number):
                lives[number] = Lifetime(at, last.get(number, at), kind.size * _dtype(kind).itemsize)
        offsets, self.peak_bytes = place(lives)
        raw = np.empty(self.peak_bytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        for number, offset in offsets.items():
            kind = self.graph.type_of(number)
            assert kind is not None
            bytes_ = raw[start + offset : start + offset + lives[number].size]
            self._arrays[number] = bytes_.view(_dtype(kind)).reshape(kind.shape)
        self._fixed = frozenset(offsets)

    def _values_of(self, constants: Iterable[int]) -> dict[int, np.ndarray]:
        found = self.graph.evaluate(tuple(constants))
        return {number: np.asarray(value, order="C") for number, value in found.items()}

    def _reads(self, step: PlanStep) -> frozenset[int]:
        """Values that are made before the step and read in it."""
        nodes = [self.graph.nodes[number] for number in step.nodes]
        made = frozenset().union(*(node.makes for node in nodes))
        return frozenset().union(*(node.reads for node in nodes)) - made

    def _prepared(self, number: int) -> Callable[[], None]:
        step = self.plan.steps[number]
        if not isinstance(step.by, ByKernel):
            return self._region(step)
        try:
            return self._kernel(step, step.by)
        except Exception as error:
            self._give_up(number, error)
            return self._region(step)

    def _kernel(self, step: PlanStep, by: ByKernel) -> Callable[[], None]:
        kernel = self._load(by)
        self._kernels.append(kernel)
        found = self.graph.operator(step.nodes[0])
        assert found is not None  # the plan was checked
        operator: Operator = found[0].operator
        value_of = dict(zip(operator.tensor_inputs, by.tensors, strict=True))
        weights = self._values_of(self.graph.constants_of(step.nodes))
        kernel.prepare({number: weights[value_of[number]] for number in operator.constant_inputs})
        inputs = {number: self._arrays[value_of[number]] for number in operator.runtime_inputs}
        outputs = [self._arrays[number] for number in step.outputs]
        if binds_outputs(kernel):
            return kernel.bind(inputs, outputs)
        bound = kernel.bind(inputs)

        def call() -> None:
            bound()
            for output, made in zip(outputs, bound.outputs(), strict=True):
                output[...] = made

        return call

    def _region(self, step: PlanStep) -> Callable[[], None]:
        part = ModelPart.of_step(self.graph, step)
        by = step.by.framework if isinstance(step.by, ByFramework) else DEFAULT
        region, inputs = open_region(by, part, self._threads), part.inputs
        if self._fixed.issuperset((*inputs, *step.outputs)):
            buffers = self._arrays
            return region.bind([buffers[one] for one in inputs], [buffers[one] for one in step.outputs])

        def call() -> None:
            arrays = self._arrays
            for number, made in zip(step.outputs, region.run([arrays[one] for one in inputs]), strict=True):
                if number in self._fixed:
                    arrays[number][...] = made
                else:
                    arrays[number] = made

        return call


def _copied(value: Any) -> Any:
    """The caller's own; a sequence element by element."""
    return [_copied(one) for one in value] if isinstance(value, list) else np.array(value)


def _dtype(kind: TensorType) -> np.dtype:
    return numpy_dtype(_NAMES[kind.element])
