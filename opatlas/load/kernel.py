"""What every loaded artifact looks like to its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

import numpy as np

from opatlas.errors import OpatlasError
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
