"""Eager calls on a device: inputs are copied there before, and a call only launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.identity.strides import storage_elements
from opatlas.load.buffers import check_array, check_layout, check_numbers, element_strides
from opatlas.load.cuda.driver import DeviceOutOfMemory
from opatlas.load.cuda.staging import CopyHalves, PageLocked, Wait
from opatlas.load.dtypes import extreme
from opatlas.load.kernel import KernelFailed
from opatlas.load.torch.graph import missing
from opatlas.load.torch.ops.types import TORCH_TYPES, to_array, to_tensor
from opatlas.load.torch.recipe import TorchBound, TorchKernel


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> DeviceTorchKernel:
    """The kernel of an allowed torch recipe that names a device."""
    if reason := missing(operator):
        raise LoadError(reason)
    return DeviceTorchKernel(operator, recipe)


class ComputesOnDevice:
    """The parts of :class:`~opatlas.load.kernel.KernelOnDevice` beside ``bind``, for PyTorch's kernels."""

    operator: Operator
    device: torch.device
    alignment = 1

    @property
    def on_device(self) -> int | None:
        """Its number among the visible devices; None on the CPU."""
        return torch.cuda.current_device() if self.device.type == "cuda" else None

    @property
    def results(self) -> tuple[Value, ...]:
        """Outputs as written."""
        return self.operator.output_values

    def fetched(self, given: Any, value: Value, name: str) -> np.ndarray:
        """A copy on the host of an array on the device."""
        return to_array(_there(given, value, name, self.device).to("cpu", copy=True), value.dtype)

    def memory(self, value: Value, stream: int | None = None) -> torch.Tensor:
        """A tensor on the device for such a value."""
        return tensor_for(value, self.device, stream)


class DeviceTorchKernel(ComputesOnDevice, TorchKernel):
    """Like :class:`TorchKernel`, on a device. With ``recipe["tf32"]`` products of float32 may round their
    operands."""

    def __init__(self, operator: Operator, recipe: Mapping[str, Any], device: str = "") -> None:
        super().__init__(operator, recipe)
        self.device = torch.device(device or str(recipe["device"]))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise LoadError("needs a CUDA device, and PyTorch finds none here")

    def bind(
        self, inputs: Mapping[int, Any], outputs: Sequence[Any] | None = None, *, stream: int | None = None
    ) -> DeviceTorchBound:
        """NumPy arrays are copied to the device, now and by :meth:`DeviceTorchBound.upload`; arrays on the
        device are read in place. Results are copied into ``outputs`` if given. Runs are launched into
        ``stream``, a CUDA handle, else into PyTorch's current one."""
        plan = self.plan()
        with torch.inference_mode(), in_stream(self.device, stream):
            brought = bring(self.operator, inputs, self.device)
            call = plan.bind({number: one.tensor for number, one in brought.items()})
            return bound_there(
                self.operator, self.device, self.recipe, call, brought, outputs, stream, self._constants
            )

    def _constant(self, array: np.ndarray) -> torch.Tensor:
        return to_tensor(array).clone().to(self.device)

    def _where(self) -> AbstractContextManager[Any]:
        return self.device


def bring(operator: Operator, inputs: Mapping[int, Any], device: torch.device) -> dict[int, DeviceInput]:
    """The runtime inputs on the device. Raises :class:`LoadError` unless they are what the operator
    states."""
    numbers = operator.runtime_inputs
    check_numbers(numbers, inputs)
    return {
        number: DeviceInput(inputs[number], operator.inputs[number], f"input {number}", device)
        for number in numbers
    }


def bound_there(
    operator: Operator,
    device: torch.device,
    how: Mapping[str, Any],
    call: Callable[[], list[Any]],
    inputs: Mapping[int, DeviceInput],
    outputs: Sequence[Any] | None = None,
    stream: int | None = None,
    constants: Sequence[torch.Tensor] = (),
) -> DeviceTorchBound:
    """``how`` has ``tf32`` and ``graphs``: with graphs, the launches of ``call`` are captured now."""
    tf32, graphs = bool(how.get("tf32")), bool(how.get("graphs"))
    if outputs is not None:
        call = _into(_targets(operator, outputs, device), call)
    if graphs:
        allow_tf32(tf32)
        call = captured(call, device)
    kept = graphs or outputs is not None
    return DeviceTorchBound(
        operator, device, tf32, call, inputs, kept=kept, stream=stream, constants=constants
    )


def in_stream(device: torch.device, stream: int | None) -> AbstractContextManager[Any]:
    """Launch what is inside into this CUDA stream; None: PyTorch's current one."""
    if stream is None:
        return nullcontext()
    if device.type != "cuda":
        raise LoadError(f"{device} has no streams")
    return torch.cuda.stream(torch.cuda.ExternalStream(stream, device))


def tensor_for(value: Value, device: torch.device, stream: int | None = None) -> torch.Tensor:
    """A tensor that is first written in this stream: the allocator reuses its memory in that order."""
    with in_stream(device, stream):
        dtype = TORCH_TYPES[value.dtype]
        return torch.empty_strided(value.shape, element_strides(value), dtype=dtype, device=device)


def _targets(operator: Operator, outputs: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
    values = operator.output_values
    if len(outputs) != len(values):
        raise LoadError(f"the operator has {len(values)} outputs; {len(outputs)} are given")
    return [
        _there(one, value, f"output {number}", device)
        for number, (one, value) in enumerate(zip(outputs, values, strict=True))
    ]


def _into(targets: Sequence[torch.Tensor], call: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    @torch.inference_mode()
    def run() -> list[Any]:
        for target, made in zip(targets, call(), strict=True):
            target.copy_(made)
        return list(targets)

    return run


def captured(call: Callable[[], list[Any]], device: torch.device) -> Callable[[], list[Any]]:
    """The call's launches as one CUDA graph; results stay at their addresses."""
    if device.type != "cuda":
        raise LoadError(f"launches on {device} cannot be captured")
    aside = torch.cuda.Stream(device)
    with torch.cuda.stream(aside):
        for _ in range(2):  # libraries make their handles and workspaces with the first calls
            call()
    aside.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()

    def replay() -> list[Any]:
        graph.replay()
        return results

    return replay


@cache
def _pages(kind: str) -> PageLocked:
    """The memory for all copies to and from devices of this kind; unused on the CPU."""
    return PageLocked(
        lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, pin_memory=kind == "cuda").numpy()
    )


@cache
def _staging(kind: str) -> CopyHalves:
    return CopyHalves(_pages(kind))


def _begin(there: torch.Tensor, to_device: bool, start: int, part: np.ndarray) -> Wait:
    """Copy between these bytes of the host and those of ``there`` (bytes, too), from ``start`` on."""
    here, there = torch.from_numpy(part), there[start : start + part.nbytes]
    target, source = (there, here) if to_device else (here, there)
    target.copy_(source, non_blocking=True)
    if there.device.type != "cuda":
        return _nothing
    ended = torch.cuda.Event()
    ended.record(torch.cuda.current_stream(there.device))
    return ended.synchronize


def _nothing() -> None:
    """The processor has copied already."""


class DeviceInput:
    """One input on the device, and the host's array that it copies, if any."""

    def __init__(self, given: Any, value: Value, name: str, device: torch.device) -> None:
        self._host: torch.Tensor | None = None
        if isinstance(given, np.ndarray):
            check_array(given, value, name)
            count = 0 if 0 in value.shape else storage_elements(value.shape, element_strides(value))
            self._host = torch.as_strided(to_tensor(given), (count,), (1,))
            self._here = self._host.view(torch.uint8).numpy()
            there = torch.empty_like(self._host, device=device)
            self._there = there.view(torch.uint8)
            self.tensor = torch.as_strided(there, value.shape, element_strides(value))
            self.upload()
            return
        self.tensor = _there(given, value, name, device)

    @torch.inference_mode()
    def upload(self) -> None:
        if self._host is not None:
            _staging(self._there.device.type).to_device(self._here, partial(_begin, self._there, True))

    @torch.inference_mode()
    def download(self) -> None:
        if self._host is not None:
            _staging(self._there.device.type).to_host(self._here, partial(_begin, self._there, False))


def _there(given: Any, value: Value, name: str, device: torch.device) -> torch.Tensor:
    """An array on the device, in place. Raises :class:`LoadError` unless it is what the operator states."""
    try:
        tensor = _as_it_lies(given, device)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise LoadError(f"{name} cannot be read on {device}: {first_line(error)}") from error
    here = torch.cuda.current_device() if device.type == "cuda" else None
    if tensor.device.type != device.type or (here is not None and tensor.device.index != here):
        raise LoadError(f"{name} lies on {tensor.device}, and what reads it runs on {device}")
    size = tensor.element_size()
    strides = tuple(stride * size for stride in tensor.stride())
    found = to_array(tensor.new_empty(0, device="cpu"), value.dtype).dtype
    check_layout(found, tuple(tensor.shape), strides, value, name)
    return tensor


def _as_it_lies(given: Any, device: torch.device) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given.detach()
    if hasattr(given, "__dlpack__"):
        return torch.from_dlpack(given)
    if hasattr(given, "__cuda_array_interface__"):
        return torch.as_tensor(given, device=device)
    raise TypeError(f"{type(given).__name__} has neither DLPack nor __cuda_array_interface__")


class DeviceTorchBound(TorchBound):
    """A call launches and returns; :meth:`synchronize` waits. Copies are never part of a call. ``kept``:
    results are in the memory of the last call's."""

    def __init__(
        self,
        operator: Operator,
        device: torch.device,
        tf32: bool,
        call: Callable[[], list[Any]],
        inputs: Mapping[int, DeviceInput],
        *,
        kept: bool = False,
        stream: int | None = None,
        constants: Sequence[torch.Tensor] = (),
    ) -> None:
        super().__init__(operator, call, [*(one.tensor for one in inputs.values()), *constants])
        self._device = device
        self._tf32 = tf32
        self._kept, self._stream = kept, stream
        self._brought = inputs
        self._fetched: dict[int, torch.Tensor] = {}
        self._arrays: Sequence[np.ndarray] = ()

    def __call__(self) -> None:
        allow_tf32(self._tf32)
        try:
            if self._stream is None:
                super().__call__()
            else:
                with in_stream(self._device, self._stream):
                    super().__call__()
        except KernelFailed as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):
                raise DeviceOutOfMemory(str(error)) from error
            raise

    def synchronize(self) -> None:
        if self._device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            raise KernelFailed(f"PyTorch failed: {first_line(error)}") from error

    def device_us(self, runs: Callable[[], None]) -> float:
        """Microseconds that the device took for all that ``runs`` launches, by its own clock. Waits."""
        mark, between_us = _marks(self._device)
        first = mark()
        runs()
        last = mark()
        self.synchronize()
        return between_us(first, last)

    def each_us(self, calls: int, evict_bytes: int, lead_in: bool) -> list[float]:
        """See :meth:`opatlas.load.cuda.module.CudaBound.each_us`."""
        room = torch.empty(evict_bytes, dtype=torch.uint8, device=self._device)
        mark, between_us = _marks(self._device)
        marks = []
        for _ in range(calls):
            room.zero_()
            if lead_in:
                self()
            first = mark()
            self()
            marks.append((first, mark()))
        self.synchronize()
        return [between_us(*pair) for pair in marks]

    def upload(self) -> None:
        for one in self._brought.values():
            one.upload()

    def fetch_inputs(self) -> None:
        for one in self._brought.values():
            one.download()

    @torch.inference_mode()
    def outputs(self) -> Sequence[np.ndarray]:
        """The latest outputs, which the next ``outputs`` overwrites."""
        self.synchronize()
        self._arrays = [
            to_array(self._on_host(number, tensor).copy_(tensor), value.dtype)
            for number, (tensor, value) in enumerate(zip(self._results(), self._values, strict=True))
        ]
        return self._arrays

    def fresh_outputs(self, make: Callable[[Value], Any]) -> list[torch.Tensor]:
        """The latest outputs, for the caller: copies if the next call would overwrite them, or if they share
        memory with an input or constant. ``make`` is not used: calls make new tensors."""
        with in_stream(self._device, self._stream):
            return [
                tensor.clone() if self._kept or self._is_given(tensor) else tensor
                for tensor in self._results()
            ]

    def _is_given(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._given

    def _on_host(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """The output's place on the host, with its layout if it has no gaps."""
        if number not in self._fetched:
            strides = torch.empty_like(tensor, device="meta").stride()
            memory = torch.from_numpy(_pages(self._device.type).memory(tensor.nbytes))
            self._fetched[number] = memory.view(tensor.dtype).as_strided(tensor.shape, strides)
        return self._fetched[number]

    @torch.inference_mode()
    def send_outputs(self) -> None:
        for tensor, array in zip(self._results(), self._arrays, strict=True):
            tensor.copy_(to_tensor(array))

    def trespassed(self) -> bool:
        """PyTorch's own code is not watched."""
        return False

    @torch.inference_mode()
    def poison(self) -> None:
        for tensor, value in zip(self._result or (), self._values, strict=False):
            if not self._is_given(tensor) and tensor.numel():
                array = to_array(tensor.new_empty((), device="cpu"), value.dtype)
                array[...] = extreme(array.dtype)
                tensor.copy_(to_tensor(array))
        self._result = None


def _marks(device: torch.device) -> tuple[Callable[[], Any], Callable[[Any, Any], float]]:
    """Functions that place a mark among a device's launches, and give the microseconds between two marks by
    the device's clock, once they have happened."""
    if device.type != "cuda":
        return time.perf_counter_ns, lambda first, last: (last - first) / 1e3

    def mark() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return mark, lambda first, last: 1e3 * float(first.elapsed_time(last))


_tf32_now: bool | None = None


def allow_tf32(allowed: bool) -> None:
    """Set PyTorch's switches, which are the whole process's and may be another setting's. They are set
    without reading them, which costs a microsecond of each call. Sums of half types stay in float32, as in
    every setting: cuBLAS might otherwise add a product's partial sums in 16 bits."""
    global _tf32_now
    if allowed != _tf32_now:
        products = torch.backends.cuda.matmul
        products.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
        products.allow_fp16_reduced_precision_reduction = False
        products.allow_bf16_reduced_precision_reduction = False
        _tf32_now = allowed
