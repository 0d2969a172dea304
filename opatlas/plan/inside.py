"""Runs a plan in one session of ONNX Runtime, with its kernels as operators there. Nothing is handed over
between steps, and there is one set of threads."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from opatlas.errors import LoadError, first_line
from opatlas.graph.fused import operator_of
from opatlas.graph.linked import NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.weights import weight_bytes
from opatlas.inside.blocks import OptimisedModel, block_size
from opatlas.inside.handed import HandedKernels
from opatlas.inside.nodes import Body, KernelNode, KernelNodes, model_with
from opatlas.inside.over_inputs import is_pointwise, may_write_over
from opatlas.load.c_abi import CKernel
from opatlas.load.kernel import KernelFailed, KernelWatch, LoadedKernel
from opatlas.load.onnxruntime_recipe import ask_exact, quiet_options
from opatlas.memory import lacking
from opatlas.plan.node_names import own_place, places_of
from opatlas.plan.plan import ByBodies, ByKernel, ModelPlan, PlanStep
from opatlas.plan.regions import OnnxRuntimeRegion, open_session

log = logging.getLogger("opatlas")
Load = Callable[[ByKernel], LoadedKernel]
Failed = Callable[[PlanStep, Exception], None]
PROFILED_RUNS, WARMING_RUNS = 5, 2
COPIES = 4
"""Of the weights, while a session is made: as the model has them, as bytes, as ONNX Runtime optimises them
and as it keeps them."""


class InsideModel:
    """A region that is the whole model, by a plan that was checked. ``load`` and ``failed`` are those of an
    executor. If a kernel cannot be loaded, fails or is dropped, the session is made again with ONNX Runtime's
    own node in its place. Any other failure raises :class:`opatlas.load.kernel.KernelFailed`."""

    def __init__(
        self,
        graph: ModelGraph,
        plan: ModelPlan,
        load: Load,
        threads: int,
        *,
        failed: Failed | None = None,
        exact: bool = False,
    ) -> None:
        self._graph, self._plan, self._load, self._threads = graph, plan, load, threads
        self._failed, self._exact = failed, exact
        self._nodes = {number for step in plan.steps for number in step.nodes}
        self._given_up: set[NodePath] = set()
        self._opened: _Opened | None = self._open()
        self._is_untried, self._why_closed = True, "the model was closed"

    @property
    def artifacts(self) -> frozenset[str]:
        """Artifacts of all kernels that run."""
        return frozenset(by.artifact for by in self.kernels)

    @property
    def kernels(self) -> list[ByKernel]:
        """What runs by kernels now, step by step."""
        return [one.by for one in self._running()]

    def _running(self) -> list[_HandedStep]:
        opened = self._opened
        return [one for one in opened.order if one.at not in self._given_up] if opened is not None else []

    def settled(self) -> OnnxRuntimeRegion | None:
        """The session, for callers that run it themselves: once its kernels have run well, while none has
        failed. It is another one after a kernel was replaced."""
        opened = self._opened
        if opened is None or self._is_untried or opened.kernels.has_failed:
            return None
        return opened.region

    def has_changed(self, region: OnnxRuntimeRegion) -> bool:
        """Whether the session differs from what :meth:`settled` returned."""
        opened = self._opened
        return opened is None or opened.region is not region or opened.kernels.has_failed

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        while True:
            self._give_up_failed()  # in a run that went straight to the session
            opened = self._opened
            if opened is None:
                raise KernelFailed(self._why_closed)
            try:
                with opened.trying() if self._is_untried else contextlib.nullcontext():
                    made = opened.region.run(inputs)
                if self._is_untried:
                    self._is_untried = False
                    for one in self._running():
                        if one.watch is not None:
                            one.watch.went_well()
                return made
            except KernelFailed:
                if not opened.kernels.has_failed:
                    raise

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        if self._opened is None:
            raise KernelFailed(self._why_closed)
        return self._opened.region.bind(inputs, outputs)

    def drop(self, gone: Set[str]) -> None:
        """What runs by one of these artifacts goes over to ONNX Runtime's own nodes."""
        if not (running := [one for one in self._running() if one.by.artifact in gone]):
            return
        for one in running:
            self._give_up(one, LoadError("it was revoked"))
        try:
            self._reopen()
        except KernelFailed as error:  # which the next run fails by
            self._let_go(None)
            self._why_closed = str(error)

    def profile(self, inputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """ONNX Runtime's profile of a few runs, without the first, in a separate session. If a kernel fails
        there it is replaced, and profiling starts again."""
        given, before = [inputs[name] for name in self._graph.input_names], len(self._given_up)
        with tempfile.TemporaryDirectory() as folder:
            opened = self._open(str(Path(folder) / "profile"))
            kernels, events = opened.kernels, list[dict[str, Any]]()
            try:
                with opened.trying():
                    for _ in range(WARMING_RUNS + PROFILED_RUNS):
                        opened.region.run(given)
                events = json.loads(Path(opened.region.session.end_profiling()).read_text())
            except KernelFailed:
                if not self._tell_failed(opened):
                    raise
            finally:
                del opened
                kernels.close()
        if len(self._given_up) > before:
            self._reopen()
            return self.profile(inputs)
        runs = sorted(one["ts"] for one in events if one.get("name") == "model_run")
        return [one for one in events if one.get("ts", 0) >= runs[WARMING_RUNS]]

    def close(self) -> None:
        """Let go of the session and its kernels."""
        self._let_go(None)

    # ---- what fails ---------------------------------------------------------------------------------

    def _give_up_failed(self) -> None:
        if self._opened is not None and self._tell_failed(self._opened):
            self._reopen()

    def _tell_failed(self, opened: _Opened) -> bool:
        """Of what has failed in a session, that gives way; whether there is any."""
        failed = opened.kernels.failed()
        for number, said in failed.items():
            opened.order[number].tell(said)
            self._give_up(opened.order[number], KernelFailed(f"the kernel failed: {said}"))
        return bool(failed)

    def _give_up(self, one: _HandedStep, error: Exception) -> None:
        self._given_up.add(one.at)
        # Which kernels take blocks, and where, only a try tells: most do not.
        level = logging.INFO if one.by.layout and isinstance(error, LoadError) else logging.WARNING
        log.log(level, "%s cannot run in a model: %s. Its nodes run by ONNX Runtime.", one.by.said, error)
        if self._failed is not None:
            self._failed(one.step, error)

    def _reopen(self) -> None:
        try:
            self._let_go(self._open())
        except LoadError as error:
            raise KernelFailed(str(error)) from error
        self._is_untried = True

    def _let_go(self, instead: _Opened | None) -> None:
        """Of what is open: a run that is under way has it still, and its kernels with it."""
        kernels = self._opened.kernels if self._opened is not None else None
        self._opened = instead
        if kernels is not None:
            kernels.close()

    # ---- making the session -------------------------------------------------------------------------

    def _open(self, profile: str = "") -> _Opened:
        """Open a session with the remaining kernels; ``profile``: where a profiler writes."""
        if reason := lacking(COPIES * weight_bytes(self._graph.model)):
            raise LoadError(reason)
        while True:
            opened = _Opened()
            try:
                model = model_with(
                    self._graph, self._nodes, self._hand_over(opened, self._graph, self._plan.steps)
                )
                options = self._options()
                if opened.blocked:
                    model = self._in_blocks(model, opened)
                    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
                if profile:
                    options.enable_profiling, options.profile_file_prefix = True, profile
                session = opened.session(model, options)
                session._model_bytes = None  # weights, which nobody reads again
                names = self._graph.input_names, self._graph.output_names
                opened.region = OnnxRuntimeRegion.around(session, *names)
                return opened
            except Exception as error:  # whatever ONNX Runtime raises
                failed = opened.kernels.failed()
                opened.kernels.close()
                if not failed and isinstance(error, LoadError):
                    raise
                if not failed:
                    raise LoadError(f"ONNX Runtime refuses the model: {first_line(error)}") from error
                for number, said in failed.items():
                    opened.order[number].tell(said)
                    refused = LoadError(f"the kernel refuses its constants: {said}")
                    self._give_up(opened.order[number], refused)

    def _hand_over(
        self, to: _Opened, graph: ModelGraph, steps: Sequence[PlanStep], within: NodePath = ()
    ) -> KernelNodes:
        """A graph's kernels, but for what is then ``blocked``; what cannot be handed over gives way."""
        own: list[KernelNode] = []
        bodies: dict[Body, KernelNodes] = {}
        for step in steps:
            at = (*within, step.nodes[-1])
            if isinstance(step.by, ByBodies):
                for which, (body, plan) in enumerate(
                    zip(graph.nodes[step.nodes[0]].bodies, step.by.plans, strict=True)
                ):
                    bodies[step.nodes[0], which] = self._hand_over(to, body.graph, plan.steps, (*at, which))
            elif isinstance(step.by, ByKernel) and at not in self._given_up:
                one = _HandedStep(at, step, step.by)
                if not (name := self._hand_one(to, graph, one)):
                    continue
                node = KernelNode(step.nodes, name, step.by.tensors, step.outputs)
                if one.by.layout:
                    to.blocked.append((node, one))
                else:
                    own.append(node)
        return KernelNodes(tuple(own), bodies)

    def _hand_one(self, to: _Opened, graph: ModelGraph, one: _HandedStep) -> str:
        """What the kernel is called in the model; "" where it cannot be in it."""
        kernel: Any = None
        try:
            kernel = self._load(one.by)
            if (code_of := getattr(kernel, "code", None)) is None:
                raise LoadError("it is no compiled kernel")
            one.watch = getattr(kernel, "watch", None)
            block, name = _block(one), f"{one.by.artifact}.{'.'.join(map(str, one.at))}"
            operator = operator_of(graph, one.step.nodes, one.step.outputs).operator  # the plan was checked
            with one.trying():
                code = code_of()
                over = not block and _may_write_over(graph, one, kernel)
            to.kernels.add(name, operator, kernel, code, may_write_over=over, block=block)
        except Exception as error:
            if kernel is not None:
                kernel.close()
            self._give_up(one, error)
            return ""
        to.order.append(one)
        return name

    def _options(self) -> ort.SessionOptions:
        options = quiet_options(self._threads)
        if self._exact:
            ask_exact(options)
        return options

    def _in_blocks(self, model: onnx.ModelProto, opened: _Opened) -> onnx.ModelProto:
        """The model as ONNX Runtime optimises it for this machine, with the kernels in it that take blocks;
        what does not fit gives way."""
        options = self._options()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "optimised.onnx"
            options.optimized_model_filepath = str(path)
            opened.session(model, options)
            optimised = OptimisedModel(self._graph, onnx.load(path), places_of(self._graph, own_place))
        fitting = []
        for kernel, one in opened.blocked:
            if why := optimised.why_not(kernel, block_size()):
                self._give_up(one, LoadError(why))
            else:
                fitting.append(kernel)
        optimised.replace(fitting, block_size())
        return optimised.model


@dataclass(eq=False)
class _HandedStep:
    """A kernel's step that was handed over; ``at``: where the last of its nodes is."""

    at: NodePath
    step: PlanStep
    by: ByKernel
    watch: KernelWatch | None = None

    def trying(self) -> contextlib.AbstractContextManager[None]:
        return self.watch.trying() if self.watch is not None else contextlib.nullcontext()

    def tell(self, said: str) -> None:
        if self.watch is not None:
            self.watch.failed("run", "KernelFailed", f"the kernel failed: {said}")


class _Opened:
    """A session (``region``), and before it is made its kernels: all that are handed over in their
    ``order``, and those ``blocked`` that read and write blocks of channels."""

    region: OnnxRuntimeRegion

    def __init__(self) -> None:
        self.kernels = HandedKernels()
        self.order: list[_HandedStep] = []
        self.blocked: list[tuple[KernelNode, _HandedStep]] = []

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in {one.by.artifact: one for one in self.order}.values():
                stack.enter_context(one.trying())
            yield

    def session(self, model: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
        """Of a model with the kernels."""
        if self.order:
            self.kernels.register(options)
        with self.trying():
            return open_session(model, options)


def _block(one: _HandedStep) -> int:
    if one.by.layout and not block_size():
        raise LoadError("ONNX Runtime has no blocks of channels on this processor")
    return block_size() if one.by.layout else 0


def _may_write_over(graph: ModelGraph, one: _HandedStep, kernel: Any) -> bool:
    compiled = getattr(kernel, "compiled", kernel)
    if not isinstance(compiled, CKernel) or not is_pointwise(compiled.operator):
        return False
    weights = graph.evaluate(graph.constants_of(one.step.nodes))
    value_of = dict(zip(compiled.operator.tensor_inputs, one.by.tensors, strict=True))
    constants = {
        number: np.asarray(weights[value_of[number]], order="C")
        for number in compiled.operator.constant_inputs
    }
    return may_write_over(compiled, constants)
