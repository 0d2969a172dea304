"""What every loaded artifact looks like to its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeGuard

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity.operator import Value
from opatlas.load.dtypes import extreme


class KernelFailed(OpatlasError):
    """A kernel that reported an error while it ran; says what it said."""


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
    """What is bound with output buffers of its own, overwritten by every call."""

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
        """Tie the runtime inputs (NumPy arrays with the operator's dtype, shape and strides)."""
        ...

    def close(self) -> None:
        """Give back memory and threads."""
        ...


class OutputBinder(LoadedKernel, Protocol):
    """One whose runs write where the caller says."""

    binds_outputs: bool

    def bind(
        self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> Bound: ...


def binds_outputs(kernel: LoadedKernel) -> TypeGuard[OutputBinder]:
    """Whether it is such a one."""
    return getattr(kernel, "binds_outputs", False)


class KernelWatch(Protocol):
    """Who is told what becomes of a kernel on this machine."""

    def trying(self) -> AbstractContextManager[None]:
        """Around what may kill the process: its first calls."""
        ...

    def went_well(self) -> None: ...

    def failed(self, where: str, error: str, message: str) -> None: ...


class BoundOnDevice(Protocol):
    """A kernel tied to arrays on its device; calling it launches one run there and returns."""

    def __call__(self) -> None: ...

    def synchronize(self) -> None:
        """Wait until all calls have ended; raises what went wrong in any of them."""
        ...

    def fresh_outputs(self, make: Callable[[Value], Any]) -> list[Any]:
        """Outputs of the latest call on the device, the caller's own, in memory that ``make`` gives unless
        each call makes new ones. Launched as a call is."""
        ...

    def outputs(self) -> Sequence[Any]:
        """Those that were given."""
        ...

    def poison(self) -> None: ...


class KernelOnDevice(Protocol):
    """One that computes on a device and takes what lies there. ``on_device``: which of those that are
    visible; ``alignment``: bytes of which addresses there are multiples; ``results``: outputs as they are
    written."""

    alignment: int

    @property
    def on_device(self) -> int | None: ...

    @property
    def results(self) -> tuple[Value, ...]: ...

    def bind(
        self, inputs: Mapping[int, Any], outputs: Sequence[Any] | None = None, *, stream: Any = None
    ) -> BoundOnDevice:
        """Tie what lies on the device, outputs too; the stream is a handle of the driver's."""
        ...

    def memory(self, value: Value, stream: Any = None) -> Any:
        """An array on the device for such a value, first written in this stream."""
        ...

    def fetched(self, given: Any, value: Value, name: str) -> np.ndarray:
        """A copy on the host of what lies on the device."""
        ...


def computes_on_device(kernel: Any) -> TypeGuard[KernelOnDevice]:
    """Whether it is such a one."""
    return getattr(kernel, "on_device", None) is not None
