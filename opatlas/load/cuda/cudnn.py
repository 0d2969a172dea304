"""Recipe ``cudnn graph``: one of the plans that cuDNN's heuristics offer for an operator.

By the library's C interface for graphs. Which plan a number means depends on the library's version, which a
recipe therefore needs exactly, and on the device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any, Protocol

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.cuda.cudnn_names import (
    ATTRIBUTE,
    DATA_TYPES,
    DESCRIPTOR,
    ENUM,
    HEURISTICS,
    NORMS,
    NOTES,
    POINTWISE_MODES,
    POOLINGS,
)
from opatlas.load.cuda.dnn_graph import DnnGraph, DnnStep, DnnTensor, graph_of, results_of
from opatlas.load.cuda.driver import CudaDriver, DeviceFailed
from opatlas.load.cuda.module import DeviceKernel, LaunchTensors
from opatlas.load.cuda.nvidia_library import NvidiaLibrary, shared_library

MOST_PLANS = 32
MOST_WORKSPACE_BYTES = 256 << 20
ALIGNMENT = 256
_REFUSED = range(2000, 4000)
"""What is no failure of the device: parameters that do not fit, and what is not supported."""


@dataclass(frozen=True)
class OfferedPlan:
    """An engine with its knobs, as a heuristic proposes it."""

    engine: int
    knobs: tuple[tuple[int, int], ...]
    notes: frozenset[str] = frozenset()
    handle: Any = field(default=None, compare=False)

    @property
    def identity(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        return self.engine, self.knobs

    def strict(self) -> bool:
        """Whether it computes float32 as float32: no tensor cores, which would round what they are given."""
        return not self.notes & {"tensor core", "down convert"}


class GraphLibrary(Protocol):
    """What is used of cuDNN."""

    def plans(self, graph: DnnGraph) -> Iterator[OfferedPlan]:
        """What each heuristic offers, one after another, the one that should be fastest first; an engine with
        the same knobs more than once. Raises :class:`LoadError` where it knows no such graph."""
        ...

    def built(self, plan: OfferedPlan) -> BuiltPlan:
        """Ready to run; :class:`LoadError` where it cannot after all. May compile."""
        ...


class BuiltPlan(Protocol):
    workspace_bytes: int

    def runner(self, addresses: Mapping[int, int], workspace: int) -> Callable[[int], None]:
        """A launch into the stream that it is given; returns at once. ``addresses`` are those of the graph's
        tensors that are inputs or outputs, by their number."""
        ...


def offered(library: GraphLibrary, graph: DnnGraph, tf32: bool) -> list[OfferedPlan]:
    """Each once, in the library's order: what a recipe's number counts."""
    found: dict[Any, OfferedPlan] = {}
    for plan in library.plans(graph):
        if graph.dtype != "float32" or tf32 or plan.strict():
            found.setdefault(plan.identity, plan)
    return list(found.values())[:MOST_PLANS]


class Descriptor:
    """One of the library's objects: set, then finished. Keeps alive what it was told of."""

    def __init__(self, calls: _Calls, kind: str) -> None:
        self._calls, self._told = calls, []  # type: ignore[var-annotated]
        self.pointer = ctypes.c_void_p()
        try:
            calls.ask("cudnnBackendCreateDescriptor", DESCRIPTOR[kind], ctypes.byref(self.pointer))
        except DeviceFailed as error:
            raise LoadError(f"this cuDNN knows no {kind}: {error}") from error
        weakref.finalize(self, calls.forget, self.pointer.value).atexit = False

    def set(self, attribute: str, kind: str, *values: Any) -> None:
        ctype = _C_TYPES.get(kind, ctypes.c_int)
        array = (ctype * len(values))(*(one.pointer if kind == "descriptor" else one for one in values))
        self._told.append((array, values))
        number, count = ATTRIBUTE[attribute], ctypes.c_int64(len(values))
        self._calls.ask("cudnnBackendSetAttribute", self.pointer, number, ENUM[kind], count, array)

    def finish(self) -> Descriptor:
        self._calls.ask("cudnnBackendFinalize", self.pointer)
        return self

    def count(self, attribute: str, kind: str) -> int:
        found = ctypes.c_int64()
        self._calls.ask(
            "cudnnBackendGetAttribute",
            self.pointer,
            ATTRIBUTE[attribute],
            ENUM[kind],
            ctypes.c_int64(0),
            ctypes.byref(found),
            None,
        )
        return found.value

    def get(self, attribute: str, kind: str, of: str = "") -> list[Any]:
        """All values; descriptors are made anew, ``of`` this kind."""
        size, found = self.count(attribute, kind), ctypes.c_int64()
        ctype = _C_TYPES.get(kind, ctypes.c_int)
        made = [Descriptor(self._calls, of) for _ in range(size)] if of else []
        array = (ctype * size)(*(one.pointer for one in made))
        self._calls.ask(
            "cudnnBackendGetAttribute",
            self.pointer,
            ATTRIBUTE[attribute],
            ENUM[kind],
            ctypes.c_int64(size),
            ctypes.byref(found),
            array,
        )
        for one in made:
            one._told.append(self)  # what belongs to it
        return list(made or array)[: found.value]


_C_TYPES: Mapping[str, Any] = {
    "int64": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "pointer": ctypes.c_void_p,
    "handle": ctypes.c_void_p,
    "descriptor": ctypes.c_void_p,
    "char": ctypes.c_char,
}
"""The rest are enumerations."""


class _Calls(NvidiaLibrary):
    """The library's functions; what they refuse is told with its own words."""

    title = "cuDNN"

    def ask(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            said = ctypes.create_string_buffer(2000)
            self._library.cudnnGetLastErrorString(said, ctypes.c_size_t(len(said)))
            words = f"{self.title} answers {status} to {function}: {said.value.decode(errors='replace')}"
            if status in _REFUSED:
                raise LoadError(first_line(Exception(words), 300))
            raise DeviceFailed(first_line(Exception(words), 300))

    def forget(self, pointer: int | None) -> None:
        self._library.cudnnBackendDestroyDescriptor(ctypes.c_void_p(pointer))


class CudnnLibrary:
    """The library itself. Every call may raise :class:`DeviceFailed`. ``properties``: of a device that is not
    here, as the library describes devices; then plans can be looked at, and not run."""

    def __init__(self, library: Any, properties: str = "") -> None:
        self._calls = _Calls(library)
        self._handle = ctypes.c_void_p()
        self._elsewhere: Descriptor | None = None
        if properties:
            described = properties.encode()
            self._elsewhere = Descriptor(self._calls, "device properties")
            self._elsewhere.set("device properties", "char", *(bytes([byte]) for byte in described))
            self._elsewhere.finish()
        else:
            self._calls.ask("cudnnCreate", ctypes.byref(self._handle))
        self._stream: int | None = None
        self._taken = Lock()

    def plans(self, graph: DnnGraph) -> Iterator[OfferedPlan]:
        described = self.described(graph)
        refused: list[str] = []
        offers = 0
        for mode in HEURISTICS.values():
            try:
                for configuration in self._proposed(described, mode):
                    yield self._offered(configuration)
                    offers += 1
            except LoadError as error:
                refused.append(str(error))
        if not offers:
            raise LoadError(f"cuDNN has no plan for it: {(refused or ['none is offered'])[0]}"[:300])

    def _proposed(self, described: Descriptor, mode: int) -> list[Descriptor]:
        heuristic = Descriptor(self._calls, "heuristic")
        heuristic.set("heuristic graph", "descriptor", described)
        heuristic.set("heuristic mode", "heuristic mode", mode)
        self._here(heuristic, "", "heuristic device")
        heuristic.finish()
        return heuristic.get("heuristic results", "descriptor", "configuration")

    def _offered(self, configuration: Descriptor) -> OfferedPlan:
        (engine,) = configuration.get("configuration engine", "descriptor", "engine")
        knobs = [
            (choice.get("knob type", "knob type")[0], choice.get("knob value", "int64")[0])
            for choice in configuration.get("configuration knobs", "descriptor", "knob")
        ]
        numbers = engine.get("engine notes", "numerical note")
        notes = frozenset(NOTES.get(number, "") for number in numbers)
        (number,) = engine.get("engine number", "int64")
        return OfferedPlan(int(number), tuple(sorted(knobs)), notes, configuration)

    def built(self, plan: OfferedPlan) -> CudnnPlan:
        made = Descriptor(self._calls, "plan")
        self._here(made, "plan handle", "plan device")
        made.set("plan configuration", "descriptor", plan.handle)
        try:
            made.finish()
        except DeviceFailed as error:
            raise LoadError(f"cuDNN offers this plan and cannot build it: {error}") from error
        return CudnnPlan(self, made)

    def _here(self, told: Descriptor, handle: str, device: str) -> None:
        """Which device is meant."""
        if self._elsewhere is not None:
            if device:
                told.set(device, "descriptor", self._elsewhere)
        elif handle:
            told.set(handle, "handle", self._handle)

    def described(self, graph: DnnGraph) -> Descriptor:
        """The graph in the library's words; :class:`LoadError` for what it has no words for."""
        tensors = [self._tensor(number, tensor) for number, tensor in enumerate(graph.tensors)]
        steps = [_STEPS[step.kind](self._calls, step, tensors) for step in graph.steps]
        made = Descriptor(self._calls, "graph")
        self._here(made, "graph handle", "")
        made.set("graph steps", "descriptor", *steps)
        return made.finish()

    def _tensor(self, number: int, tensor: DnnTensor) -> Descriptor:
        made = Descriptor(self._calls, "tensor")
        made.set("tensor number", "int64", number + 1)
        made.set("tensor type", "data type", DATA_TYPES[tensor.dtype])
        made.set("tensor shape", "int64", *tensor.shape)
        made.set("tensor strides", "int64", *tensor.strides)
        made.set("tensor alignment", "int64", 4 if tensor.constant is not None else 16)
        made.set("tensor virtual", "bool", tensor.virtual)
        made.set("tensor by value", "bool", tensor.constant is not None)
        return made.finish()

    def execute(self, plan: Descriptor, variant: Descriptor, stream: int) -> None:
        with self._taken:  # the handle is one thread's until it has launched
            if stream != self._stream:
                self._calls.ask("cudnnSetStream", self._handle, ctypes.c_void_p(stream))
                self._stream = stream
            try:
                self._calls.ask("cudnnBackendExecute", self._handle, plan.pointer, variant.pointer)
            except LoadError as error:
                raise DeviceFailed(str(error)) from error

    def variant(self, addresses: Mapping[int, int], workspace: int) -> Descriptor:
        made = Descriptor(self._calls, "variant")
        made.set("variant numbers", "int64", *(number + 1 for number in addresses))
        made.set("variant pointers", "pointer", *addresses.values())
        made.set("variant workspace", "pointer", workspace)
        return made.finish()


class CudnnPlan:
    """A plan of :class:`CudnnLibrary`."""

    def __init__(self, library: CudnnLibrary, made: Descriptor) -> None:
        self._library, self._made = library, made
        (self.workspace_bytes,) = made.get("plan workspace", "int64")

    def runner(self, addresses: Mapping[int, int], workspace: int) -> Callable[[int], None]:
        variant = self._library.variant(addresses, workspace)
        return lambda stream: self._library.execute(self._made, variant, stream)


# Steps in the library's words.

Tensors = Sequence[Descriptor]


def _convolution(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    numbers = step.numbers
    meant = Descriptor(calls, "convolution")
    meant.set("convolution type", "data type", DATA_TYPES["float32"])
    meant.set("convolution mode", "convolution mode", 1)  # cross correlation: what is called so everywhere
    meant.set("convolution rank", "int64", len(numbers["strides"]))
    meant.set("convolution before", "int64", *numbers["before"])
    meant.set("convolution after", "int64", *numbers["after"])
    meant.set("convolution dilations", "int64", *numbers["dilations"])
    meant.set("convolution strides", "int64", *numbers["strides"])
    meant.finish()
    made = Descriptor(calls, "transposed" if step.kind == "transposed" else "convolution step")
    for name in ("x", "w", "y"):
        made.set(f"{step.kind} {name}", "descriptor", tensors[step.tensors[name]])
    made.set(f"{step.kind} of", "descriptor", meant)
    made.set(f"{step.kind} alpha", "float", 1.0)
    made.set(f"{step.kind} beta", "float", 0.0)
    return made.finish()


def _pointwise(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    numbers = step.numbers
    meant = Descriptor(calls, "pointwise")
    meant.set("pointwise mode", "pointwise mode", POINTWISE_MODES[numbers["mode"]])
    meant.set("pointwise type", "data type", DATA_TYPES["float32"])
    for name in ("lower", "upper", "slope", "elu"):
        if name in numbers:
            meant.set(f"pointwise {name}", "double", numbers[name])
    meant.finish()
    made = Descriptor(calls, "pointwise step")
    made.set("pointwise of", "descriptor", meant)
    for name, number in step.tensors.items():
        made.set(f"pointwise {name}", "descriptor", tensors[number])
    return made.finish()


def _pooling(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    numbers = step.numbers
    mode, padding = POOLINGS[numbers["mode"]]
    meant = Descriptor(calls, "pooling")
    meant.set("pooling mode", "pooling mode", mode)
    meant.set("pooling type", "data type", DATA_TYPES["float32"])
    meant.set("pooling nan", "nan", 1)  # NaN stays NaN
    meant.set("pooling padding", "padding", padding)
    meant.set("pooling rank", "int64", len(numbers["window"]))
    for name in ("window", "before", "after", "strides"):
        meant.set(f"pooling {name}", "int64", *numbers[name])
    meant.finish()
    made = Descriptor(calls, "pooling step")
    made.set("pooling x", "descriptor", tensors[step.tensors["x"]])
    made.set("pooling y", "descriptor", tensors[step.tensors["y"]])
    made.set("pooling of", "descriptor", meant)
    return made.finish()


def _norm(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    made = Descriptor(calls, "norm step")
    made.set("norm mode", "norm mode", NORMS[step.numbers["of"]])
    made.set("norm phase", "norm phase", 0)  # inference: nothing is kept for a backward pass
    for name, number in step.tensors.items():
        made.set(f"norm {name}", "descriptor", tensors[number])
    return made.finish()


def _product(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    meant = Descriptor(calls, "product")
    meant.set("product type", "data type", DATA_TYPES["float32"])
    meant.finish()
    made = Descriptor(calls, "product step")
    for name in ("a", "b", "y"):
        made.set(f"product {name}", "descriptor", tensors[step.tensors[name]])
    made.set("product of", "descriptor", meant)
    return made.finish()


def _attention(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    made = Descriptor(calls, "attention step")
    for name in ("q", "k", "v", "scale", "y"):
        made.set(f"attention {name}", "descriptor", tensors[step.tensors[name]])
    if "scores" in step.tensors:
        inside = Descriptor(calls, "graph")
        inside.set("graph steps", "descriptor", _mask(calls, step, tensors))
        made.set("attention graph", "descriptor", inside.finish())
        for end, name in (("in", "scores"), ("out", "seen")):
            made.set(f"attention graph {end}", "int64", step.tensors[name] + 1)
    return made.finish()


def _mask(calls: _Calls, step: DnnStep, tensors: Tensors) -> Descriptor:
    """Rows see the columns up to their own number."""
    made = Descriptor(calls, "mask step")
    for part, name in (("x", "scores"), ("b", "hidden"), ("y", "seen")):
        made.set(f"mask {part}", "descriptor", tensors[step.tensors[name]])
    made.set("mask comparison", "pointwise mode", POINTWISE_MODES["CMP_GE"])
    return made.finish()


_STEPS: Mapping[str, Callable[[_Calls, DnnStep, Tensors], Descriptor]] = {
    "attention": _attention,
    "convolution": _convolution,
    "norm": _norm,
    "pointwise": _pointwise,
    "pooling": _pooling,
    "product": _product,
    "transposed": _convolution,
}


@cache
def open_library() -> GraphLibrary:
    """Raises :class:`LoadError` where it is not installed. Initialises CUDA."""
    return CudnnLibrary(shared_library("cudnn", _Calls.title))


class CudnnKernel(DeviceKernel):
    """One plan of it for one operator."""

    loads_late = True

    def __init__(
        self,
        operator: Operator,
        recipe: Mapping[str, Any],
        driver: CudaDriver | None = None,
        library: GraphLibrary | None = None,
    ) -> None:
        self._graph = graph_of(operator)
        super().__init__(operator, driver, graphs=bool(recipe["graphs"]), alignment=ALIGNMENT)
        self.results = results_of(operator, self._graph)
        self._library = library or open_library()
        plans = offered(self._library, self._graph, bool(recipe["tf32"]))
        number = int(recipe["plan"])
        if number > len(plans):
            raise LoadError(f"cuDNN offers {len(plans)} plans here; this recipe wants number {number}")
        self._plan = self._library.built(plans[number - 1])
        self.workspace_bytes = int(self._plan.workspace_bytes)
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
