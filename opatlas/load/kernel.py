"""The interface of every loaded artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeGuard

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity.operator import Value
from opatlas.load.dtypes import extreme


class KernelFailed(OpatlasError):
    """A kernel reported an error while it ran; the message is its own."""


class Bound(Protocol):
    """A kernel tied to its input buffers; calling it is one run, nothing else."""

    def __call__(self) -> None: ...

    def outputs(self) -> Sequence[np.ndarray]:
        """Outputs of the latest call, in the operator's order, as NumPy arrays (views, not copies)."""
        ...

    def poison(self) -> None:
        """Overwrite (NaN, or the type's extreme) every output buffer that outlives a call."""
        ...


class KeptOutputs:
    """A bound kernel with output buffers of its own, overwritten by every call."""

    _outputs: Sequence[np.ndarray]

    def outputs(self) -> Sequence[np.ndarray]:
        return self._outputs

    def poison(self) -> None:
        for output in self._outputs:
            output[...] = extreme(output.dtype)


class LoadedKernel(Protocol):
    """A loaded implementation. Inputs are addressed by their number in the canonical operator."""

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        """Take the constant inputs once, packing them if it helps. Never part of a timed run."""
        ...

    def bind(self, inputs: Mapping[int, np.ndarray]) -> Bound:
        """Bind the runtime inputs (NumPy arrays with the operator's dtype, shape and strides)."""
        ...

    def close(self) -> None:
        """Give back memory and threads."""
        ...


class OutputBinder(LoadedKernel, Protocol):
    """A kernel whose runs write where the caller says."""

    binds_outputs: bool

    def bind(
        self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> Bound: ...


def binds_outputs(kernel: LoadedKernel) -> TypeGuard[OutputBinder]:
    """Whether the kernel is an :class:`OutputBinder`."""
    return getattr(kernel, "binds_outputs", False)


class KernelWatch(Protocol):
    """Gets told what becomes of a kernel on this machine."""

    def trying(self) -> AbstractContextManager[None]:
        """Entered around calls that may kill the process: the first ones."""
        ...

    def went_well(self) -> None: ...

    def failed(self, where: str, error: str, message: str) -> None: ...


class BoundOnDevice(Protocol):
    """A kernel tied to arrays on its device; calling it launches one run there and returns."""

    def __call__(self) -> None: ...

    def synchronize(self) -> None:
        """Wait until all calls have ended; raises errors of any of them."""
        ...

    def fresh_outputs(self, make: Callable[[Value], Any]) -> list[Any]:
        """The latest outputs on the device, for the caller, in memory that ``make`` gives, unless each call
        makes new ones. Launched like a call."""
        ...

    def outputs(self) -> Sequence[Any]:
        """The given outputs."""
        ...

    def poison(self) -> None: ...


class KernelOnDevice(Protocol):
    """A kernel that computes on a device and accepts arrays there. ``on_device``: its number among the
    visible ones; ``alignment``: addresses are multiples of so many bytes; ``results``: outputs as written."""

    alignment: int

    @property
    def on_device(self) -> int | None: ...

    @property
    def results(self) -> tuple[Value, ...]: ...

    def bind(
        self, inputs: Mapping[int, Any], outputs: Sequence[Any] | None = None, *, stream: Any = None
    ) -> BoundOnDevice:
        """Bind arrays on the device, outputs too; the stream is a handle of the driver's."""
        ...

    def memory(self, value: Value, stream: Any = None) -> Any:
        """An array on the device for such a value, first written in this stream."""
        ...

    def fetched(self, given: Any, value: Value, name: str) -> np.ndarray:
        """A copy on the host of an array on the device."""
        ...


def computes_on_device(kernel: Any) -> TypeGuard[KernelOnDevice]:
    """Whether the kernel is a :class:`KernelOnDevice`."""
    return getattr(kernel, "on_device", None) is not None
