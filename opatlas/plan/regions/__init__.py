"""Nodes left to a framework: part or all of a model, behind one interface for every framework."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from opatlas.errors import LoadError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.graph.weights import is_external, serialisable
from opatlas.load.kernel import KernelFailed
from opatlas.load.onnxruntime_recipe import (
    ask_exact,
    bind_memory,
    quiet_options,
    resting_options,
    sleeping_options,
)
from opatlas.plan.limits import TookTooLong, run_within
from opatlas.plan.plan import ONE, RESTING, SLEEPING, PlanStep

DEFAULT = "onnxruntime"
LABELS = {
    DEFAULT: "ONNX Runtime",
    "openvino": "OpenVINO",
    "pytorch": "PyTorch eager",
    "torch.compile": "torch.compile",
    "xla": "XLA",
}
"""The frameworks' names for people (:data:`opatlas.plan.plan.FRAMEWORKS`)."""
COMPILED = ("torch.compile", "xla")
"""Frameworks that take seconds to minutes to load a model, and cache what they compiled."""
_MODULES = {"openvino": "openvino", "pytorch": "torch", "torch.compile": "torch", "xla": "jax"}
_REGIONS = {
    "openvino": ("opatlas.plan.regions.openvino", "OpenVinoRegion"),
    "pytorch": ("opatlas.plan.regions.torch", "EagerRegion"),
    "torch.compile": ("opatlas.plan.regions.torch", "CompiledRegion"),
    "xla": ("opatlas.plan.regions.xla", "XlaRegion"),
}


@dataclass(frozen=True)
class ModelPart:
    """Some or all nodes of a model: as an ONNX model of their own, and by their numbers in ``graph``.
    ``names``: inputs and outputs as ``model`` names them; the numbers are those of the values in the
    graph."""

    graph: ModelGraph
    model: onnx.ModelProto
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @classmethod
    def whole(cls, graph: ModelGraph, inputs: Sequence[str] | None = None) -> ModelPart:
        """The model as it was given. ``inputs``: its inputs by name, with constants that are inputs too."""
        names = tuple(inputs) if inputs is not None else graph.input_names
        nodes = tuple(range(len(graph.nodes)))
        return cls(graph, graph.model, nodes, graph.inputs, graph.outputs, names, graph.output_names)

    @classmethod
    def of_step(cls, graph: ModelGraph, step: PlanStep) -> ModelPart:
        """A step's nodes, with their weights inside."""
        model, inputs = graph.part(step.nodes, step.outputs, graph.evaluate(graph.constants_of(step.nodes)))
        names = graph.names
        return cls(
            graph, model, step.nodes, inputs, step.outputs,
            tuple(names[one] for one in inputs), tuple(names[one] for one in step.outputs),
        )  # fmt: skip

    def types(self, numbers: Sequence[int]) -> list[TensorType]:
        """The types of these values; :class:`LoadError` if one is no tensor of a known shape."""
        found = [self.graph.type_of(number) for number in numbers]
        known = [kind for kind in found if kind is not None]
        if len(known) < len(found):
            unknown = numbers[found.index(None)]
            raise LoadError(f"the shape of '{self.graph.names[unknown]}' is only known when the model runs")
        return known


class Region(Protocol):
    """A loaded part of a model. Both methods raise :class:`opatlas.load.kernel.KernelFailed` if a run
    fails."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One run over these arrays; outputs are new arrays."""

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        """A call that runs over fixed buffers, with no other work."""


def is_installed(framework: str) -> bool:
    """Whether a framework is installed; loads nothing."""
    return framework == DEFAULT or importlib.util.find_spec(_MODULES[framework]) is not None


def open_region(
    framework: str,
    part: ModelPart,
    threads: int,
    *,
    alone: bool = False,
    threading: str = SLEEPING,
    exact: bool = False,
) -> Region:
    """Load the part in a framework, on so many threads. ``alone``: nothing else computes between its runs, so
    its threads may keep spinning; otherwise ``threading`` says how ONNX Runtime uses them
    (:data:`opatlas.plan.plan.THREADING`). ``exact``: compute 8-bit products exactly, as far as it can
    (:func:`opatlas.load.onnxruntime_recipe.ask_exact`). Raises :class:`LoadError` if the framework refuses
    the part."""
    if framework == DEFAULT:
        names = (part.input_names, part.output_names)
        return OnnxRuntimeRegion(part.model, *names, threads, alone=alone, threading=threading, exact=exact)
    if not is_installed(framework):
        raise LoadError(f"{LABELS[framework]} is not installed")
    module, name = _REGIONS[framework]
    region: Region = getattr(importlib.import_module(module), name)(part, threads)
    return region


def open_session(model: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
    """A session on the CPU. Weights that protobuf cannot write in one piece are passed beside the model."""
    light, arrays = serialisable(model), []
    if light is not model:
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        names = [tensor.name for tensor in light.graph.initializer if is_external(tensor)]
        arrays = [ort.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(stored[name])) for name in names]
        options.add_external_initializers(names, arrays)
    session = ort.InferenceSession(light.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session._opatlas_weights = arrays  # it reads them where they are
    return session


_OPTIONS: Mapping[str, Callable[[int], ort.SessionOptions]] = {
    SLEEPING: sleeping_options,
    RESTING: resting_options,
    ONE: lambda threads: quiet_options(1),
}


class OnnxRuntimeRegion:
    """A part of a model in ONNX Runtime, with its weights. ``inputs`` and ``outputs``: their names there."""

    def __init__(
        self,
        model: onnx.ModelProto,
        inputs: Sequence[str],
        outputs: Sequence[str],
        threads: int,
        *,
        alone: bool = False,
        threading: str = SLEEPING,
        exact: bool = False,
    ) -> None:
        self._inputs, self._outputs = list(inputs), list(outputs)
        options = quiet_options(threads) if alone else _OPTIONS[threading](threads)
        if exact:
            ask_exact(options)
        try:
            self.session = open_session(model, options)
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise LoadError(f"ONNX Runtime refuses a part of the model: {first_line(error)}") from error

    @classmethod
    def around(cls, session: Any, inputs: Sequence[str], outputs: Sequence[str]) -> OnnxRuntimeRegion:
        """The region around a session that is loaded."""
        made = cls.__new__(cls)
        made._inputs, made._outputs, made.session = list(inputs), list(outputs), session
        return made

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            feed = dict(zip(self._inputs, inputs, strict=True))
            made: list[np.ndarray] = self.session.run(self._outputs, feed)
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error
        return made

    def run_within(self, inputs: Sequence[np.ndarray], seconds: float) -> list[np.ndarray]:
        """Like :meth:`run`, but ended after so many seconds with :class:`opatlas.plan.limits.TookTooLong`."""
        feed = dict(zip(self._inputs, inputs, strict=True))
        try:
            return run_within(self.session, self._outputs, feed, seconds)
        except TookTooLong:
            raise
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundRegion:
        named = (dict(zip(self._inputs, inputs, strict=True)), dict(zip(self._outputs, outputs, strict=True)))
        return self.bind_named(*named)

    def bind_named(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> BoundRegion:
        """Like :meth:`bind`, also for some of the outputs."""
        return BoundRegion(self.session, dict(inputs), dict(outputs))


class BoundRegion:
    """A session over fixed buffers."""

    def __init__(
        self, session: Any, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> None:
        self._keep = (session, inputs, outputs)
        self._binding = session.io_binding()
        for bind, arrays in ((self._binding.bind_input, inputs), (self._binding.bind_output, outputs)):
            for name, array in arrays.items():
                bind_memory(bind, name, array, array.dtype.name)
        self._run = session._sess.run_with_iobinding
        self._io = self._binding._iobinding

    def __call__(self) -> None:
        try:
            self._run(self._io, None)
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error
