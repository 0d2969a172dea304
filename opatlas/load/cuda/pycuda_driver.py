"""The CUDA driver with modules loaded and launched by PyCUDA; cuda-bindings does what PyCUDA lacks."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pycuda.driver as cuda
from pycuda._pvt_struct import pack

from opatlas.errors import first_line
from opatlas.load.cuda.bindings_driver import BindingsDriver
from opatlas.load.cuda.driver import DeviceFailed, Scalar


class PyCudaDriver(BindingsDriver):
    """On the same context.

    PyCUDA 2026.1 has no graphs, and only its own streams: launches into others go through cuda-bindings, with
    a module of its own. PyCUDA keeps a stack of contexts for each thread, and ends the process if a thread
    ends with something on it. So the context is pushed for each call and popped after it.
    """

    def __init__(self, device: int) -> None:
        super().__init__(device)
        with _failing():
            cuda.init()
            self._of_pycuda = cuda.Device(device).retain_primary_context()
        atexit.register(self._end)

    def _end(self) -> None:
        with suppress(cuda.Error):  # PyCUDA's own end of it is not for a primary context, and warns
            self._of_pycuda.detach()

    @contextmanager
    def _pushed(self) -> Iterator[None]:
        with _failing():
            self._of_pycuda.push()
            try:
                yield
            finally:
                self._of_pycuda.pop()

    def load(self, image: bytes) -> Any:
        with self._pushed():
            return [cuda.module_from_buffer(image), super().load(image)]

    def unload(self, module: Any) -> None:
        super().unload(module.pop())
        with self._pushed():
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
        with self._pushed():
            handle = module[0].get_function(function)
            if shared_bytes > 48 << 10:  # more than every kernel may have has to be asked for
                handle.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        # What ``prepared_call`` ends in, packed once: it packs, and tells the block's shape, with each call.
        packed = pack("".join(argument.dtype.char for argument in arguments), *arguments)
        launch = partial(handle._launch_kernel, tuple(grid), tuple(block), packed, shared_bytes, None)
        elsewhere = super().launcher(module[1], function, grid, block, shared_bytes, arguments)
        return partial(self._launch_by_either, launch, elsewhere)

    def _launch_by_either(self, launch: Callable[[], None], elsewhere: Callable[[], None]) -> None:
        if self.stream:
            elsewhere()
            return
        try:  # where its context is current nothing is pushed: it would take as long as the launch
            launch()
        except cuda.LogicError:
            with self._pushed():
                launch()
        except cuda.Error as error:
            raise DeviceFailed(f"the device refuses to launch: {first_line(error)}") from error


@contextmanager
def _failing() -> Iterator[None]:
    """PyCUDA's errors as ours."""
    try:
        yield
    except cuda.Error as error:
        raise DeviceFailed(f"the device answers {first_line(error)}") from error
