"""The CUDA driver through ``cuda-bindings``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory, Scalar

_SUCCESS = cuda.CUresult.CUDA_SUCCESS
STREAM = 0  # the context's default: what PyTorch launches without a stream of its own goes there too


class BindingsDriver:
    """On the device's primary context, which PyTorch and CuPy use as well."""

    def __init__(self, device: int) -> None:
        _ask(cuda.cuInit, 0)
        self._device = _ask(cuda.cuDeviceGet, device)
        self._context = _ask(cuda.cuDevicePrimaryCtxRetain, self._device)
        _ask(cuda.cuCtxSetCurrent, self._context)
        self._stream: Any = STREAM

    @property
    def arch(self) -> str:
        known = cuda.CUdevice_attribute
        major = _ask(
            cuda.cuDeviceGetAttribute, known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device
        )
        minor = _ask(
            cuda.cuDeviceGetAttribute, known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device
        )
        return f"sm_{major}{minor}"

    @property
    def version(self) -> int:
        return int(_ask(cuda.cuDriverGetVersion))

    @property
    def stream(self) -> int:
        return int(self._stream)

    def allocate(self, nbytes: int) -> int:
        return int(_ask(cuda.cuMemAlloc, nbytes))

    def free(self, address: int) -> None:
        _ask(cuda.cuMemFree, address)

    def to_device(self, address: int, source: np.ndarray) -> None:
        _ask(cuda.cuMemcpyHtoD, address, source.ctypes.data, source.nbytes)

    def to_host(self, target: np.ndarray, address: int) -> None:
        _ask(cuda.cuMemcpyDtoH, target.ctypes.data, address, target.nbytes)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        _ask(cuda.cuMemsetD8, address, byte, nbytes)

    def load(self, image: bytes) -> Any:
        return _ask(cuda.cuModuleLoadData, image)

    def unload(self, module: Any) -> None:
        _ask(cuda.cuModuleUnload, module)

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Scalar],
    ) -> Callable[[], None]:
        handle = _ask(cuda.cuModuleGetFunction, module, function.encode())
        if shared_bytes > 48 << 10:  # more than every kernel may have has to be asked for
            wish = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _ask(cuda.cuFuncSetAttribute, handle, wish, shared_bytes)
        return partial(self._launch, handle, (*grid, *block), shared_bytes, Packed(arguments))

    def _launch(self, handle: Any, sizes: tuple[int, ...], shared_bytes: int, packed: Packed) -> None:
        (error,) = cuda.cuLaunchKernel(handle, *sizes, shared_bytes, self._stream, packed.address, 0)
        if error != _SUCCESS:
            raise DeviceFailed(f"the device refuses to launch: {error.name}")

    def synchronize(self) -> None:
        _ask(cuda.cuCtxSynchronize)

    def record(self) -> Any:
        event = _ask(cuda.cuEventCreate, 0)
        _ask(cuda.cuEventRecord, event, STREAM)
        return event

    def elapsed_us(self, first: Any, last: Any) -> float:
        found = self.between_us(first, last)
        for event in (first, last):
            self.drop_event(event)
        return found

    def make_stream(self) -> Any:
        return _ask(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def drop_stream(self, stream: Any) -> None:
        _ask(cuda.cuStreamDestroy, stream)

    def launch_in(self, stream: Any, launch: Callable[[], object]) -> None:
        before, self._stream = self._stream, stream
        try:
            launch()
        finally:
            self._stream = before

    def copy_in(self, stream: Any, target: int | np.ndarray, source: int | np.ndarray, nbytes: int) -> None:
        # Under unified addressing the driver tells from the addresses which way it goes.
        ends = (one if isinstance(one, int) else int(one.ctypes.data) for one in (target, source))
        _ask(cuda.cuMemcpyAsync, *ends, nbytes, stream)

    def record_in(self, stream: Any) -> Any:
        event = _ask(cuda.cuEventCreate, 0)
        _ask(cuda.cuEventRecord, event, stream)
        return event

    def wait_in(self, stream: Any, event: Any) -> None:
        _ask(cuda.cuStreamWaitEvent, stream, event, 0)

    def has_happened(self, event: Any) -> bool:
        (error,) = cuda.cuEventQuery(event)
        if error not in (_SUCCESS, cuda.CUresult.CUDA_ERROR_NOT_READY):
            raise DeviceFailed(f"the device answers {error.name} to cuEventQuery")
        return bool(error == _SUCCESS)

    def between_us(self, first: Any, last: Any) -> float:
        return 1e3 * float(_ask(cuda.cuEventElapsedTime, first, last))

    def drop_event(self, event: Any) -> None:
        _ask(cuda.cuEventDestroy, event)

    @property
    def has_graphs(self) -> bool:
        return True

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        # The default stream cannot be captured, so that for once another one is launched into.
        stream = _ask(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        try:
            _ask(cuda.cuStreamBeginCapture, stream, mode)
            self._stream = stream
            try:
                launch()
            finally:
                self._stream = STREAM
                graph = _ask(cuda.cuStreamEndCapture, stream)
            executable = _ask(cuda.cuGraphInstantiate, graph, 0)
            _ask(cuda.cuGraphDestroy, graph)
        finally:
            _ask(cuda.cuStreamDestroy, stream)
        return partial(_ask, cuda.cuGraphLaunch, executable, STREAM)


class Packed:
    """Arguments as the driver wants them: an array of addresses of their values, which this keeps."""

    def __init__(self, arguments: Sequence[Scalar]) -> None:
        self._values = [np.array(argument) for argument in arguments]
        self._addresses = np.array([value.ctypes.data for value in self._values] or [0], np.uint64)
        self.address = int(self._addresses.ctypes.data)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    error, *answer = function(*arguments)
    if error != _SUCCESS:
        out_of_memory = error == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        kind = DeviceOutOfMemory if out_of_memory else DeviceFailed
        raise kind(f"the device answers {error.name} to {function.__name__}")
    return answer[0] if answer else None
