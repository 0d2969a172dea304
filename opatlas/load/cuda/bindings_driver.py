"""The CUDA driver through ``cuda-bindings``."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory, Scalar
from opatlas.load.cuda.staging import StagedCopies, Wait

_SUCCESS = cuda.CUresult.CUDA_SUCCESS
_NOT_ITS_CONTEXT = (cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT, cuda.CUresult.CUDA_ERROR_INVALID_HANDLE)
STREAM = 0  # the context's default: what PyTorch launches without a stream of its own goes there too


class _Launching(threading.local):
    """The stream for a thread's launches."""

    stream: Any = STREAM


class BindingsDriver(StagedCopies):
    """The driver on the device's primary context, which PyTorch and CuPy use as well. Any thread may call;
    its current context is restored afterwards."""

    def __init__(self, device: int) -> None:
        super().__init__()
        self.number = device
        _ask(cuda.cuInit, 0)
        self._device = _ask(cuda.cuDeviceGet, device)
        self._context = _ask(cuda.cuDevicePrimaryCtxRetain, self._device)
        self._address = int(self._context)
        if not int(_ask(cuda.cuCtxGetCurrent)):
            _ask(cuda.cuCtxSetCurrent, self._context)
        self._launching = _Launching()

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return _answer(function, self._here(function, *arguments))

    def _here(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Make the device's context current: a thread new to CUDA has none, and one that uses another device
        has that one's."""
        if int(_ask(cuda.cuCtxGetCurrent)) == self._address:
            return function(*arguments)
        _ask(cuda.cuCtxPushCurrent, self._context)
        try:
            return function(*arguments)
        finally:
            _ask(cuda.cuCtxPopCurrent)

    def _give_back(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Free memory; if the device has failed, it is freed with the process."""
        with suppress(DeviceFailed):
            self._ask(function, *arguments)

    @property
    def arch(self) -> str:
        known = cuda.CUdevice_attribute
        major = self._ask(
            cuda.cuDeviceGetAttribute, known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device
        )
        minor = self._ask(
            cuda.cuDeviceGetAttribute, known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device
        )
        return f"sm_{major}{minor}"

    @property
    def version(self) -> int:
        return int(self._ask(cuda.cuDriverGetVersion))

    @property
    def stream(self) -> int:
        return int(self._launching.stream)

    def allocate(self, nbytes: int) -> int:
        return int(self._ask(cuda.cuMemAlloc, nbytes))

    def free(self, address: int) -> None:
        self._ask(cuda.cuMemFree, address)

    def lock_pages(self, nbytes: int) -> np.ndarray:
        address = int(self._ask(cuda.cuMemHostAlloc, nbytes, 0))
        made = np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(address)), np.uint8)
        weakref.finalize(made, self._give_back, cuda.cuMemFreeHost, address).atexit = False
        return made

    def begin_to_device(self, address: int, source: np.ndarray) -> Wait:
        self._ask(cuda.cuMemcpyHtoDAsync, address, source.ctypes.data, source.nbytes, STREAM)
        return partial(self._await, self.record())

    def begin_to_host(self, target: np.ndarray, address: int) -> Wait:
        self._ask(cuda.cuMemcpyDtoHAsync, target.ctypes.data, address, target.nbytes, STREAM)
        return partial(self._await, self.record())

    def _await(self, event: Any) -> None:
        self._ask(cuda.cuEventSynchronize, event)
        self.drop_event(event)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        self._ask(cuda.cuMemsetD8, address, byte, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._ask(cuda.cuMemcpyDtoDAsync, target, source, nbytes, self._launching.stream)

    def load(self, image: bytes) -> Any:
        return self._ask(cuda.cuModuleLoadData, image)

    def unload(self, module: Any) -> None:
        self._ask(cuda.cuModuleUnload, module)

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Scalar],
    ) -> Callable[[], None]:
        handle = self._ask(cuda.cuModuleGetFunction, module, function.encode())
        if shared_bytes > 48 << 10:  # more than every kernel may have has to be asked for
            wish = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._ask(cuda.cuFuncSetAttribute, handle, wish, shared_bytes)
        return partial(self._launch, handle, (*grid, *block), shared_bytes, Packed(arguments))

    def _launch(self, handle: Any, sizes: tuple[int, ...], shared_bytes: int, packed: Packed) -> None:
        said = (handle, *sizes, shared_bytes, self._launching.stream, packed.address, 0)
        (error,) = cuda.cuLaunchKernel(*said)
        if error in _NOT_ITS_CONTEXT:  # nothing is asked before: it would take as long as the launch
            self._ask(cuda.cuLaunchKernel, *said)
        elif error != _SUCCESS:
            raise DeviceFailed(f"the device refuses to launch: {error.name}")

    def synchronize(self) -> None:
        self._ask(cuda.cuCtxSynchronize)

    def record(self) -> Any:
        event = self._ask(cuda.cuEventCreate, 0)
        self._ask(cuda.cuEventRecord, event, STREAM)
        return event

    def elapsed_us(self, first: Any, last: Any) -> float:
        found = self.between_us(first, last)
        for event in (first, last):
            self.drop_event(event)
        return found

    def make_stream(self) -> Any:
        return self._ask(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def drop_stream(self, stream: Any) -> None:
        self._ask(cuda.cuStreamDestroy, stream)

    def launch_in(self, stream: Any, launch: Callable[[], object]) -> None:
        before, self._launching.stream = self._launching.stream, stream
        try:
            launch()
        finally:
            self._launching.stream = before

    def copy_in(self, stream: Any, target: int | np.ndarray, source: int | np.ndarray, nbytes: int) -> None:
        # Under unified addressing the driver tells from the addresses which way it goes.
        ends = (one if isinstance(one, int) else int(one.ctypes.data) for one in (target, source))
        self._ask(cuda.cuMemcpyAsync, *ends, nbytes, stream)

    def record_in(self, stream: Any) -> Any:
        event = self._ask(cuda.cuEventCreate, 0)
        self._ask(cuda.cuEventRecord, event, stream)
        return event

    def wait_in(self, stream: Any, event: Any) -> None:
        self._ask(cuda.cuStreamWaitEvent, stream, event, 0)

    def has_happened(self, event: Any) -> bool:
        (error,) = self._here(cuda.cuEventQuery, event)
        if error not in (_SUCCESS, cuda.CUresult.CUDA_ERROR_NOT_READY):
            raise DeviceFailed(f"the device answers {error.name} to cuEventQuery")
        return bool(error == _SUCCESS)

    def between_us(self, first: Any, last: Any) -> float:
        return 1e3 * float(self._ask(cuda.cuEventElapsedTime, first, last))

    def drop_event(self, event: Any) -> None:
        self._ask(cuda.cuEventDestroy, event)

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        # The default stream cannot be captured, so that for once another one is launched into.
        stream = self._ask(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        try:
            self._ask(cuda.cuStreamBeginCapture, stream, mode)
            self._launching.stream = stream
            try:
                launch()
            finally:
                self._launching.stream = STREAM
                graph = self._ask(cuda.cuStreamEndCapture, stream)
            executable = self._ask(cuda.cuGraphInstantiate, graph, 0)
            self._ask(cuda.cuGraphDestroy, graph)
        finally:
            self._ask(cuda.cuStreamDestroy, stream)
        replay = partial(self._replay, executable)
        weakref.finalize(replay, self._give_back, cuda.cuGraphExecDestroy, executable).atexit = False
        return replay

    def _replay(self, graph: Any) -> None:
        self._ask(cuda.cuGraphLaunch, graph, self._launching.stream)


class Packed:
    """Arguments as the driver expects them: an array of addresses of values, kept alive by this object."""

    def __init__(self, arguments: Sequence[Scalar]) -> None:
        self._values = [np.array(argument) for argument in arguments]
        self._addresses = np.array([value.ctypes.data for value in self._values] or [0], np.uint64)
        self.address = int(self._addresses.ctypes.data)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    return _answer(function, function(*arguments))


def _answer(function: Callable[..., Any], said: tuple[Any, ...]) -> Any:
    error, *answer = said
    if error != _SUCCESS:
        out_of_memory = error == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        kind = DeviceOutOfMemory if out_of_memory else DeviceFailed
        raise kind(f"the device answers {error.name} to {function.__name__}")
    return answer[0] if answer else None
