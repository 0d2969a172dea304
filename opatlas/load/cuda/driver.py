"""What is used of the CUDA driver, as one small interface, and who offers it here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from opatlas.errors import LoadError, first_line
from opatlas.load.kernel import KernelFailed

Scalar = np.generic


class DeviceFailed(KernelFailed):
    """What the driver reports: an illegal address, too little memory, a launch that cannot be. After most of
    these its process can use the device no more."""


class DeviceOutOfMemory(DeviceFailed, MemoryError):
    """The device has not as much memory left as was asked for."""


class CudaDriver(Protocol):
    """One device, and one context on it. Addresses are the device's. Launches and what follows them run in
    one stream, in order; a launch returns at once, and what went wrong in it is told by whatever waits next.

    Every method may raise :class:`DeviceFailed`.
    """

    @property
    def number(self) -> int:
        """Which of the visible devices it is."""
        ...

    @property
    def arch(self) -> str:
        """``sm_90``."""
        ...

    @property
    def version(self) -> int:
        """The newest CUDA that the driver knows: 13000 is 13.0."""
        ...

    @property
    def stream(self) -> int:
        """What a library has to launch into now: 0 is the default; while something is captured, another."""
        ...

    def allocate(self, nbytes: int) -> int:
        """An address, aligned to 256 bytes."""
        ...

    def free(self, address: int) -> None: ...

    def host_memory(self, nbytes: int) -> np.ndarray:
        """Bytes on the host, page-locked where it has such to give: copies from and into it take the least
        time. Freed with the array."""
        ...

    def to_device(self, address: int, source: np.ndarray) -> None:
        """From C-contiguous host memory, whichever; has happened when it returns."""
        ...

    def to_host(self, target: np.ndarray, address: int) -> None:
        """Into C-contiguous host memory, after all that was launched before."""
        ...

    def fill(self, address: int, nbytes: int, byte: int) -> None: ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """From one address to another, launched as a kernel is: into :attr:`stream`."""
        ...

    def load(self, image: bytes) -> Any:
        """A module from a cubin or from PTX (which ends in a NUL)."""
        ...

    def unload(self, module: Any) -> None: ...

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[Scalar],
    ) -> Callable[[], None]:
        """A launch with everything said: calling it launches, and nothing else. Addresses are ``uint64``."""
        ...

    def synchronize(self) -> None:
        """Wait for all that was launched, in whichever stream."""
        ...

    def record(self) -> Any:
        """An event that happens when all that was launched before it has ended."""
        ...

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Microseconds between two events that have happened, by the device's clock (it counts in halves of
        one)."""
        ...

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        """What ``launch`` launches, as one graph, in order; nothing of it runs. Calling what is given back
        launches it all at once."""
        ...

    # Streams beside that one; a stream and an event are whatever the driver calls so.

    def make_stream(self) -> Any:
        """One that waits for no other, the default one neither."""
        ...

    def drop_stream(self, stream: Any) -> None: ...

    def launch_in(self, stream: Any, launch: Callable[[], object]) -> None:
        """What ``launch`` launches goes into this stream."""
        ...

    def copy_in(self, stream: Any, target: int | np.ndarray, source: int | np.ndarray, nbytes: int) -> None:
        """In the stream's order. An address is the device's, an array is host memory, C-contiguous, which
        must stay until the copy has happened."""
        ...

    def record_in(self, stream: Any) -> Any:
        """As :meth:`record`, in this stream."""
        ...

    def wait_in(self, stream: Any, event: Any) -> None:
        """What is launched into the stream from now on begins after the event."""
        ...

    def has_happened(self, event: Any) -> bool:
        """Without waiting. Raises what went wrong before it."""
        ...

    def between_us(self, first: Any, last: Any) -> float:
        """As :meth:`elapsed_us`, and the events stay."""
        ...

    def drop_event(self, event: Any) -> None: ...


DRIVERS = (
    ("pycuda", "opatlas.load.cuda.pycuda_driver", "PyCudaDriver"),
    ("cuda-bindings", "opatlas.load.cuda.bindings_driver", "BindingsDriver"),
)
"""Distribution, module and class: the first that is installed loads and launches. All else is cuda-bindings',
for either."""


@cache
def open_driver(device: int = 0) -> CudaDriver:
    """On a device of this machine, by its number among those that are visible (``CUDA_VISIBLE_DEVICES``); one
    for all of a process's kernels.

    Raises :class:`LoadError` where there is none, or nothing that could reach it.
    """
    why = []
    for distribution, module, name in DRIVERS:
        try:
            made: CudaDriver = getattr(importlib.import_module(module), name)(device)
            return made
        except Exception as error:  # libraries' errors share no base but Exception
            why.append(f"{distribution}: {first_line(error, 120)}")
    raise LoadError(f"needs a CUDA device, and none can be used here ({'; '.join(why)})")
