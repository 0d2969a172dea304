"""Eager calls on a device with memory of its own: inputs are brought there, and a call only launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.identity.strides import storage_elements
from opatlas.load.buffers import check_array, check_layout, check_numbers, element_strides
from opatlas.load.cuda.driver import DeviceOutOfMemory
from opatlas.load.dtypes import extreme
from opatlas.load.kernel import KernelFailed
from opatlas.load.torch.graph import missing
from opatlas.load.torch.ops.types import to_array, to_tensor
from opatlas.load.torch.recipe import TorchBound, TorchKernel


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> DeviceTorchKernel:
    """The kernel of an allowed torch recipe that names a device."""
    if reason := missing(operator):
        raise LoadError(reason)
    return DeviceTorchKernel(operator, recipe)


class DeviceTorchKernel(TorchKernel):
    """As :class:`TorchKernel`, on a device. With ``recipe["tf32"]`` products of float32 may round their
    operands."""

    def __init__(self, operator: Operator, recipe: Mapping[str, Any], device: str = "") -> None:
        super().__init__(operator, recipe)
        self.device = torch.device(device or str(recipe["device"]))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise LoadError("needs a CUDA device, and PyTorch finds none here")

    def bind(self, inputs: Mapping[int, Any]) -> DeviceTorchBound:
        """NumPy arrays are copied to the device, now and by :meth:`DeviceTorchBound.upload`; what lies there
        already is read where it is."""
        plan = self.plan()
        with torch.inference_mode():
            brought = bring(self.operator, inputs, self.device)
            call = plan.bind({number: one.tensor for number, one in brought.items()})
            return bound_there(self.operator, self.device, self.recipe, call, brought)

    def _constant(self, array: np.ndarray) -> torch.Tensor:
        return to_tensor(array).clone().to(self.device)

    def _where(self) -> AbstractContextManager[Any]:
        return self.device


def bring(operator: Operator, inputs: Mapping[int, Any], device: torch.device) -> dict[int, DeviceInput]:
    """The runtime inputs there. Raises :class:`LoadError` unless they are what the operator states."""
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
) -> DeviceTorchBound:
    """``how`` says ``tf32`` and ``graphs``: with these the launches of ``call`` are captured now."""
    tf32 = bool(how.get("tf32"))
    if how.get("graphs"):
        allow_tf32(tf32)
        call = captured(call, device)
    return DeviceTorchBound(operator, device, tf32, call, inputs)


def captured(call: Callable[[], list[Any]], device: torch.device) -> Callable[[], list[Any]]:
    """The call's launches as one CUDA graph; its results lie where they lay."""
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


class DeviceInput:
    """One input on the device, and the host's array that it is a copy of, if it is one."""

    def __init__(self, given: Any, value: Value, name: str, device: torch.device) -> None:
        self._host: torch.Tensor | None = None
        if isinstance(given, np.ndarray):
            check_array(given, value, name)
            count = 0 if 0 in value.shape else storage_elements(value.shape, element_strides(value))
            self._host = torch.as_strided(to_tensor(given), (count,), (1,))
            self._there = torch.empty_like(self._host, device=device)
            self.tensor = torch.as_strided(self._there, value.shape, element_strides(value))
            self.upload()
            return
        try:
            self.tensor = torch.as_tensor(given, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise LoadError(f"{name} cannot be read on {device}: {first_line(error)}") from error
        size = self.tensor.element_size()
        strides = tuple(stride * size for stride in self.tensor.stride())
        found = to_array(self.tensor.new_empty(0, device="cpu"), value.dtype).dtype
        check_layout(found, tuple(self.tensor.shape), strides, value, name)

    @torch.inference_mode()
    def upload(self) -> None:
        if self._host is not None:
            self._there.copy_(self._host)

    @torch.inference_mode()
    def download(self) -> None:
        if self._host is not None:
            self._host.copy_(self._there)


class DeviceTorchBound(TorchBound):
    """A call launches and returns; :meth:`synchronize` waits. Copies are never part of a call."""

    def __init__(
        self,
        operator: Operator,
        device: torch.device,
        tf32: bool,
        call: Callable[[], list[Any]],
        inputs: Mapping[int, DeviceInput],
    ) -> None:
        super().__init__(operator, call, {number: one.tensor for number, one in inputs.items()})
        self._device = device
        self._tf32 = tf32
        self._brought = inputs
        self._arrays: Sequence[np.ndarray] = ()

    def __call__(self) -> None:
        allow_tf32(self._tf32)
        try:
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
        """What the device took for all that ``runs`` launches, by its own clock: microseconds. Waits."""
        if self._device.type != "cuda":
            started = time.perf_counter_ns()
            runs()
            return (time.perf_counter_ns() - started) / 1e3
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        runs()
        last.record()
        self.synchronize()
        return 1e3 * first.elapsed_time(last)

    def evict(self, nbytes: int) -> None:
        """Write so much memory that is nobody's: what the device's caches held is gone. Waits."""
        torch.zeros(nbytes, dtype=torch.uint8, device=self._device)
        self.synchronize()

    def upload(self) -> None:
        for one in self._brought.values():
            one.upload()

    def fetch_inputs(self) -> None:
        for one in self._brought.values():
            one.download()

    def outputs(self) -> Sequence[np.ndarray]:
        self.synchronize()
        self._arrays = [
            to_array(tensor.cpu(), value.dtype)
            for tensor, value in zip(self._results(), self._values, strict=True)
        ]
        return self._arrays

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
            if tensor.untyped_storage().data_ptr() not in self._inputs and tensor.numel():
                array = to_array(tensor.new_empty((), device="cpu"), value.dtype)
                array[...] = extreme(array.dtype)
                tensor.copy_(to_tensor(array))
        self._result = None


_tf32_now = False


def allow_tf32(allowed: bool) -> None:
    """Switches of the whole process, which runs kernels of several settings."""
    global _tf32_now
    if allowed != _tf32_now or torch.backends.cudnn.allow_tf32 != allowed:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
        _tf32_now = allowed
