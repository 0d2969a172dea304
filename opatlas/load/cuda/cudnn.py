"""Recipe ``cudnn graph``: one of the plans that cuDNN's heuristics offer for an operator.

It uses NVIDIA's own frontend, ``nvidia-cudnn-frontend``. The meaning of a plan's number depends on the device
and on both versions, so a recipe needs these exact versions.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from threading import Lock
from typing import Any

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.cuda.dnn_graph import DnnGraph, DnnStep, graph_of, results_of
from opatlas.load.cuda.driver import CudaDriver, DeviceFailed
from opatlas.load.cuda.module import DeviceKernel, LaunchTensors
from opatlas.load.cuda.nvidia_library import shared_library

MOST_PLANS = 32
MOST_WORKSPACE_BYTES = 256 << 20
ALIGNMENT = 256
ROUNDING = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
"""Notes of plans that round float32 inputs."""
_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


class CudnnLibrary:
    """The library, through ``frontend``, the module ``cudnn``. ``elsewhere``: properties of a device that is
    not here (``device_property`` and the like); plans can then be listed and built, but not run."""

    def __init__(self, frontend: Any, elsewhere: Mapping[str, Any] | None = None) -> None:
        self._frontend = frontend
        self._elsewhere = elsewhere
        self._handle = None
        if elsewhere is None:
            with _refusing():
                self._handle = frontend.create_handle()
        self._stream: int | None = None
        self._taken = Lock()

    def plan(self, graph: DnnGraph, number: int, strict: bool) -> CudnnPlan:
        """A plan that is ready to run; may compile. Plans are in the heuristics' order, the expected fastest
        first; an engine with the same knobs counts once; ``strict``: only plans that compute float32 as
        float32. Raises :class:`LoadError` if fewer are offered, or it cannot be built."""
        found = 0
        for found, build in enumerate(self.offers(graph, strict), 1):
            if found == number:
                return build()
        raise LoadError(f"cuDNN offers {found} plans here; this recipe wants number {number}")

    def offers(self, graph: DnnGraph, strict: bool) -> Iterator[Callable[[], CudnnPlan]]:
        """Builders, one for each offered plan."""
        frontend = self._frontend
        with _refusing():
            described, tensors = self._described(graph)
            described.validate()
            described.build_operation_graph()
            modes = frontend.heur_mode
            described.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
            if strict:
                notes = [getattr(frontend.numerical_note, name) for name in ROUNDING]
                described.deselect_numeric_notes(notes)
        seen = set()
        for index in range(described.get_execution_plan_count()):
            name = described.get_plan_name_at_index(index)
            if name in seen:
                continue
            seen.add(name)
            build = partial(self._built, described, tensors, index)
            if not strict:
                yield build
                continue
            try:  # which were deselected is said by building alone
                built = build()
            except LoadError:
                continue
            yield lambda built=built: built  # type: ignore[misc]

    def _built(self, described: Any, tensors: Mapping[int, Any], index: int) -> CudnnPlan:
        with _refusing():
            described.build_plan_at_index(index)
            return CudnnPlan(self, described, tensors, index)

    def _described(self, graph: DnnGraph) -> tuple[Any, Mapping[int, Any]]:
        """The graph in the frontend's terms, and the tensors with addresses, by number."""
        types, single = self._frontend.data_type, self._frontend.data_type.FLOAT
        here = {"handle": self._handle} if self._elsewhere is None else self._elsewhere
        made = self._frontend.pygraph(
            io_data_type=single, intermediate_data_type=single, compute_data_type=single, **here
        )
        known: dict[int, Any] = {}
        for number, tensor in enumerate(graph.tensors):
            if tensor.input is not None or tensor.constant is not None:
                known[number] = made.tensor(
                    dim=tensor.shape,
                    stride=tensor.strides,
                    data_type=getattr(types, _TYPES[tensor.dtype]),
                    is_pass_by_value=tensor.constant is not None,
                )
        for step in graph.steps:
            operands = {name: known[number] for name, number in step.tensors.items() if name != "y"}
            number = step.tensors["y"]
            tensor, result = graph.tensors[number], self._STEPS[step.kind](self, made, step, operands)
            result.set_dim(tensor.shape).set_stride(tensor.strides)
            result.set_data_type(getattr(types, _TYPES[tensor.dtype]))
            result.set_output(tensor.output is not None)
            known[number] = result
        return made, {number: one for number, one in known.items() if not graph.tensors[number].virtual}

    # Steps in the frontend's words.

    def _convolution(self, made: Any, step: DnnStep, of: Mapping[str, Any]) -> Any:
        numbers = step.numbers
        told = {
            "pre_padding": numbers["before"],
            "post_padding": numbers["after"],
            "stride": numbers["strides"],
            "dilation": numbers["dilations"],
        }
        if step.kind == "transposed":
            return made.conv_dgrad(loss=of["x"], filter=of["w"], **told)
        return made.conv_fprop(image=of["x"], weight=of["w"], **told)

    def _pointwise(self, made: Any, step: DnnStep, of: Mapping[str, Any]) -> Any:
        told = {name: number for name, number in step.numbers.items() if name != "mode"}
        return getattr(made, step.numbers["mode"])(*of.values(), **told)

    def _norm(self, made: Any, step: DnnStep, of: Mapping[str, Any]) -> Any:
        phase = self._frontend.norm_forward_phase.INFERENCE  # nothing is kept for a backward pass
        function = {"layer": made.layernorm, "rms": made.rmsnorm}[step.numbers["of"]]
        result, *_ = function(
            norm_forward_phase=phase, input=of["x"], **{name: one for name, one in of.items() if name != "x"}
        )
        return result

    def _product(self, made: Any, step: DnnStep, of: Mapping[str, Any]) -> Any:
        return made.matmul(of["a"], of["b"])

    def _attention(self, made: Any, step: DnnStep, of: Mapping[str, Any]) -> Any:
        told = {"attn_scale": step.numbers["scale"], "generate_stats": False}
        if step.numbers["causal"]:
            alignment = self._frontend.diagonal_alignment.TOP_LEFT
            told |= {"diagonal_alignment": alignment, "diagonal_band_right_bound": 0}
        result, *_ = made.sdpa(**of, **told)
        return result

    _STEPS: Mapping[str, Callable[..., Any]] = {
        "attention": _attention,
        "convolution": _convolution,
        "norm": _norm,
        "pointwise": _pointwise,
        "product": _product,
        "transposed": _convolution,
    }

    def execute(self, plan: CudnnPlan, addresses: Mapping[int, int], workspace: int, stream: int) -> None:
        with self._taken, _failing():  # the handle is one thread's until it has launched
            if stream != self._stream:
                self._frontend.set_stream(self._handle, stream)
                self._stream = stream
            plan.described.execute_plan_at_index(addresses, workspace, plan.index, self._handle)


class CudnnPlan:
    """A plan of :class:`CudnnLibrary`."""

    def __init__(self, library: CudnnLibrary, described: Any, tensors: Mapping[int, Any], index: int) -> None:
        self._library, self.described, self.index = library, described, index
        self._numbers = {number: int(one.get_uid()) for number, one in tensors.items()}
        self.workspace_bytes = int(described.get_workspace_size_plan_at_index(index))

    def runner(self, addresses: Mapping[int, int], workspace: int) -> Callable[[int], None]:
        """A launch into a given stream; returns at once. ``addresses``: those of the graph's non-virtual
        tensors, by number."""
        told = {self._numbers[number]: address for number, address in addresses.items()}
        return partial(self._library.execute, self, told, workspace)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the frontend's errors share no base but Exception
        raise LoadError(f"cuDNN has no plan for it: {first_line(error)}"[:300]) from error


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # as above
        raise DeviceFailed(f"cuDNN cannot run it: {first_line(error)}"[:300]) from error


@cache
def open_library() -> CudnnLibrary:
    """Raises :class:`LoadError` where it is not installed. Initialises CUDA."""
    return CudnnLibrary(frontend())


def frontend() -> Any:
    """NVIDIA's frontend, over the library that PyTorch installs; raises :class:`LoadError`."""
    shared_library("cudnn", "cuDNN")  # found by the frontend by its name once it is loaded
    try:
        return importlib.import_module("cudnn")
    except (ImportError, OSError) as error:
        raise LoadError(f"needs nvidia-cudnn-frontend: {first_line(error, 200)}") from error


class CudnnKernel(DeviceKernel):
    """One plan of it for one operator."""

    loads_late = True

    def __init__(
        self,
        operator: Operator,
        recipe: Mapping[str, Any],
        driver: CudaDriver | None = None,
        library: CudnnLibrary | None = None,
    ) -> None:
        self._graph = graph_of(operator)
        super().__init__(operator, driver, graphs=bool(recipe["graphs"]), alignment=ALIGNMENT)
        self.results = results_of(operator, self._graph)
        strict = self._graph.dtype == "float32" and not recipe["tf32"]
        self._plan = (library or open_library()).plan(self._graph, int(recipe["plan"]), strict)
        self.workspace_bytes = self._plan.workspace_bytes
        if self.workspace_bytes > MOST_WORKSPACE_BYTES:
            raise LoadError(
                f"this plan wants a workspace of {self.workspace_bytes >> 20} MiB; "
                f"at most {MOST_WORKSPACE_BYTES >> 20} are given"
            )
        self._numbers = {
            number: ctypes.c_float(tensor.constant)
            for number, tensor in enumerate(self._graph.tensors)
            if tensor.constant is not None
        }

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        self._must_be_open()
        addresses: dict[int, int] = {}
        for number, tensor in enumerate(self._graph.tensors):
            if tensor.input is not None:
                addresses[number] = tensors.inputs[tensor.input].address
            elif tensor.output is not None:
                addresses[number] = tensors.outputs[tensor.output].address
            elif number in self._numbers:
                addresses[number] = ctypes.addressof(self._numbers[number])  # read on the host
        run = self._plan.runner(addresses, tensors.workspace.address)
        return [lambda: run(self.driver.stream)]


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> CudnnKernel:
    """The kernel of an allowed recipe."""
    return CudnnKernel(operator, recipe)
