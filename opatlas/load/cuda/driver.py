"""The part of the CUDA driver that is used, as one small interface, and its implementations here."""

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
    """An error of the driver: an illegal address, too little memory, an impossible launch. After most of
    these the process can use the device no more."""


class DeviceOutOfMemory(DeviceFailed, MemoryError):
    """The device has less free memory than was asked for."""


class CudaDriver(Protocol):
    """One device, and one context on it. Addresses are the device's. Launches and copies run in one stream,
    in order. A launch returns at once; the next call that waits reports its errors. Every method may raise
    :class:`DeviceFailed`."""

    @property
    def number(self) -> int:
        """Its number among the visible devices."""
        ...

    @property
    def arch(self) -> str:
        """``sm_90``."""
        ...

    @property
    def version(self) -> int:
        """The newest CUDA that the driver supports: 13000 is 13.0."""
        ...

    @property
    def stream(self) -> int:
        """The stream for launches of libraries: 0 is the default; during a capture, another."""
        ...

    def allocate(self, nbytes: int) -> int:
        """An address that is aligned to 256 bytes."""
        ...

    def free(self, address: int) -> None: ...

    def host_memory(self, nbytes: int) -> np.ndarray:
        """Bytes on the host, page-locked if possible, from and to which copies are fastest. Freed with the
        array."""
        ...

    def to_device(self, address: int, source: np.ndarray) -> None:
        """Copy from C-contiguous host memory; finished when it returns."""
        ...

    def to_host(self, target: np.ndarray, address: int) -> None:
        """Copy into C-contiguous host memory, after all earlier launches."""
        ...

    def fill(self, address: int, nbytes: int, byte: int) -> None: ...

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy between two addresses, launched like a kernel into :attr:`stream`."""
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
        """A complete launch: calling it launches, and nothing else. Addresses are ``uint64``."""
        ...

    def synchronize(self) -> None:
        """Wait for all launches, in every stream."""
        ...

    def record(self) -> Any:
        """An event that happens when all earlier launches have ended."""
        ...

    def elapsed_us(self, first: Any, last: Any) -> float:
        """Microseconds between two events that have happened, by the device's clock (in steps of half
        one)."""
        ...

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        """The launches of ``launch`` as one graph, in order; none of them runs. The returned call launches
        them all at once."""
        ...

    # Streams beside that one; a stream and an event are whatever the driver calls so.

    def make_stream(self) -> Any:
        """A stream that waits for no other, not even the default one."""
        ...

    def drop_stream(self, stream: Any) -> None: ...

    def launch_in(self, stream: Any, launch: Callable[[], object]) -> None:
        """Launch what ``launch`` launches into this stream."""
        ...

    def copy_in(self, stream: Any, target: int | np.ndarray, source: int | np.ndarray, nbytes: int) -> None:
        """Copy in the stream's order. An address is the device's; an array is C-contiguous host memory, which
        must live until the copy has happened."""
        ...

    def record_in(self, stream: Any) -> Any:
        """Like :meth:`record`, in this stream."""
        ...

    def wait_in(self, stream: Any, event: Any) -> None:
        """Later launches into the stream begin after the event."""
        ...

    def has_happened(self, event: Any) -> bool:
        """Whether the event has happened; does not wait. Raises errors of earlier launches."""
        ...

    def between_us(self, first: Any, last: Any) -> float:
        """Like :meth:`elapsed_us`, but the events stay."""
        ...

    def drop_event(self, event: Any) -> None: ...


DRIVERS = (
    ("pycuda", "opatlas.load.cuda.pycuda_driver", "PyCudaDriver"),
    ("cuda-bindings", "opatlas.load.cuda.bindings_driver", "BindingsDriver"),
)
"""Distribution, module and class: the first installed one loads and launches. cuda-bindings does all the
rest."""


@cache
def open_driver(device: int = 0) -> CudaDriver:
    """The driver for a visible device of this machine (``CUDA_VISIBLE_DEVICES``), by number; one for all
    kernels of a process. Raises :class:`LoadError` if there is no device, or no library to reach it."""
    why = []
    for distribution, module, name in DRIVERS:
        try:
            made: CudaDriver = getattr(importlib.import_module(module), name)(device)
            return made
        except Exception as error:  # libraries' errors share no base but Exception
            why.append(f"{distribution}: {first_line(error, 120)}")
    raise LoadError(f"needs a CUDA device, and none can be used here ({'; '.join(why)})")
