"""The CUDA driver through PyCUDA."""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import pycuda.driver as cuda
from pycuda._pvt_struct import pack

from opatlas.errors import first_line
from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory, Scalar
from opatlas.load.cuda.staging import StagedCopies, Wait


class PyCudaDriver(StagedCopies):
    """On the device's primary context, which PyTorch and CuPy use as well. Any thread may call.

    PyCUDA has a stack of contexts for each thread, and ends a process one of whose threads ends with
    something on its stack: so the context is pushed for each call, and popped after it.
    """

    def __init__(self, device: int) -> None:
        super().__init__()
        self.number = device
        with _failing():
            cuda.init()
            self._device = cuda.Device(device)
            self._context = self._device.retain_primary_context()
        _make_current(self._context.handle)
        self._allocations: dict[int, Any] = {}
        self._events: list[Any] = []  # to be recorded again: who drops one in another thread leaks it
        atexit.register(self._end)

    def _end(self) -> None:
        with suppress(cuda.Error):  # PyCUDA's own end of it is not for a primary context, and warns
            self._context.detach()

    @contextmanager
    def _here(self) -> Iterator[None]:
        with _failing():
            self._context.push()
            try:
                yield
            finally:
                self._context.pop()

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
        with self._here():
            made = cuda.mem_alloc(nbytes)
        self._allocations[int(made)] = made
        return int(made)

    def free(self, address: int) -> None:
        with self._here():
            self._allocations.pop(address).free()

    def lock_pages(self, nbytes: int) -> np.ndarray:
        with self._here():
            locked = cuda.pagelocked_empty(nbytes, np.uint8)
        made: np.ndarray = np.frombuffer(memoryview(locked), np.uint8)
        weakref.finalize(made, self._unlock, locked.base).atexit = False
        return made

    def _unlock(self, memory: Any) -> None:
        with suppress(DeviceFailed), self._here():
            memory.free()  # else by whichever thread drops it last, without its context

    def begin_to_device(self, address: int, source: np.ndarray) -> Wait:
        with self._here():
            cuda.memcpy_htod_async(address, source)
        return partial(self._await, self.record())

    def begin_to_host(self, target: np.ndarray, address: int) -> Wait:
        with self._here():
            cuda.memcpy_dtoh_async(target, address)
        return partial(self._await, self.record())

    def _await(self, event: Any) -> None:
        with self._here():
            event.synchronize()
        self._events.append(event)

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        with self._here():
            cuda.memset_d8(address, byte, nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        with self._here():
            cuda.memcpy_dtod_async(target, source, nbytes)

    def load(self, image: bytes) -> Any:
        with self._here():
            return [cuda.module_from_buffer(image)]

    def unload(self, module: Any) -> None:
        with self._here():
            module.clear()  # PyCUDA unloads it with the last function that was got of it

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Scalar],
    ) -> Callable[[], None]:
        with self._here():
            handle = module[0].get_function(function)
            if shared_bytes > 48 << 10:  # more than every kernel may have has to be asked for
                handle.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        # What ``prepared_call`` ends in, packed once: it packs, and tells the block's shape, with each call.
        packed = pack("".join(argument.dtype.char for argument in arguments), *arguments)
        launch = partial(handle._launch_kernel, tuple(grid), tuple(block), packed, shared_bytes, None)
        return partial(self._launch, launch)

    def _launch(self, launch: Callable[[], None]) -> None:
        try:  # where its context is current nothing is pushed: it would take as long as the launch
            launch()
        except cuda.LogicError:
            with self._here():
                launch()
        except cuda.Error as error:
            raise DeviceFailed(f"the device refuses to launch: {first_line(error)}") from error

    def synchronize(self) -> None:
        with self._here():
            self._context.synchronize()

    def record(self) -> Any:
        with self._here():
            event = self._events.pop() if self._events else cuda.Event()
            event.record()
            return event

    def elapsed_us(self, first: Any, last: Any) -> float:
        with self._here():
            us = 1e3 * float(last.time_since(first))
        self._events += [first, last]
        return us

    @property
    def has_graphs(self) -> bool:
        return False  # PyCUDA 2026.1

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        raise DeviceFailed("PyCUDA has no graphs: install cuda-bindings")


def _make_current(context: int) -> None:
    """In this thread, unless another is: not by PyCUDA, which would have it popped."""
    library, current = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    library.cuCtxGetCurrent(ctypes.byref(current))
    if not current.value:
        library.cuCtxSetCurrent(ctypes.c_void_p(context))


@contextmanager
def _failing() -> Iterator[None]:
    """PyCUDA's errors as ours."""
    try:
        yield
    except cuda.MemoryError as error:
        raise DeviceOutOfMemory(f"the device answers {first_line(error)}") from error
    except cuda.Error as error:
        raise DeviceFailed(f"the device answers {first_line(error)}") from error
