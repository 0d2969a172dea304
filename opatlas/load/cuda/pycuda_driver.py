"""The CUDA driver through PyCUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pycuda.driver as cuda

from opatlas.errors import first_line
from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory, Scalar


class PyCudaDriver:
    """On the device's primary context, which PyTorch and CuPy use as well."""

    def __init__(self, device: int) -> None:
        with _failing():
            cuda.init()
            self._device = cuda.Device(device)
            self._context = self._device.retain_primary_context()
            self._context.push()
        self._allocations: dict[int, Any] = {}

    @property
    def arch(self) -> str:
        major, minor = self._device.compute_capability()
        return f"sm_{major}{minor}"

    @property
    def version(self) -> int:
        return int(cuda.get_driver_version())

    @property
    def stream(self) -> int:
        return 0

    def allocate(self, nbytes: int) -> int:
        with _failing():
            made = cuda.mem_alloc(nbytes)
        self._allocations[int(made)] = made
        return int(made)

    def free(self, address: int) -> None:
        with _failing():
            self._allocations.pop(address).free()

    def to_device(self, address: int, source: np.ndarray) -> None:
        with _failing():
            cuda.memcpy_htod(address, source)

    def to_host(self, target: np.ndarray, address: int) -> None:
        with _failing():
            cuda.memcpy_dtoh(target, address)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        with _failing():
            cuda.memset_d8(address, byte, nbytes)

    def load(self, image: bytes) -> Any:
        with _failing():
            return cuda.module_from_buffer(image)

    def unload(self, module: Any) -> None:
        """PyCUDA unloads it with the last function that was got of it."""

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Scalar],
    ) -> Callable[[], None]:
        with _failing():
            handle = module.get_function(function)
            if shared_bytes > 48 << 10:  # more than every kernel may have has to be asked for
                handle.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
            handle.prepare("".join(argument.dtype.char for argument in arguments))
        call = partial(handle.prepared_call, tuple(grid), tuple(block), *arguments, shared_size=shared_bytes)
        return partial(_launch, call)

    def synchronize(self) -> None:
        with _failing():
            self._context.synchronize()

    def record(self) -> Any:
        with _failing():
            event = cuda.Event()
            event.record()
            return event

    def elapsed_us(self, first: Any, last: Any) -> float:
        with _failing():
            return 1e3 * float(last.time_since(first))

    @property
    def has_graphs(self) -> bool:
        return False  # PyCUDA 2026.1

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        raise DeviceFailed("PyCUDA has no graphs: install cuda-bindings")


def _launch(call: Callable[[], None]) -> None:
    try:  # no context manager here: it would take as long as the launch
        call()
    except cuda.Error as error:
        raise DeviceFailed(f"the device refuses to launch: {first_line(error)}") from error


@contextmanager
def _failing() -> Iterator[None]:
    """PyCUDA's errors as ours."""
    try:
        yield
    except cuda.MemoryError as error:
        raise DeviceOutOfMemory(f"the device answers {first_line(error)}") from error
    except cuda.Error as error:
        raise DeviceFailed(f"the device answers {first_line(error)}") from error
